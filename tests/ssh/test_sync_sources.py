"""A sweep from several sources: what each command makes of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import (
    EPOCH,
    HOST,
    create_sweep,
    end_attempt,
    finish,
    finished_sweep,
    matrix_runs,
    publish,
    result_of,
    training_rows,
    write_attempt,
    write_journal,
)
from orchestrator.control.clean import CleanOptions, remove, surplus
from orchestrator.control.decisions import retry_runs
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources, RunState
from orchestrator.rundir import Claim, Holder, SweepDir, Uploaded
from orchestrator.rundir.records.journal import CLAIMED, PROGRESS, STARTED, Event
from orchestrator.rundir.records.ledger_entries import SubmissionEntry
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport
from orchestrator.sync.source import Source, find_source
from orchestrator.sync.sync import sync
from orchestrator.sync.wandb import _place, plan_uploads
from orchestrator.ui.cli import app
from orchestrator.ui.monitor.tree import WatchedTree

RUN = matrix_runs({"algorithm": ["mappo"], "seed": [0]})[0]


def bring(source: SweepDir, home: Path) -> SyncReport:
    (brought,) = sync(find_source(f"{source.results}/"), home, SyncOptions(), SyncProgress())
    return brought


def folder_of(source: SweepDir) -> str:
    return Source(str(source.results.resolve())).name


def finished(folder: Path, attempts: int = 1, **changes: Any) -> SweepDir:
    """A source's sweep of one run, finished by this attempt."""
    sweep = create_sweep(folder / "results", "speed", [RUN])
    run, rows = sweep.run(RUN.run_id), training_rows(RUN, 4)
    for number in range(1, attempts + 1):
        write_attempt(run.attempt(number), rows)
        end_attempt(run.attempt(number), "done" if number == attempts else "interrupted")
    publish(run, {**result_of(RUN, rows, attempts), **changes}, [run.attempt(attempts).metrics])
    return sweep


def with_file(sweep: SweepDir, path: Path, data: bytes) -> SweepDir:
    """The same sweep with a further file of its finished run."""
    run = sweep.run(RUN.run_id)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    result = json.loads(run.result_path.read_text())
    about = {"path": path.relative_to(run.path).as_posix(), "sha256": hashlib.sha256(data).hexdigest()}
    result["manifest"].append({**about, "bytes": len(data), "required": False})
    run.result_path.write_text(json.dumps(result))
    return sweep


def training(folder: Path, frames: int, attempt: int) -> SweepDir:
    """A source's sweep of one run in training, at these frames in this attempt."""
    sweep = create_sweep(folder / "results", "speed", [RUN])
    run = sweep.run(RUN.run_id)
    for number in range(1, attempt + 1):
        write_attempt(run.attempt(number), training_rows(RUN, 4)[:2])
    run.attempt(attempt).checkpoints.mkdir()
    run.attempt(attempt).checkpoint_name(frames, "a" * 16).write_bytes(b"x")
    job = Job("0001-0001", "speed", "local", (RUN.run_id,), 1, Resources())
    sweep.add_to_ledger(SubmissionEntry(time=EPOCH, trainer="benchmarl", jobs=(job,), job_ids={}, skipped={}))
    holder = Holder(f"node-{folder.name}", "b", "", 1, 0)
    started = {"holder": plain(holder), "slots": 1, "host": HOST}
    journal = sweep.take_token("0001-0001", Event(STARTED, EPOCH, data=started))
    assert journal is not None
    progress = {"frames": frames, "total": 60_000, "end_to_end_fps": 1300.0, "iteration_fps": 1.0}
    for number in range(1, attempt + 1):
        journal.append(Event(CLAIMED, EPOCH, RUN.run_id, number))
        journal.append(Event(PROGRESS, EPOCH + 1, RUN.run_id, number, {**progress, "return": 0.1}))
    return sweep


@pytest.mark.parametrize("link", ["sources", "a source"])
def test_clean_removes_nothing_through_a_link_to_another_results_folder(tmp_path: Path, link: str) -> None:
    sweep = finished(tmp_path / "one")
    attempt = sweep.run(RUN.run_id).attempt(1)
    with_file(sweep, attempt.policies / "000000006000.pt", b"x")
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    bring(sweep, home)
    bring(sweep, elsewhere)
    sources = home / "speed" / "sources"
    if link == "sources":
        (tmp_path / "outside").mkdir()
        shutil.copytree(elsewhere / "speed", tmp_path / "outside" / "lab")
        sources.symlink_to(tmp_path / "outside")
        there = tmp_path / "outside" / "lab"
    else:
        sources.mkdir()
        (sources / "lab").symlink_to(elsewhere / "speed")
        there = elsewhere / "speed"
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    here = SweepDir(home, "speed")
    remove(here, CleanOptions(drop=frozenset({"policies"})))
    assert not list(here.run(RUN.run_id).path.rglob("000000006000.pt"))
    assert {path: path.read_bytes() for path in there.rglob("*") if path.is_file()} == before
    assert here.copies() == []


def test_wandb_logs_that_were_never_uploaded_stay(tmp_path: Path) -> None:
    """Of two versions only the one that counts is uploaded."""
    home = tmp_path / "home"
    for name in ("one", "two"):
        sweep = finished(tmp_path / name, code_id=name)
        packed = sweep.run(RUN.run_id).attempt(1).wandb_packed
        bring(with_file(sweep, packed, name.encode()), home)
    here = SweepDir(home, "speed")
    (upload,) = plan_uploads([here]).todo
    with here.uploads.writing():
        here.uploads.add(Uploaded(upload.run_id, upload.digest, _place(), "http://x", time.time()))
    assert not plan_uploads([here]).todo
    found = surplus(here, CleanOptions(drop=frozenset({"wandb"})))
    files = [path for group in found.groups.values() for path in group.files]
    assert files == [here.run(RUN.run_id).attempt(1).wandb_packed]
    assert any("W&B logs of 1 run" in line and "another source" in line for line in found.left)


@pytest.mark.parametrize("own", [False, True])
def test_a_retry_makes_void_what_every_source_has(tmp_path: Path, own: bool) -> None:
    """Not only attempts of this tree, or of the version that counted."""
    home = tmp_path / "home"
    here = create_sweep(home, "speed", [RUN])
    if own:
        finish(here.run(RUN.run_id), RUN, training_rows(RUN, 4))
        write_journal(here)
    else:
        bring(finished(tmp_path / "one", 1), home)
    bring(finished(tmp_path / "three", 3), home)
    assert retry_runs(here, [RUN.run_id]) == [RUN.run_id]
    assert not here.run_to_read(RUN.run_id).has_result()
    assert poll_sweep(here).statuses[RUN.run_id].state is RunState.PENDING
    taken = here.run(RUN.run_id).take(Claim.fresh("me"))
    assert taken is not None
    assert taken.number == 4


def test_an_attempt_with_an_endless_number_is_not_fetched(tmp_path: Path) -> None:
    source, home = finished(tmp_path / "one"), tmp_path / "home"
    run = source.run(RUN.run_id)
    write_attempt(run.attempt(10**30), [])
    (run.path / f"retired-{10**30}.json").write_text("{}")
    here = create_sweep(home, "speed", [RUN])
    assert bring(source, home).complete == [RUN.run_id]
    assert here.run_to_read(RUN.run_id).newest_attempt() == 1
    assert retry_runs(here, [RUN.run_id]) == [RUN.run_id]
    assert not here.run_to_read(RUN.run_id).has_result()


def test_the_ledger_has_the_facts_of_the_result_that_counts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    here = create_sweep(home, "speed", [RUN])
    one, two = finished(tmp_path / "one", code_id="a" * 16), finished(tmp_path / "two", 3, code_id="b" * 16)
    for source in (one, two):
        bring(source, home)
    assert poll_sweep(here).statuses[RUN.run_id].code_id == "a" * 16
    one.run(RUN.run_id).retire_result()
    bring(one, home)
    status = poll_sweep(here).statuses[RUN.run_id]
    assert (status.state, status.code_id, status.attempt) == (RunState.DONE, "b" * 16, 3)
    ledger = here.read_ledger()
    for source in (one, two):
        bring(source, home)
    assert here.read_ledger() == ledger
    two.run(RUN.run_id).retire_result()
    bring(two, home)
    assert poll_sweep(here).statuses[RUN.run_id].state is RunState.PENDING


def test_a_result_that_is_retried_at_its_source_leaves_the_attempts_here_as_they_are(tmp_path: Path) -> None:
    """The source's attempts have numbers of their own."""
    home = tmp_path / "home"
    here = create_sweep(home, "speed", [RUN])
    run = here.run(RUN.run_id)
    write_attempt(run.attempt(1), [])
    end_attempt(run.attempt(1), "interrupted")
    source = finished(tmp_path / "one", 3)
    bring(source, home)
    source.run(RUN.run_id).retire_result()
    bring(source, home)
    assert poll_sweep(here).statuses[RUN.run_id].state is RunState.PENDING
    journal = here.take_token("0001-0001", Event(STARTED, 1.0, data={"holder": plain(Holder.current())}))
    attempt = run.take(Claim.fresh("0001-0001"))
    assert journal is not None
    assert attempt is not None
    journal.append(Event(CLAIMED, time.time(), RUN.run_id, attempt.number))
    status = poll_sweep(here).statuses[RUN.run_id]
    assert (status.state, status.attempt) == (RunState.RUNNING, 2)


def test_status_and_the_monitor_show_the_version_that_is_read(tmp_path: Path) -> None:
    one, two = training(tmp_path / "one", 6_000, 1), training(tmp_path / "two", 48_000, 3)
    home = tmp_path / "home"
    for source in (one, two):
        bring(source, home)
    here = SweepDir(home, "speed")
    assert [one.frames for one in here.run_to_read(RUN.run_id).checkpoints()] == [48_000]
    status = poll_sweep(here).statuses[RUN.run_id]
    assert (status.attempt, status.frames) == (3, 48_000)
    _, (row,) = WatchedTree(home).look(time.time(), 5)
    assert row.checkpoint_frames == 48_000
    assert row.host == ""  # tokens are valid only at their source


def test_a_damaged_index_of_a_further_source_harms_no_other(tmp_path: Path) -> None:
    one, two = (
        finished(tmp_path / "one"),
        finished_sweep(
            tmp_path / "two" / "results", "speed", {"algorithm": ["iql"], "seed": [0]}, iterations=2
        ),
    )
    home = tmp_path / "home"
    for source in (one, two):
        bring(source, home)
    here = SweepDir(home, "speed")
    rows = here.read_index()
    assert len(rows) == 2
    two.index_path.write_bytes(b"\xff\xfe")
    for _ in range(2):
        assert any("index.tsv at the source" in line for line in bring(two, home).problems)
        assert SweepDir(home, "speed").read_index() == rows  # the one that was here stays
    copy = home / "speed" / "sources" / folder_of(two) / "index.tsv"
    copy.write_bytes(b"\xff\xfe")
    seen = poll_sweep(SweepDir(home, "speed"))
    assert [row.run_id for row in seen.rows] == one.run_ids()
    assert any(str(copy) in line for line in seen.notes)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"source": "x", "name": "y", "since": 0, "time": "soon"}'])
def test_a_damaged_mark_of_a_copy_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    source, home = finished(tmp_path / "one"), tmp_path / "home"
    bring(source, home)
    mark = home / "speed" / ".synced" / "copy.json"
    mark.write_text(text)
    with pytest.raises(DamagedFileError) as caught:
        poll_sweep(SweepDir(home, "speed"))
    assert str(mark) in str(caught.value)
    assert caught.value.hint == f"move {home / 'speed'} elsewhere, then sync again"


def test_status_names_every_source_of_a_copy(tmp_path: Path) -> None:
    home, sources = tmp_path / "home", [finished(tmp_path / name) for name in ("one", "two")]
    for source in sources:
        bring(source, home)
    shown = CliRunner().invoke(app, ["status", "--results", str(home)])
    assert shown.exit_code == 0, shown.output
    said = "".join(shown.output.split())
    for source in sources:
        assert f"from{source.results}" in said


def test_stray_files_beside_copies_are_none(tmp_path: Path) -> None:
    one, two = finished(tmp_path / "one"), finished(tmp_path / "two", 2)
    home = tmp_path / "home"
    for source in (one, two):
        bring(source, home)
    sources = home / "speed" / "sources"
    (sources / ".DS_Store").touch()
    (sources / "notes").touch()
    assert [copy.name for copy in SweepDir(home, "speed").copies()] == [folder_of(two)]

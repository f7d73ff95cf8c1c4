"""Results of several sources in one tree, a retry at the source, and files that stay there."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import (
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
from orchestrator.analysis.collect import collect
from orchestrator.control.decisions import retry_runs
from orchestrator.control.poll import poll_sweep
from orchestrator.core.records import plain
from orchestrator.core.types import Run
from orchestrator.rundir import Claim, Holder, RunDir, SweepDir
from orchestrator.rundir.attempts.absent_files import read_absent
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.status.survey import RunState
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport, kinds
from orchestrator.sync.source import Source, find_source
from orchestrator.sync.sync import sync
from tests.helpers import children, kill, published, running, wait_for

MATRIX = {"algorithm": ["mappo", "iql"], "seed": [0, 1]}


def bring(source: SweepDir, home: Path, options: SyncOptions | None = None) -> SyncReport:
    (brought,) = sync(find_source(f"{source.results}/"), home, options or SyncOptions(), SyncProgress())
    return brought


def name_of(source: SweepDir) -> str:
    return Source(str(source.results.resolve())).name


def cluster(
    folder: Path, runs: Mapping[str, Sequence[Any]] = MATRIX, done: int | None = None, **changes: Any
) -> SweepDir:
    """A cluster's sweep of which the first ``done`` runs are finished; of another one there is an attempt."""
    described = matrix_runs(runs)
    sweep = create_sweep(folder / "results", "speed", described)
    for number, run in enumerate(described):
        rows = training_rows(run, 4)
        if done is None or number < done:
            finish(sweep.run(run.run_id), run, rows, **changes)
        elif number == done:
            write_attempt(sweep.run(run.run_id).attempt(1), rows[:2])
    return sweep


def test_each_source_brings_what_the_other_lacks(tmp_path: Path) -> None:
    one = cluster(tmp_path / "one", {"algorithm": ["mappo"], "seed": [0, 1]})
    two = cluster(tmp_path / "two", {"algorithm": ["iql"], "seed": [0, 1]})
    write_journal(one)
    write_journal(two)
    home = tmp_path / "home"
    for _ in range(2):
        assert bring(one, home).problems == []
        assert bring(two, home).problems == []
    merged = SweepDir(home, "speed")
    assert not {path.name for path in merged.path.glob("runs/*")} & set(two.run_ids())
    assert merged.run_ids() == sorted(one.run_ids() + two.run_ids())
    assert [row.run_id for row in merged.read_index()] == [
        row.run_id for row in [*one.read_index(), *two.read_index()]
    ]
    assert {status.state for status in poll_sweep(merged).statuses.values()} == {RunState.DONE}
    collected = collect([merged], checksums=True)
    assert (len(collected.runs), collected.missing, collected.problems) == (4, (), ())
    assert SweepDir(merged.path / "sources", name_of(two)).read_ledger() == two.read_ledger()
    assert merged.read_ledger() == one.read_ledger()


def test_the_first_of_two_versions_counts(tmp_path: Path) -> None:
    one, two = cluster(tmp_path / "one"), cluster(tmp_path / "two", code_id="beef" * 4)
    run_id = one.run_ids()[0]
    home = tmp_path / "home"
    bring(one, home)
    brought = bring(two, home)
    assert brought.problems == []
    merged = SweepDir(home, "speed")
    kept = RunDir(merged.path / "sources" / name_of(two) / "runs" / run_id)
    assert merged.run_to_read(run_id).path == merged.run(run_id).path
    assert merged.run(run_id).result_path.read_bytes() == one.run(run_id).result_path.read_bytes()
    assert kept.result_path.read_bytes() == two.run(run_id).result_path.read_bytes()
    (note,) = (line for line in brought.notes if run_id in line)
    assert f"finished in two places; the result from {one.results}" in note
    assert "counts (with the same metrics)" in note
    for source in (one, two):  # and it stays so
        again = bring(source, home)
        assert (again.files, again.complete, again.notes) == (0, [], [])


def test_other_metrics_of_a_second_version_are_named(tmp_path: Path) -> None:
    one, two = cluster(tmp_path / "one"), cluster(tmp_path / "two", done=0)
    described = {run.run_id: run for run in matrix_runs(MATRIX)}
    run_id = two.run_ids()[0]
    shutil.rmtree(two.run(run_id).path / "attempts")
    finish(two.run(run_id), described[run_id], training_rows(described[run_id], 3))
    home = tmp_path / "home"
    bring(one, home)
    assert any("other metrics" in line for line in bring(two, home).notes)


def test_a_copy_s_unfinished_version_gives_way_to_a_finished_one(tmp_path: Path) -> None:
    one, two = cluster(tmp_path / "one", done=3), cluster(tmp_path / "two", done=4)
    home = tmp_path / "home"
    bring(one, home)
    unfinished = one.read_index()[3].run_id
    merged = SweepDir(home, "speed")
    assert merged.run_to_read(unfinished).result() is None
    assert len(merged.run_to_read(unfinished).history()) == 2
    bring(two, home)
    assert merged.run_to_read(unfinished).path.parent.parent.name == name_of(two)
    collected = collect([merged], checksums=True)
    assert (len(collected.runs), collected.missing, collected.problems) == (4, (), ())


def test_a_sweep_of_home_s_own_stays_so_and_knows_what_came(tmp_path: Path) -> None:
    there = cluster(tmp_path / "there", done=2)
    home = tmp_path / "home"
    own = create_sweep(home, "speed", matrix_runs(MATRIX))
    for path in own.path.rglob("*.json"):  # written here at another time than there
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 60))
    own_files = {path: path.read_bytes() for path in own.path.rglob("*") if path.is_file()}
    brought = bring(there, home)
    assert (len(brought.complete), brought.problems) == (2, [])
    assert read_copy(own.path) is None
    for path, data in own_files.items():
        assert path.read_bytes() == data
    max(own.path.glob("ledger/*.json")).unlink()  # as after a kill just before it was written
    assert bring(there, home).files == 0
    states = [poll_sweep(own).statuses[row.run_id].state for row in own.read_index()]
    assert states == [RunState.DONE, RunState.DONE, RunState.PENDING, RunState.PENDING]
    assert not list(own.path.glob("runs/*/attempts/*"))  # no worker here takes those for this tree's
    assert len(own.run_to_read(there.read_index()[2].run_id).attempts()) == 1
    collected = collect([own], checksums=True)
    assert (collected.runs["state"].to_list().count("done"), collected.problems) == (2, ())
    ledger = own.read_ledger()
    assert bring(there, home).files == 0
    assert own.read_ledger() == ledger


def test_a_run_that_home_has_begun_is_not_replaced(tmp_path: Path) -> None:
    there = cluster(tmp_path / "there")
    home = tmp_path / "home"
    own = create_sweep(home, "speed", matrix_runs(MATRIX))
    begun = own.run(own.run_ids()[0])
    write_attempt(begun.attempt(1), [])
    brought = bring(there, home)
    assert own.run_to_read(begun.run_id).path == begun.path
    assert poll_sweep(own).statuses[begun.run_id].state is not RunState.DONE
    assert [attempt.number for attempt in begun.attempts()] == [1]
    assert begun.attempt(1).metrics.read_bytes() == b'{"resumed_from": null}\n'
    assert any(begun.run_id in line and "this tree has begun or retried it" in line for line in brought.notes)


def test_a_run_that_is_claimed_after_its_result_came_is_read_here(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    own = create_sweep(home, "speed", matrix_runs(MATRIX))
    claiming = own.run(own.run_ids()[0])
    claiming.attempt(1).path.mkdir(parents=True)
    bring(there, home)
    assert own.run_to_read(claiming.run_id).result() is not None
    assert claiming.take(Claim.fresh("me")) is not None
    assert own.run_to_read(claiming.run_id).path == claiming.path


@pytest.mark.parametrize("own", [False, True])
def test_a_retry_there_takes_the_result_back_here(tmp_path: Path, own: bool) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    here = SweepDir(home, "speed")
    if own:
        create_sweep(home, "speed", matrix_runs(MATRIX))
    bring(there, home)
    described = matrix_runs(MATRIX)[0]
    run = there.run(described.run_id)
    old = run.result_path.read_bytes()
    run.retire_result()
    brought = bring(there, home)
    assert any(run.run_id in line and "retried at the source" in line for line in brought.notes)
    assert here.run_to_read(run.run_id).result() is None
    if own:
        assert poll_sweep(here).statuses[run.run_id].state is RunState.PENDING
        assert here.run(run.run_id).attempts() == []
    folder = here.path / "sources" / name_of(there) if own else here.path
    assert (folder / "runs" / run.run_id / "retired-1.json").read_bytes() == old
    attempt = run.attempt(2)
    rows = training_rows(described, 5)
    write_attempt(attempt, rows)
    end_attempt(attempt, "done")
    publish(run, {**result_of(described, rows), "attempt": 2}, [attempt.metrics])
    brought = bring(there, home)
    assert (brought.complete, brought.problems) == ([run.run_id], [])
    assert here.run_to_read(run.run_id).result_path.read_bytes() == run.result_path.read_bytes()
    assert (here.run_to_read(run.run_id).path / "retired-1.json").read_bytes() == old
    if own:
        assert poll_sweep(here).statuses[run.run_id].state is RunState.DONE
    assert bring(there, home).files == 0


def test_a_purge_there_takes_nothing_from_here(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there", done=2), tmp_path / "home"
    bring(there, home)
    before = {
        path: path.read_bytes() for path in home.rglob("*") if path.is_file() and ".synced" not in path.parts
    }
    for run_id in there.run_ids()[:3]:
        shutil.rmtree(there.run(run_id).path)
    for path in there.path.glob("runs/*/attempts"):
        shutil.rmtree(path)
    bring(there, home)
    assert {path: path.read_bytes() for path in before} == before


def test_what_was_verified_here_is_not_replaced_by_something_else(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    bring(there, home)
    run = there.run(there.run_ids()[0])
    run.attempt(1).metrics.write_bytes(b"nonsense\n")
    (run.path / "notes.txt").write_text("a file more, so that the run is looked at")
    brought = bring(there, home)
    here = SweepDir(home, "speed").run(run.run_id)
    assert any("differ from the files verified" in line for line in brought.problems)
    result = here.result()
    assert result is not None
    here.verify(result, checksums=True)
    assert (here.path / "notes.txt").exists()


def test_what_was_damaged_here_is_repaired(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    bring(there, home)
    here = SweepDir(home, "speed").run(there.run_ids()[0])
    here.attempt(1).metrics.write_bytes(b"nonsense\n")
    brought = bring(there, home)
    assert (brought.files, brought.problems) == (1, [])
    result = here.result()
    assert result is not None
    here.verify(result, checksums=True)


def test_a_run_that_is_settled_is_not_looked_into_unless_it_is_gone_here(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    for path in [*there.path.rglob("*"), there.path]:
        os.utime(path, (1_700_000_000, 1_700_000_000))  # what changed a moment ago may change again unseen
    bring(there, home)
    first, second, *_ = (there.run(run_id) for run_id in there.run_ids())
    here = SweepDir(home, "speed").run(first.run_id)
    (first.attempt(1).path / "notes.txt").write_text("neither its folder nor its result has another time")
    assert bring(there, home).files == 0
    shutil.rmtree(here.path)
    assert bring(there, home).complete == [first.run_id]
    here.verify(published(here), checksums=True)
    (second.path / "notes.txt").write_text("more")
    assert bring(there, home).files == 1


def test_a_result_damaged_here_is_brought_again(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    bring(there, home)
    (SweepDir(home, "speed").path / ".synced" / "state.json").unlink()
    here = SweepDir(home, "speed").run(there.run_ids()[0])
    times = here.result_path.stat()
    for torn in (b"", b"{" + b" " * (times.st_size - 1)):  # the second to the very size and time
        here.result_path.write_bytes(torn)
        os.utime(here.result_path, ns=(times.st_atime_ns, times.st_mtime_ns))
        brought = bring(there, home)
        assert (brought.complete, brought.problems) == ([here.run_id], [])
        assert here.result() is not None


def test_a_result_that_was_only_touched_there(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    bring(there, home)
    result = there.run(there.run_ids()[0]).result_path
    os.utime(result, (1, 1))
    assert bring(there, home).problems == []
    assert SweepDir(home, "speed").run(there.run_ids()[0]).result_path.stat().st_mtime == 1


def test_only_some_kinds_and_then_the_rest(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there", {"algorithm": ["iql"], "seed": [0]}, done=0), tmp_path / "home"
    described = matrix_runs({"algorithm": ["iql"], "seed": [0]})[0]
    run, rows = there.run(described.run_id), training_rows(described, 4)
    attempt = run.attempt(1)
    write_attempt(attempt, rows)
    end_attempt(attempt, "done")
    attempt.checkpoints.mkdir()
    files = [attempt.metrics, attempt.log, attempt.path / "events.out.tfevents.1", attempt.wandb_packed]
    files += [attempt.checkpoint_name(frames, "0" * 16) for frames in (6_000, 24_000)]
    for path in files[1:]:
        path.write_bytes(path.name.encode())
    publish(run, result_of(described, rows), files)
    here = SweepDir(home, "speed").run(run.run_id)
    bring(there, home, SyncOptions(only=kinds("metrics,logs")))
    inside = {path.relative_to(here.path).as_posix() for path in here.path.rglob("*") if path.is_file()}
    small = {"run.json", "result.json", ".absent.json", "attempts/1/claim", "attempts/1/end.json"}
    assert inside == small | {"attempts/1/metrics.jsonl", "attempts/1/log.txt"}
    assert len(read_absent(here.path).files) == 4
    collected = collect([SweepDir(home, "speed")], checksums=True)
    assert collected.problems == ()
    assert collected.runs["state"].to_list() == ["done"]
    bring(there, home, SyncOptions(latest_checkpoint=True))
    assert [one.frames for one in here.checkpoints()] == [24_000]
    assert read_absent(here.path).files == {files[4].relative_to(run.path).as_posix()}
    assert bring(there, home, SyncOptions(latest_checkpoint=True)).files == 0
    bring(there, home)
    assert not read_absent(here.path).files
    result = here.result()
    assert result is not None
    here.verify(result, checksums=True)
    assert {path.relative_to(here.path) for path in here.path.rglob("*")} == {
        path.relative_to(run.path) for path in run.path.rglob("*")
    }


def test_some_runs_and_some_sweeps(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    finished_sweep(there.results, "other", MATRIX, iterations=2)
    bring(there, home, SyncOptions(sweeps=("speed",), runs=("algorithm=mappo",)))
    wanted = {row.run_id for row in there.read_index() if row.point["algorithm"] == "mappo"}
    assert set(SweepDir(home, "speed").run_ids()) == wanted
    assert not (home / "other").exists()
    missing = there.run_ids()[0]
    bring(there, home, SyncOptions(sweeps=("speed",), runs=(missing[:8],)))
    assert set(SweepDir(home, "speed").run_ids()) == wanted | {missing}


def test_results_that_a_plain_copy_brought_are_not_brought_again(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    shutil.copytree(there.results, home)
    brought = bring(there, home)
    assert (brought.problems, brought.notes) == ([], [])
    own = SweepDir(home, "speed").run(there.run_ids()[0])
    assert SweepDir(home, "speed").run_to_read(own.run_id).path == own.path
    assert bring(there, home).files == 0
    assert json.loads(SweepDir(home, "speed").run(there.run_ids()[0]).result_path.read_text())


def test_an_attempt_from_elsewhere_never_has_a_process_here_killed(tmp_path: Path) -> None:
    """Its claim names a process of this machine, as one can that means harm."""
    there, home = cluster(tmp_path / "there", {"algorithm": ["mappo"], "seed": [0]}), tmp_path / "home"
    own = create_sweep(home, "speed", matrix_runs({"algorithm": ["mappo"], "seed": [0]}))
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as leader:
        try:
            run = there.run(there.run_ids()[0])
            wait_for(lambda: children(leader.pid), what="a process of its session")
            (sleeper,) = children(leader.pid)
            claim = Claim("0" * 16, Holder.of(leader.pid), 0.0, "0001-0001")
            run.attempt(1).claim_path.write_text(json.dumps(plain(claim)))
            leader.kill()
            leader.wait()
            bring(there, home)
            assert own.run_to_read(run.run_id).result() is not None
            retry_runs(own, [run.run_id])
            assert own.run(run.run_id).take(Claim.fresh("me")) is not None
            assert running(sleeper)
        finally:
            kill(sleeper)


def test_two_sources_at_once(tmp_path: Path) -> None:
    """Each copy has the files of its source, and one version of each run counts."""
    many = {"algorithm": ["mappo", "iql"], "seed": list(range(8))}
    one, two = (
        cluster(tmp_path / "one", many, done=6),
        cluster(tmp_path / "two", many, done=12, code_id="beef"),
    )
    home = SweepDir(tmp_path / "home", "speed")
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync"]
    for _ in range(2):
        started = [
            subprocess.Popen([*argv, f"{source.results}/", str(home.results)], stdout=subprocess.DEVNULL)
            for source in (one, two)
        ]
        assert [process.wait(180) for process in started] == [0, 0]
    assert sum(home.run_to_read(run_id).has_result() for run_id in home.run_ids()) == 12
    assert collect([home], checksums=True).problems == ()
    for source in (one, two):
        further = home.path / "sources" / name_of(source)
        copy = further if further.is_dir() else home.path
        for path in _files(source.path / "runs"):
            assert (copy / path.relative_to(source.path)).read_bytes() == path.read_bytes()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]


def done_again(sweep: SweepDir, described: Run, iterations: int = 5) -> None:
    """A second attempt, that finishes."""
    run, rows = sweep.run(described.run_id), training_rows(described, iterations)
    write_attempt(run.attempt(2), rows)
    end_attempt(run.attempt(2), "done")
    publish(run, {**result_of(described, rows), "attempt": 2}, [run.attempt(2).metrics])


class Crash(BaseException):
    pass


def crash(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """End it all just after the ``step``-th change of a name."""
    left = itertools.count(1)

    def ending(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*arguments: Any, **words: Any) -> None:
            change(*arguments, **words)
            if next(left) >= step:
                raise Crash

        return changed

    for name in ("rename", "replace", "link"):
        monkeypatch.setattr(os, name, ending(getattr(os, name)))


@pytest.mark.parametrize("own", [True, False])
def test_a_crash_at_any_step_is_healed(tmp_path: Path, own: bool) -> None:
    one = {"algorithm": ["mappo"], "seed": [0]}
    there, other = cluster(tmp_path / "there", one), cluster(tmp_path / "other", one, done=0)
    (run_id,) = there.run_ids()
    for step in itertools.count(1):
        home = tmp_path / str(step)
        if own:
            create_sweep(home, "speed", matrix_runs(one))
        else:
            bring(other, home)
        crashed = False
        with pytest.MonkeyPatch.context() as monkeypatch:
            crash(monkeypatch, step)
            try:
                bring(there, home)
            except Crash:
                crashed = True
        here = SweepDir(home, "speed")
        for source in (there, there) if own or step % 2 else (other, there, there):
            brought = bring(source, home)
            assert brought.notes + brought.problems == [], step
        counting = here.run_to_read(run_id)
        counting.verify(published(counting), checksums=True)
        assert counting.result_path.read_bytes() == there.run(run_id).result_path.read_bytes()
        assert poll_sweep(here).statuses[run_id].state is RunState.DONE or not own
        if not crashed:
            break
    assert step > 4


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("torn", [b"", None])
def test_a_result_that_was_lost_here_comes_again(tmp_path: Path, own: bool, torn: bytes | None) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    run_id = there.run_ids()[0]
    if own:
        create_sweep(home, "speed", matrix_runs(MATRIX))
    else:
        bring(cluster(tmp_path / "other", done=0), home)
    bring(there, home)
    here = SweepDir(home, "speed").run_to_read(run_id)
    here.result_path.unlink()
    if torn is not None:
        here.result_path.write_bytes(torn)
    brought = bring(there, home)
    assert (brought.complete, brought.problems) == ([run_id], [])
    here.verify(published(here), checksums=True)
    assert bring(there, home).files == 0


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_retried_at_home_never_gets_its_old_result_again(tmp_path: Path, begun: bool) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    own = create_sweep(home, "speed", matrix_runs(MATRIX))
    bring(there, home)
    described = matrix_runs(MATRIX)[0]
    here = own.run(described.run_id)
    assert retry_runs(own, [here.run_id]) == [here.run_id]
    if begun:
        write_attempt(here.attempt(2), [])
    first = bring(cluster(tmp_path / "other", code_id="beef" * 4), home)
    assert any("this tree has begun or retried it" in line for line in first.notes)
    for _ in range(2):
        again = bring(there, home)
        assert (again.problems, again.files, again.notes) == ([], 0, [])
        assert own.run_to_read(here.run_id).result() is None
        assert poll_sweep(own).statuses[here.run_id].state is RunState.PENDING
    kept = RunDir(own.path / "sources" / name_of(there) / "runs" / here.run_id)
    kept.verify(published(kept), checksums=True)
    if not begun:  # the attempt after a retry has a number of its own
        claimed = here.take(Claim.fresh("me"))
        assert claimed is not None
        assert claimed.number == 2


def test_a_run_finished_again_at_home_is_no_damage(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    own = create_sweep(home, "speed", matrix_runs(MATRIX))
    bring(there, home)
    described = matrix_runs(MATRIX)[0]
    retry_runs(own, [described.run_id])
    done_again(own, described)
    for _ in range(2):
        again = bring(there, home)
        assert (again.problems, again.notes, again.files) == ([], [], 0)
    assert own.run_to_read(described.run_id).path == own.run(described.run_id).path


def test_another_source_s_result_counts_once_the_first_is_retried(tmp_path: Path) -> None:
    one, two = cluster(tmp_path / "one"), cluster(tmp_path / "two", code_id="beef" * 4)
    home = tmp_path / "home"
    bring(one, home)
    bring(two, home)
    described = matrix_runs(MATRIX)[0]
    one.run(described.run_id).retire_result()
    bring(one, home)
    here = SweepDir(home, "speed").run_to_read(described.run_id)
    assert here.result_path.read_bytes() == two.run(described.run_id).result_path.read_bytes()
    assert collect([SweepDir(home, "speed")], checksums=True).problems == ()
    for source in (one, two):
        again = bring(source, home)
        assert (again.files, again.notes, again.problems) == (0, [], [])
    done_again(one, described)
    assert any("finished in two places" in line for line in bring(one, home).notes)


def test_an_attempt_of_home_s_own_that_failed_gives_way(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    own = create_sweep(home, "speed", matrix_runs(MATRIX))
    here = own.run(own.run_ids()[0])
    write_attempt(here.attempt(1), [])
    end_attempt(here.attempt(1), "failed", "code error", "x")
    assert bring(there, home).problems == []
    counting = own.run_to_read(here.run_id)
    counting.verify(published(counting), checksums=True)
    assert here.attempt(1).end() is not None
    assert poll_sweep(own).statuses[here.run_id].state is RunState.DONE


@pytest.mark.parametrize("folder", [False, True])
def test_a_damaged_word_about_absent_files_is_that_run_s_problem(tmp_path: Path, folder: bool) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    mark = there.run(there.run_ids()[0]).path / ".absent.json"
    if folder:
        mark.mkdir()
    else:
        mark.write_text("garbage")
    brought = bring(there, home)
    assert len(brought.complete) == (4 if folder else 3)  # a folder of that name is no mark
    assert [line for line in brought.problems if mark.parent.name in line] or folder
    ours = SweepDir(home, "speed").run(there.run_ids()[1]).path / ".absent.json"
    if folder:
        ours.mkdir()
    else:
        ours.write_text("garbage")
    (there.run(there.run_ids()[1]).path / "more").write_text("so that it is looked at")
    again = there.run(there.run_ids()[2])
    (again.path / ".absent.json").write_text("garbage")
    (SweepDir(home, "speed").run(again.run_id).attempt(1).metrics).write_bytes(b"to be repaired")
    brought = bring(there, home)
    assert any(again.run_id in line for line in brought.problems)
    assert not ours.is_file()
    assert any(ours.parent.name in line for line in brought.problems) is folder


def test_nothing_is_renamed_through_a_link(tmp_path: Path) -> None:
    there, home = cluster(tmp_path / "there"), tmp_path / "home"
    bring(there, home)
    here = SweepDir(home, "speed").run(there.run_ids()[0])
    outside = tmp_path / "outside"
    os.rename(here.path, outside)
    here.path.symlink_to(outside)
    before = {path: path.read_bytes() for path in _files(outside)}
    there.run(here.run_id).retire_result()
    brought = bring(there, home)
    assert {path: path.read_bytes() for path in _files(outside)} == before
    assert any(str(here.path) in line and "is a link" in line for line in brought.problems)

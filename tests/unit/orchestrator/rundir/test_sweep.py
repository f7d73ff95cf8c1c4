"""Folders, ledgers, journals, results: what is written once stays, what is damaged is named."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orchestrator.core.errors import DamagedFileError, NotFoundError, OrchestrateError
from orchestrator.core.records import plain
from orchestrator.core.types import Run, RunState
from orchestrator.rundir import (
    AttemptDir,
    Claim,
    End,
    Event,
    Holder,
    IndexRow,
    MetricsWriter,
    Result,
    ResumePoint,
    Row,
    RunDir,
    SweepDir,
    sweeps,
    tidy_finished,
)
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, STARTED
from orchestrator.rundir.records.ledger_entries import DamagedEntry, RetryEntry
from tests.helpers import enter, inodes, published

RUN = Run("0" * 16, "command", {"command": ["true"]})
NO_MANIFEST = f'{{"run_id": "{RUN.run_id}", "manifest": [{{"path": "x"}}]}}'
HOSTILE = [
    "a b",
    "x\ny",
    "tab\there",
    "; rm -rf /",
    "$(id)",
    "ü☃\u2028\x85",
    "../../etc",
    "z" * 300,
    '"',
    "\r",
    "",
]


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    sweep = SweepDir(results, "one")
    sweep.create()
    return sweep


@pytest.fixture
def run(sweep: SweepDir) -> RunDir:
    run = sweep.run(RUN.run_id)
    run.describe(RUN)
    return run


def event(
    kind: str, run_id: str | None = None, attempt: int | None = None, data: dict[str, object] | None = None
) -> Event:
    return Event(kind, time.time(), run_id, attempt, data or {})


def started() -> Event:
    return Event(STARTED, time.time(), data={"holder": plain(Holder.current())})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "-x", "ü", "a\n", "a" * 101, ".hidden"])
def test_hostile_names_name_no_sweep(results: Path, name: str) -> None:
    with pytest.raises(OrchestrateError, match="cannot name a sweep"):
        SweepDir(results, name)
    with pytest.raises(NotFoundError):
        SweepDir.existing(results, name)


@given(
    st.dictionaries(
        st.text() | st.sampled_from(HOSTILE), st.text() | st.sampled_from(HOSTILE) | st.integers()
    )
)
def test_the_index_holds_any_point(
    tmp_path_factory: pytest.TempPathFactory, point: dict[str, object]
) -> None:
    sweep = SweepDir(tmp_path_factory.mktemp("results"), "one")
    sweep.create()
    rows = [IndexRow("0" * 16, True, point), IndexRow("1" * 16, False, {"seed": 1})]
    sweep.write_index(rows)
    assert sweep.read_index() == rows


def test_a_damaged_index_names_its_line(sweep: SweepDir) -> None:
    sweep.write_index([IndexRow("0" * 16, True, {"seed": 0})])
    sweep.index_path.write_text(sweep.index_path.read_text() + "half a li")
    with pytest.raises(DamagedFileError, match="line 3"):
        sweep.read_index()
    for line in ("0123456789abcdef\t1\t[]", "0123456789abcdef\t1\t7", "../../etc\t1\t{}", "[" * 10_000):
        sweep.index_path.write_text(f"run_id\tin_grid\tpoint\n{line}\n")
        with pytest.raises(DamagedFileError, match="line 2 is not a run"):
            sweep.read_index()
    sweep.index_path.write_bytes(b"run_id\tin_grid\tpoint\n\xff\xfe\n")
    with pytest.raises(DamagedFileError, match="is not text"):
        sweep.read_index()


SUBMISSION = b'{"kind": "submission", "time": 1, "jobs": [], "job_ids": {}, "skipped": {}}'


@pytest.mark.parametrize(
    "spoiled",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        SUBMISSION.replace(b'"jobs": [],', b""),
        SUBMISSION.replace(b"[]", b'[{"token": "1", "run_ids": "all"}]'),
        SUBMISSION.replace(b"[]", b'[{"run_ids": []}]'),
        SUBMISSION.replace(b'"job_ids": {}', b'"job_ids": null'),
        b'{"kind": "retry"}',
        b'{"kind": "cancel", "runs": ["a"]}',
        b'{"kind": "found", "runs": {"a": {"frames": 1}}}',
        b'{"kind": "lost", "runs": {"a": "1"}}',
        b'{"kind": "ended", "runs": {"a": {"attempt": null}}}',
        b'{"kind": "retry", "runs": {}, "time": "now"}',
        b'{"kind": []}',
    ],
)
def test_a_damaged_ledger_entry_stands_for_itself(sweep: SweepDir, spoiled: bytes) -> None:
    enter(sweep, "cancel", {"runs": {}})
    enter(sweep, "retry", {"runs": {RUN.run_id: 2}})
    path = sweep.path / "ledger" / "0001.json"
    path.write_bytes(SUBMISSION)
    assert [entry.kind for entry in sweep.read_ledger()] == ["submission", "retry"]
    path.write_bytes(spoiled)
    damaged, whole = sweep.read_ledger()
    assert isinstance(damaged, DamagedEntry)
    assert damaged.number == 1
    assert str(path) in damaged.problem
    assert isinstance(whole, RetryEntry)
    assert whole.runs == {RUN.run_id: 2}


def test_a_ledger_entry_is_read_once_until_it_changes(sweep: SweepDir) -> None:
    enter(sweep, "cancel", {"runs": {}})
    enter(sweep, "retry", {"runs": {}})
    path = sweep.path / "ledger" / "0001.json"
    first, second = sweep.read_ledger()
    assert all(one is other for one, other in zip(sweep.read_ledger(), (first, second), strict=True))
    sweep.amend_ledger(dataclasses.replace(first, more={"note": "of my own"}))
    amended, unchanged = sweep.read_ledger()
    assert (amended.more, unchanged is second) == ({"note": "of my own"}, True)
    path.rename(path.with_suffix(".away"))
    path.write_bytes(b"")
    assert isinstance(sweep.read_ledger()[0], DamagedEntry)
    path.with_suffix(".away").rename(path)
    assert sweep.read_ledger()[0] is amended


@pytest.mark.parametrize(
    "line",
    [
        b"\xff",
        b"[]",
        b'{"kind": "started", "time": 1}',
        b'{"kind": "started", "time": 1, "data": {"holder": {"pid": 1}}}',
        b'{"kind": "ended", "time": 1, "run": "a", "attempt": 1}',
        b'{"kind": "ended", "time": 1, "run": "a", "attempt": 1, "data": {"outcome": "gone"}}',
        b'{"kind": "claimed", "time": "now", "run": "a", "attempt": 1}',
        b'{"kind": "claimed", "time": 1, "run": "a", "attempt": "1"}',
        b'{"kind": "progress", "time": 1, "run": "a", "attempt": 1, "data": [1]}',
    ],
)
def test_a_line_that_no_worker_writes_is_damaged(sweep: SweepDir, line: bytes) -> None:
    assert sweep.take_token("0001-0001", started()) is not None
    path = sweep.path / "journals" / "0001-0001.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    (log,) = sweep.read_journals()
    assert (log.damaged, len(log.events)) == (1, 1)
    sweep.compact_journals([log])
    assert path.exists(), "what is damaged stays for a person to look at"


def test_bad_bytes_in_the_compacted_file_are_no_traceback(sweep: SweepDir) -> None:
    (sweep.path / "journals" / "compacted.jsonl").write_bytes(b"\xff\xfe\t{}\n\t\n\n")
    assert [log.damaged for log in sweep.read_journals()] == [1]


def add_entries(path: Path, writer: int) -> None:
    sweep = SweepDir(path.parent, path.name)
    for number in range(20):
        enter(sweep, "note", {"writer": writer, "number": number})


def test_two_writers_never_share_a_ledger_number(sweep: SweepDir) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=add_entries, args=(sweep.path, writer)) for writer in range(4)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(30)
    entries = sweep.read_ledger()
    assert [entry.number for entry in entries] == list(range(1, 81))
    assert sorted((entry.more["writer"], entry.more["number"]) for entry in entries) == [
        (writer, number) for writer in range(4) for number in range(20)
    ]
    assert [entry.number for entry in sweep.read_ledger(after=78)] == [79, 80]


def test_grids_are_kept_and_not_stored_twice(sweep: SweepDir) -> None:
    assert [sweep.record_grid(text) for text in ("a: 1\n", "a: 1\n", "a: 2\n", "a: 1\n")] == [1, 1, 2, 3]
    assert sweep.latest_grid() == (3, "a: 1\n")


def test_a_token_is_taken_once_also_after_compaction(sweep: SweepDir) -> None:
    first = started()
    journal = sweep.take_token("0001-0001", first)
    assert journal is not None
    assert sweep.take_token("0001-0001", first) is None, "also in the same millisecond"
    journal.append(event(EXITED))
    assert sweep.take_token("0001-0002", started()) is not None
    sweep.compact_journals(log for log in sweep.read_journals() if log.exited)
    assert sweep.take_token("0001-0001", started()) is None


def test_compaction_keeps_what_status_needs(sweep: SweepDir) -> None:
    for token in ("0001-0001", "0001-0002", "0001-0003"):
        journal = sweep.take_token(token, started())
        assert journal is not None
        for attempt in (1, 2):
            journal.append(event(CLAIMED, RUN.run_id, attempt))
            for frames in range(50):
                journal.append(event(PROGRESS, RUN.run_id, attempt, {"frames": frames}))
            journal.append(event(ENDED, RUN.run_id, attempt, {"outcome": "done", "message": "ü\n"}))
        if token != "0001-0003":
            journal.append(event(EXITED, data={"why": "done"}))
    before = {log.token: log for log in sweep.read_journals()}
    sweep.compact_journals([log for log in before.values() if log.exited])
    after = {log.token: log for log in sweep.read_journals()}
    assert after.keys() == before.keys()
    assert after["0001-0003"] == before["0001-0003"]
    for token in ("0001-0001", "0001-0002"):
        assert after[token].exited
        assert after[token].holder == before[token].holder
        ends = [event for event in before[token].events if event.kind == ENDED]
        assert [event for event in after[token].events if event.kind == ENDED] == ends
        progress = [event.data["frames"] for event in after[token].events if event.kind == PROGRESS]
        assert progress == [49, 49]
    assert len([name for name in os.listdir(sweep.path / "journals") if name.endswith(".jsonl")]) == 2


def test_an_output_is_cleared_away_once_its_job_can_have_nothing_more_to_say(sweep: SweepDir) -> None:
    """A job whose worker left may be submitting what is left of the sweep, and tell of it."""
    for token, left in {"0001-0001": 60.0, "0001-0002": 3600.0}.items():
        at = time.time() - left
        journal = sweep.take_token(token, replace(started(), time=at))
        assert journal is not None
        journal.append(replace(event(EXITED), time=at))
        sweep.worker_output(token).touch()
    sweep.compact_journals(sweep.read_journals())
    sweep.clear_empty_outputs()
    assert [sweep.worker_output(f"0001-000{one}").exists() for one in (1, 2)] == [True, False]


def test_a_torn_line_is_closed_off_by_the_next(sweep: SweepDir) -> None:
    journal = sweep.take_token("0001-0001", started())
    assert journal is not None
    path = sweep.path / "journals" / "0001-0001.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind": "cla')
    journal._torn = True  # as after a write that the disk cut short
    journal.append(event(EXITED))
    (log,) = sweep.read_journals()
    assert (log.damaged, log.exited) == (1, True)


def test_a_line_under_way_is_shown_alike_by_every_look(sweep: SweepDir) -> None:
    assert sweep.take_token("0001-0001", started()) is not None
    path = sweep.path / "journals" / "0001-0001.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-5])
    first, second = (sweep.read_journals() for _ in range(2))
    assert first == second
    assert [(len(log.events), log.damaged) for log in second] == [(1, 1)]
    path.write_bytes(whole + whole)
    assert [(len(log.events), log.damaged) for log in sweep.read_journals()] == [(2, 0)]


def test_a_description_never_changes_once_an_attempt_began(run: RunDir) -> None:
    other = Run(RUN.run_id, "command", {"command": ["true"], "loggers": "none"})
    run.describe(other)
    assert run.description() == other
    assert run.take(Claim.fresh("a")) is not None
    run.describe(RUN)
    assert run.description() == other


def test_a_result_that_could_not_be_read_is_not_published(run: RunDir) -> None:
    assert run.take(Claim.fresh("a")) is not None
    with pytest.raises(ValueError, match=r"frames"):
        run.publish({"frames": 0.5}, [])
    assert not run.has_result()
    assert run.publish({"frames": 1, "final_return": np.float64(1.5)}, [])  # as a mean of NumPy's
    assert (result := run.result()) is not None
    assert result.final_return == 1.5


def test_a_result_is_published_once(run: RunDir) -> None:
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    attempt.metrics.write_text("x")
    attempt.log.write_text("y")
    assert run.publish({"frames": 1}, [(attempt.metrics, True), (attempt.log, False)])
    assert not run.publish({"frames": 2}, [])
    result = run.result()
    assert result is not None
    assert result.frames == 1
    run.verify(result, checksums=True)
    attempt.log.unlink()
    run.verify(result, checksums=True)  # optional
    attempt.metrics.write_text("z")
    run.verify(result)
    with pytest.raises(DamagedFileError, match="other content"):
        run.verify(result, checksums=True)
    attempt.metrics.write_text("longer")
    with pytest.raises(DamagedFileError, match="holds 6 bytes"):
        run.verify(result)
    attempt.metrics.unlink()
    with pytest.raises(DamagedFileError, match="is missing"):
        run.verify(result)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"run_id": "ffff"}', f'{{"run_id": "{"0" * 16}"}}', NO_MANIFEST]
)
def test_a_damaged_result_is_named(run: RunDir, text: str) -> None:
    run.result_path.write_text(text)
    with pytest.raises(DamagedFileError, match=r"result\.json"):
        run.result()


def test_a_retired_result_stays_readable_and_its_attempts_are_built_on_no_more(run: RunDir) -> None:
    for number in (1, 2):
        attempt = run.take(Claim.fresh("a"))
        assert attempt is not None
        attempt.checkpoints.mkdir()
        attempt.checkpoint_name(300, f"{number}" * 16).write_text("x")
        attempt.write_end(End(RunState.DONE))
        assert [file.attempt for file in run.checkpoints()] == [number]
        assert run.publish({"attempt": number}, [(attempt.checkpoint_name(300, f"{number}" * 16), True)])
        run.retire_result()
        assert run.result() is None
        assert run.checkpoints() == []
        tidy_finished(run, Result(run.run_id, ()))
        assert attempt.checkpoint_name(300, f"{number}" * 16).exists(), "the old result lost a file"
    run.retire_result()
    assert sorted(path.name for path in run.path.glob("retired-*")) == ["retired-1.json", "retired-2.json"]


def test_a_program_trained_again_finds_no_checkpoint_of_its_old_result(run: RunDir) -> None:
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    (run.work / "ckpt").mkdir(parents=True)
    (run.work / "ckpt" / "last.pt").write_text("old")
    run.retire_result()
    assert (run.work / "ckpt" / "last.pt").exists(), "a failed run continues from it"
    attempt.write_end(End(RunState.DONE))
    assert run.publish({"attempt": 1}, [])
    run.retire_result()
    assert not run.work.exists()
    assert (attempt.work / "ckpt" / "last.pt").read_text() == "old"


def extended(run: RunDir, point: ResumePoint | None, *frames: int) -> AttemptDir:
    """The next attempt, ended after these frames and a checkpoint of the last."""
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    writer = MetricsWriter(attempt.metrics, point)
    for count in frames:
        writer.append(Row(count, count, float(count), {"by": attempt.number}))
    writer.close()
    attempt.checkpoints.mkdir()
    attempt.checkpoint_name(frames[-1], "a" * 16).write_text("x")
    attempt.write_end(End(RunState.INTERRUPTED))
    return attempt


def test_a_history_is_read_from_the_attempts_it_is_made_of(run: RunDir) -> None:
    first = extended(run, None, 1, 2, 3)
    extended(run, ResumePoint(1, 3), 4).metrics.write_text("garbage\n")
    extended(run, ResumePoint(1, 2), 3, 4)
    assert [row.metrics["by"] for row in run.history()] == [1, 1, 3, 3]
    assert [piece.attempt for piece in run.chain()] == [1, 3]
    with pytest.raises(DamagedFileError, match="line 1"):
        run.history(last=2)
    first.metrics.unlink()
    with pytest.raises(DamagedFileError, match="is missing, though"):
        run.history()


def test_begun_anew_nothing_of_the_earlier_attempts_is_used(run: RunDir) -> None:
    run.begin_anew()
    assert run.retired == 0
    spoiled = extended(run, None, 1, 2)
    spoiled.metrics.write_text("garbage\ngarbage\n")
    for _ in range(2):
        run.begin_anew("metrics damaged")
        assert (run.history(), run.checkpoints(), run.retired) == ([], [], 1)
    assert extended(run, None, 1).number == 2
    assert [row.frames for row in run.history()] == [1]
    assert [file.attempt for file in run.checkpoints()] == [2]
    assert spoiled.metrics.exists()


def test_checkpoints_come_most_advanced_first_and_by_whole_names_only(run: RunDir) -> None:
    for number, frames in ((1, (100, 300)), (2, (200, 300))):
        attempt = run.take(Claim.fresh("a"))
        assert attempt is not None
        attempt.checkpoints.mkdir()
        for count in frames:
            attempt.checkpoint_name(count, f"{number}" * 16).write_text("x")
        (attempt.checkpoints / f".{400:012d}-{'a' * 16}.pt.0123.tmp").write_text("half")
        (attempt.checkpoints / "999.pt").write_text("foreign")
        attempt.write_end(End(RunState.INTERRUPTED))
    found = [(file.frames, file.attempt) for file in run.checkpoints()]
    assert found == [(300, 2), (300, 1), (200, 2), (100, 1)]
    assert [file.attempt for file in run.checkpoints(below=2)] == [1, 1]


def test_tidying_spares_the_manifest_and_the_records_and_can_be_repeated(run: RunDir, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    kept = []
    for _ in range(2):
        attempt = run.take(Claim.fresh("a"))
        assert attempt is not None
        for folder in (attempt.checkpoints, attempt.scratch / "deep", attempt.wandb / "offline-run"):
            folder.mkdir(parents=True)
            for name in ("1", "2"):
                (folder / name).write_text(name)
        attempt.scratch.joinpath("link").symlink_to(outside)
        attempt.metrics.write_text("m")
        attempt.log.write_text("l")
        (attempt.path / "events.out.tfevents.1").touch()
        attempt.write_end(End(RunState.INTERRUPTED))
        kept += [attempt.claim_path, attempt.end_path, attempt.log, attempt.metrics]
    final = attempt.checkpoints / "2"
    assert run.publish({}, [(final, True), (attempt.metrics, True)])
    for _ in range(2):
        tidy_finished(run, published(run))
        files = {path for path in run.path.rglob("*") if path.is_file()}
        assert files == {*kept, final, run.result_path, run.description_path}
    assert (outside / "precious").exists()
    assert inodes(run.path) == 3 + 1 + 2 * 5 + 2


def test_sweeps_are_found_by_their_grids(results: Path) -> None:
    for name in ("b", "a"):
        sweep = SweepDir(results, name)
        sweep.create()
    (results / "other").mkdir()
    assert [sweep.name for sweep in sweeps(results)] == ["a", "b"]
    with pytest.raises(NotFoundError, match=r"found: a, b"):
        SweepDir.existing(results, "c")

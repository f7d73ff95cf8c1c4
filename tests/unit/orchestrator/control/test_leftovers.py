"""Files that a killed writer left, and outputs that stayed empty: gone, and never a live writer's."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.control.follow import rest
from orchestrator.control.poll import compact, poll_sweep
from orchestrator.core.records import plain
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import (
    Claim,
    End,
    Event,
    Holder,
    RunDir,
    SweepDir,
    WorkerLog,
    cleanup,
    tidy_finished,
)
from orchestrator.rundir.files.atomic import temporary_name
from orchestrator.rundir.records.journal import CLAIMED, EXITED, STARTED, read_event
from orchestrator.status import disk_check
from tests.helpers import count_runs, make_sweep, work

HOUR_AGO = 3700


@pytest.fixture
def finished(results: Path, tmp_path: Path) -> RunDir:
    """A run that was claimed first by a machine whose clock is days ahead, and then trained here."""
    runs = count_runs(tmp_path / "audit", 1, steps=2, seconds=0)
    sweep = make_sweep(results, runs)
    run = sweep.run(runs[0].run_id)
    ahead = replace(Claim.fresh("0000-0001"), created=time.time() + 1e6)
    attempt = run.take(ahead)
    assert attempt is not None
    attempt.write_end(End(RunState.INTERRUPTED, Reason.STOPPED))
    assert work(sweep) == 0
    return run


def old(path: Path) -> Path:
    at = time.time() - HOUR_AGO
    os.utime(path, (at, at))
    return path


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob(".*.tmp")}


def test_beside_a_published_result_only_a_live_writers_file_stays(finished: RunDir) -> None:
    result = finished.result()
    assert result is not None
    linked, fresh, stale = (temporary_name(finished.result_path) for _ in range(3))
    os.link(finished.result_path, linked)  # its writer was killed before it could remove it
    fresh.write_text("{")
    stale.write_text("{")
    old(stale)
    tidy_finished(finished, result)
    assert left(finished.path) == {fresh.name}
    assert finished.result() == result


def test_a_result_never_ends_before_it_started(finished: RunDir) -> None:
    result = finished.result()
    assert result is not None
    assert result.attempts == 2
    assert result.started > time.time()
    assert result.ended >= result.started
    assert 0 < result.seconds < 100


def test_a_sweep_is_cleared_of_what_killed_writers_left(results: Path, tmp_path: Path) -> None:
    sweep = make_sweep(results, count_runs(tmp_path / "audit", 1, steps=2, seconds=0))
    folders = ("", "grids", "ledger", "journals", "descriptions")
    fresh = {temporary_name(results / "tiny" / folder / "0001.x") for folder in folders}
    stale = {temporary_name(results / "tiny" / folder / "0001.y") for folder in folders}
    for path in fresh | stale:
        path.write_text("")
    for path in stale:
        old(path)
    compact(sweep, poll_sweep(sweep))
    assert left(results) == {path.name for path in fresh}


def test_empty_outputs_go_with_the_journals_of_workers_that_are_gone(results: Path, tmp_path: Path) -> None:
    sweep = make_sweep(results, count_runs(tmp_path / "audit", 1, steps=2, seconds=0))
    here = Holder.current()
    for token, holder in (("0001-0001", here), ("0001-0002", replace(here, pid=1, started=1))):
        assert sweep.take_token(token, Event(STARTED, 1.0, data={"holder": plain(holder)})) is not None
        sweep.worker_output(token).touch()
    spoken = sweep.take_token("0001-0003", Event(STARTED, 1.0, data={"holder": plain(here)}))
    assert spoken is not None
    spoken.append(Event(EXITED, 2.0))
    sweep.worker_output("0001-0003").write_text("said")
    compact(sweep, poll_sweep(sweep))
    there = sorted(path.name for path in (results / "tiny" / "journals").glob("*.log"))
    assert there == ["0001-0001.log", "0001-0003.log"]


@pytest.mark.parametrize("jump", [-5000.0, 5000.0])
def test_durations_do_not_follow_a_clock_that_jumps(jump: float) -> None:
    events = (
        Event(STARTED, 100.0, data={"holder": {}}, up=10.0),
        Event(EXITED, 130.0 + jump, up=40.0),
        Event(STARTED, 200.0 + jump, data={"holder": {}}, up=5.0),
        Event("progress", 220.0, up=25.0),
    )
    log = WorkerLog("0001-0001", events)
    assert log.worked() == 50.0
    assert log.worked(until=230.0) == 60.0
    assert read_event(events[1].to_line()) == events[1]


def test_a_result_stands_where_what_is_left_beside_it_cannot_go(
    finished: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = SweepDir(finished.path.parents[2], finished.path.parents[1].name)
    for path in (sweep.path / "journals").iterdir():  # nobody tells of the result any more
        path.unlink()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "somebody else's")

    monkeypatch.setattr(cleanup, "_dispensable", refuse)
    seen = poll_sweep(sweep)
    assert seen.statuses[finished.run_id].state is not RunState.DONE
    disk_check.put_on_record(seen, disk_check.inspect(sweep, seen.statuses), sweep)
    assert poll_sweep(sweep).statuses[finished.run_id].state is RunState.DONE


def test_a_worker_that_left_for_the_queue_cuts_no_rest_short(results: Path, tmp_path: Path) -> None:
    runs = count_runs(tmp_path / "audit", 1, steps=2, seconds=0)
    sweep = make_sweep(results, runs)
    token = "0001-0001"
    journal = sweep.take_token(token, Event(STARTED, 1.0, data={"holder": plain(Holder.current())}))
    assert journal is not None
    journal.append(Event(CLAIMED, 2.0, runs[0].run_id, 1))
    at_work = replace(poll_sweep(sweep), live=frozenset({token}))

    def rested() -> float:
        began = time.monotonic()
        rest(sweep, 0.03, at_work)
        return time.monotonic() - began

    journal.append(Event(EXITED, 3.0, data={"again": True}))
    assert rested() > 1.1

"""What a command finds on disk and enters in the ledger, where journals and folders disagree."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from orchestrator.control.poll import poll_sweep
from orchestrator.core.records import plain
from orchestrator.core.types import RunState
from orchestrator.rundir import Claim, End, Event, Holder, RunDir, SweepDir
from orchestrator.rundir.records.journal import CLAIMED, ENDED, STARTED, Journal
from orchestrator.status import disk_check
from tests.helpers import count_runs, enter, make_sweep


@pytest.fixture
def sweep(results: Path, tmp_path: Path) -> SweepDir:
    return make_sweep(results, count_runs(tmp_path / "audit", 1))


@pytest.fixture
def run(sweep: SweepDir) -> RunDir:
    return sweep.run(sweep.run_ids()[0])


@pytest.fixture
def journal(sweep: SweepDir) -> Journal:
    started = Event(STARTED, 1.0, data={"holder": plain(Holder.current())})
    journal = sweep.take_token("0001-0001", started)
    assert journal is not None
    return journal


def claim(run: RunDir, journal: Journal, outcome: str | None = None) -> None:
    attempt = run.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    journal.append(Event(CLAIMED, time.time(), run.run_id, attempt.number))
    if outcome is not None:
        attempt.write_end(End(RunState(outcome)))
        journal.append(Event(ENDED, time.time(), run.run_id, attempt.number, {"outcome": outcome}))


def claim_and_publish(run: RunDir) -> None:
    """As a worker that was killed before it wrote to its journal."""
    attempt = run.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    assert run.publish({"attempt": attempt.number, "frames": 9}, [])
    attempt.write_end(End(RunState.DONE))


def looked_at(sweep: SweepDir) -> RunState:
    """The run's state after a command looked at the disk."""
    seen = poll_sweep(sweep)
    disk_check.put_on_record(seen, disk_check.inspect(sweep, seen.statuses), sweep)
    return next(iter(poll_sweep(sweep).statuses.values())).state


def test_a_run_at_work_stays_so_when_the_result_of_a_copy_is_lost(
    sweep: SweepDir, run: RunDir, journal: Journal
) -> None:
    """The copy's attempts have numbers of their own."""
    claim(run, journal, "interrupted")
    enter(sweep, "found", {"runs": {run.run_id: {"attempt": 3}}})
    assert looked_at(sweep) is RunState.INTERRUPTED
    claim(run, journal)
    assert looked_at(sweep) is RunState.RUNNING


def test_the_result_of_a_copy_is_lost_while_the_run_is_at_work(
    sweep: SweepDir, run: RunDir, journal: Journal
) -> None:
    claim(run, journal)
    enter(sweep, "found", {"runs": {run.run_id: {"attempt": 3}}})
    assert looked_at(sweep) is RunState.RUNNING


@pytest.mark.parametrize("folder", ["kept", "gone"])
def test_a_lost_result_of_this_tree_is_trained_again(
    sweep: SweepDir, run: RunDir, journal: Journal, folder: str
) -> None:
    claim(run, journal, "done")
    assert poll_sweep(sweep).statuses[run.run_id].state is RunState.DONE
    if folder == "gone":
        shutil.rmtree(run.path)
    assert looked_at(sweep) is RunState.PENDING


def test_a_result_found_on_disk_is_on_record_once(sweep: SweepDir, run: RunDir) -> None:
    claim_and_publish(run)
    assert looked_at(sweep) is RunState.DONE
    assert looked_at(sweep) is RunState.DONE
    assert [entry.kind for entry in sweep.read_ledger()] == ["found"]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_damaged_result_is_neither_lost_nor_found(sweep: SweepDir, run: RunDir, cancelled: bool) -> None:
    claim_and_publish(run)
    assert looked_at(sweep) is RunState.DONE
    run.result_path.write_text("half a li")
    if cancelled:
        enter(sweep, "cancel", {"runs": {run.run_id: 1}})
    before = len(sweep.read_ledger())
    looked_at(sweep)
    assert len(sweep.read_ledger()) == before


def test_an_attempt_whose_result_went_before_any_journal_had_it_is_not_done(
    sweep: SweepDir, run: RunDir
) -> None:
    attempt = run.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    attempt.write_end(End(RunState.DONE))
    assert looked_at(sweep) is RunState.PENDING
    (entry,) = sweep.read_ledger()
    assert entry.kind == "lost"
    assert looked_at(sweep) is RunState.PENDING
    assert len(sweep.read_ledger()) == 1

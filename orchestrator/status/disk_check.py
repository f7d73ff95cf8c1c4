"""Correct the states from journals by the files on disk: a worker can die between an act and its record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.machine.bulk_read import read_all
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import End, RunDir, SweepDir, tidy_finished
from orchestrator.rundir.records.ledger_entries import (
    EndedEntry,
    FailedAttempt,
    FoundEntry,
    FoundResult,
    LostEntry,
)
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.records.run_state import Decided, Ends, decisions_in
from orchestrator.status.survey import RunStatus, Survey, failed_by


@dataclass(frozen=True)
class RunEvidence:
    """The content of a run's folder: a complete result, damage, or the newest attempt's end record."""

    result: Result | None = None
    damage: str | None = None
    attempt: int = 0
    end: End | None = None

    @property
    def outcome(self) -> RunState | None:
        """The newest attempt's outcome, if its end is on record."""
        return None if self.end is None else self.end.outcome

    @property
    def ends(self) -> Ends:
        """The newest attempt's outcome by its number."""
        return {self.attempt: self.outcome} if self.attempt else {}

    @property
    def ended(self) -> int:
        """The newest attempt with an end on record, if not an earlier one; a copy's attempts do not count."""
        return self.attempt if self.end is not None else max(0, self.attempt - 1)


def inspect(sweep_dir: SweepDir, run_ids: Iterable[str]) -> dict[str, RunEvidence]:
    """Check every run's result and its required files, by name and size."""

    def look(run_id: str) -> RunEvidence:
        run = sweep_dir.run(run_id)
        try:
            result = (counting := sweep_dir.run_to_read(run_id)).result()
            if result is not None:
                counting.verify(result)
                return RunEvidence(result)
            attempts = run.attempts()
            if not attempts:
                return RunEvidence()
            evidence = RunEvidence(attempt=attempts[-1].number, end=attempts[-1].end())
            if evidence.outcome is RunState.DONE and run.has_result():
                return look(run_id)  # it was published a moment ago
            return evidence
        except (DamagedFileError, OSError) as error:
            return RunEvidence(damage=str(error))

    wanted = list(run_ids)
    folders = sweep_dir.run_folders()
    there = [run_id for run_id in wanted if run_id in folders]
    found = dict(zip(there, read_all(look, there, "looking at runs"), strict=True))
    return {run_id: found.get(run_id) or RunEvidence() for run_id in wanted}


def correct(seen: Survey, found: Mapping[str, RunEvidence], sweep_dir: SweepDir) -> Survey:
    """Return the survey corrected by the files on disk."""
    statuses = dict(seen.statuses)
    for run_id, evidence in found.items():
        statuses[run_id] = _corrected(statuses[run_id], evidence, sweep_dir)
    return replace(seen, statuses=statuses)


def _unrecorded_failure(status: RunStatus, evidence: RunEvidence) -> bool:
    """Return whether an unfinished run has failed: its worker died before it could record that."""
    waiting = status.state in (RunState.PENDING, RunState.INTERRUPTED)
    failed = evidence.outcome is RunState.FAILED
    return waiting and failed and evidence.attempt > status.forgiven


def _corrected(status: RunStatus, evidence: RunEvidence, sweep_dir: SweepDir) -> RunStatus:
    if evidence.damage is not None:
        return replace(status, state=RunState.FAILED, reason=Reason.DAMAGED, message=evidence.damage)
    if evidence.result is not None:
        return status if status.state is RunState.CANCELLED else replace(status, state=RunState.DONE)
    if status.state is RunState.DONE:
        return replace(status, state=RunState.PENDING)
    if _unrecorded_failure(status, evidence):
        return failed_by(status, _ledger_record(evidence))
    if status.state is RunState.UNKNOWN and proved_ended(sweep_dir.run(status.run_id)):
        return replace(status, state=RunState.INTERRUPTED)
    return status


def proved_ended(run: RunDir) -> bool:
    """Return whether the claim of an unreachable worker has expired."""
    try:
        return run.blocked_by() is None
    except DamagedFileError:
        return True  # the next worker to claim it reports the damage


def put_on_record(seen: Survey, found: Mapping[str, RunEvidence], sweep_dir: SweepDir) -> None:
    """Enter in the ledger what journals lack: results, failures, and lost results."""
    there, gone, failed = {}, {}, {}
    decisions = decisions_in(sweep_dir.read_ledger())
    for run_id, evidence in found.items():
        status, decided = seen.statuses[run_id], decisions.of(run_id)
        if evidence.result is not None and status.state not in (RunState.DONE, RunState.CANCELLED):
            there[run_id] = FoundResult.of(evidence.result)
        elif (lost := _without_its_result(status, decided, evidence)) is not None:
            gone[run_id] = lost
        elif _unrecorded_failure(status, evidence):
            failed[run_id] = _ledger_record(evidence)
    for entry in (FoundEntry(runs=there), LostEntry(runs=gone), EndedEntry(runs=failed)):
        if entry.runs:
            sweep_dir.add_to_ledger(entry)
    for run_id in there:
        run, result = sweep_dir.run(run_id), found[run_id].result
        if result is not None and run.has_result() and proved_ended(run):
            tidy_finished(run, result)  # its process may have died before this


def _without_its_result(status: RunStatus, decided: Decided, evidence: RunEvidence) -> int | None:
    """Return the newest attempt that finished here and has no result, if the run is done only by records."""
    if evidence.result is not None or evidence.damage is not None or status.state is RunState.CANCELLED:
        return None
    if status.state is not RunState.DONE:
        return decided.finished(evidence.ends)
    return status.attempt if decided.found is None else min(status.attempt, evidence.ended)


def _ledger_record(evidence: RunEvidence) -> FailedAttempt:
    """Return an end record in the ledger's form."""
    end = evidence.end
    assert end is not None, "of a failure"
    return FailedAttempt(evidence.attempt, end.reason, end.message or None, end.frames)

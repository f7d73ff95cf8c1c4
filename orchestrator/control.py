"""The pipeline of a sweep, top to bottom: record, survey, plan, submit; then what a person decides later."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.backends.base import Backend
from orchestrator.errors import DamagedFileError, OrchestrateError
from orchestrator.evidence import correct, inspect, put_on_record
from orchestrator.plan import Capacity, make_plan
from orchestrator.render import worker_argv
from orchestrator.rundir import (
    Event,
    Holder,
    IndexRow,
    LedgerEntry,
    RunDir,
    SweepDir,
    WorkerLog,
    lease_seconds,
)
from orchestrator.rundir.journal import REVOKED
from orchestrator.state import Survey, mark_stale, survey
from orchestrator.trainers import TrainerSpec, code_id, get_trainer, is_installed
from orchestrator.types import Plan, Run, RunState, Sweep

# A worker process takes its token within a second; a submission this old without one never started.
_START_GRACE_S = 60.0


@dataclass(frozen=True)
class Submitted:
    """What a call of `sweep` did: the plan, and the jobs that were already at work."""

    plan: Plan
    adopted: frozenset[str]


def look(
    sweep_dir: SweepDir, backend: Backend | None = None, rows: Sequence[IndexRow] | None = None
) -> Survey:
    """The sweep's present state, from index, ledger and journals alone.

    ``backend`` is asked about jobs that were submitted and have not begun: they may have died on the way.
    ``rows`` stand in for the index.
    """
    ledger, logs = sweep_dir.read_ledger(), sweep_dir.read_journals()
    return survey(
        sweep_dir.read_index() if rows is None else rows,
        ledger,
        logs,
        alive=Holder.alive,
        now=time.time(),
        lease=lease_seconds(),
        gone=_ended_before_they_began(ledger, logs, backend) if backend else frozenset(),
    )


def _ended_before_they_began(
    ledger: Iterable[LedgerEntry], logs: Iterable[WorkerLog], backend: Backend
) -> frozenset[str]:
    begun = {log.token for log in logs}
    waiting = {job_id: token for token, job_id in _job_ids(ledger).items() if token not in begun}
    answers = backend.poll(list(waiting)) if waiting else {}
    return frozenset(waiting[job_id] for job_id, answer in answers.items() if answer.state.final)


def record(sweep: Sweep, sweep_dir: SweepDir) -> int:
    """Keep the grid and list its runs; the grid's number. Runs of earlier grids stay, outside the grid."""
    sweep_dir.create()
    number = sweep_dir.record_grid(sweep.grid_text)
    rows = rows_of(sweep, sweep_dir)
    if rows != _known_rows(sweep_dir):
        sweep_dir.write_index(rows)
    return number


def rows_of(sweep: Sweep, sweep_dir: SweepDir) -> list[IndexRow]:
    """The index as it is once this sweep is recorded: its own runs in the grid, all others outside."""
    current = {run.run_id for run in sweep.runs}
    rows = [IndexRow(run.run_id, True, run.point) for run in sweep.runs]
    known = _known_rows(sweep_dir)
    return rows + [IndexRow(row.run_id, False, row.point) for row in known if row.run_id not in current]


def _known_rows(sweep_dir: SweepDir) -> list[IndexRow]:
    """The index. A damaged one is no reason to stop: the sweep's own grid and the run folders rebuild it."""
    try:
        return sweep_dir.read_index()
    except DamagedFileError:
        runs = (_description(sweep_dir.run(run_id)) for run_id in sweep_dir.run_ids())
        return [IndexRow(run.run_id, False, run.point) for run in runs if run is not None]


def _description(run: RunDir) -> Run | None:
    try:
        return run.description()
    except (DamagedFileError, FileNotFoundError):
        return None


@dataclass(frozen=True)
class Prospect:
    """What would be submitted, and what it rests on; ``on_record``: journals and ledger tell the same."""

    plan: Plan
    seen: Survey
    on_record: bool


def plan_sweep(
    sweep: Sweep, sweep_dir: SweepDir, capacity: Capacity, *, slots: int | None = None
) -> Prospect:
    """What would be submitted now. Writes nothing."""
    told = look(sweep_dir, rows=rows_of(sweep, sweep_dir))
    seen = correct(told, inspect(sweep_dir, told.statuses), sweep_dir)
    on_record = seen.statuses == told.statuses
    return Prospect(_plan(sweep, sweep_dir, seen, capacity, slots), seen, on_record)


def _plan(sweep: Sweep, sweep_dir: SweepDir, seen: Survey, capacity: Capacity, slots: int | None) -> Plan:
    ledger = sweep_dir.read_ledger()
    submission = ledger[-1].number + 1 if ledger else 1
    return make_plan(sweep, seen, capacity, submission=submission, slots=slots)


def is_settled(sweep: Sweep, sweep_dir: SweepDir, prospect: Prospect) -> bool:
    """Whether submitting would change nothing: all is over, and on record as it is in the grid."""
    plan, latest = prospect.plan, sweep_dir.latest_grid()
    return (
        prospect.on_record
        and all(state.final for state in plan.states.values())
        and not plan.jobs
        and not _new_skips(plan, prospect.seen)
        and latest is not None
        and latest[1] == sweep.grid_text
        and list(prospect.seen.rows) == _known_rows(sweep_dir)
    )


def submit_sweep(
    sweep: Sweep,
    sweep_dir: SweepDir,
    backend: Backend,
    capacity: Capacity,
    *,
    slots: int | None = None,
    define: bool = True,
) -> Submitted:
    """Submit just what is missing and not already some live job's.

    With ``define`` the grid becomes the sweep's latest; without, as when a lost worker is replaced, another
    that somebody submitted meanwhile stays so.

    The order keeps every moment safe to die in: ledger entry, submission, its id in the ledger. A job that
    was submitted but not recorded is found by its token.
    """
    sweep_dir.create()
    with sweep_dir.lock():
        latest = sweep_dir.latest_grid()
        grid = record(sweep, sweep_dir) if define or latest is None else latest[0]
        _give_up_lost_jobs(sweep_dir, backend)
        _compact(sweep_dir)
        seen = look(sweep_dir, rows=rows_of(sweep, sweep_dir))
        found = inspect(sweep_dir, seen.statuses)
        put_on_record(seen, found, sweep_dir)
        plan = _plan(sweep, sweep_dir, correct(seen, found, sweep_dir), capacity, slots)
        plan = _describe_runs(plan, sweep_dir)
        if plan.jobs or _new_skips(plan, seen):
            _submit(plan, sweep_dir, backend, grid)
    return Submitted(plan, seen.live)


def _describe_runs(plan: Plan, sweep_dir: SweepDir) -> Plan:
    """Write the run descriptions. A run whose folder takes none is left out, and the others go on."""
    runs = {run.run_id: run for run in plan.sweep.runs}
    problems = {}
    for run_id in plan.run_ids:
        try:
            sweep_dir.run(run_id).describe(runs[run_id])
        except (DamagedFileError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            problems[run_id] = str(error)
    if not problems:
        return plan
    jobs = []
    for job in plan.jobs:
        if kept := tuple(run_id for run_id in job.run_ids if run_id not in problems):
            jobs.append(replace(job, run_ids=kept))
    return replace(plan, jobs=tuple(jobs), problems={**plan.problems, **problems})


def _submit(plan: Plan, sweep_dir: SweepDir, backend: Backend, grid: int) -> None:
    argv = {job.token: worker_argv(sweep_dir.results, job) for job in plan.jobs}
    job_ids: dict[str, str] = {}
    entry = {
        "time": time.time(),
        "grid": grid,
        "target": plan.target,
        "trainer": plan.sweep.trainer,
        "cwd": os.getcwd(),
        "argv": argv,
        "jobs": [job.to_json() for job in plan.jobs],
        "job_ids": job_ids,
        "skipped": dict(plan.skipped),
    }
    number = sweep_dir.add_to_ledger("submission", entry)
    for job in plan.jobs:
        job_ids[job.token] = backend.submit(job, argv[job.token], sweep_dir.worker_output(job.token))
        sweep_dir.amend_ledger(number, "submission", entry)


def stop_workers(sweep_dir: SweepDir, backend: Backend) -> list[str]:
    """Ask the sweep's live jobs to save and leave; their tokens.

    A job whose id was never recorded, its command line having died, is asked by the process in its journal.
    """
    live = look(sweep_dir).live
    ids = _job_ids(sweep_dir.read_ledger())
    backend.cancel([ids[token] for token in sorted(live) if token in ids])
    for log in sweep_dir.read_journals():
        if log.token in live and log.token not in ids and log.holder is not None:
            log.holder.signal(signal.SIGTERM)
    return sorted(live)


def cancel_runs(sweep_dir: SweepDir, run_ids: Iterable[str]) -> list[str]:
    """Take runs out of the sweep until somebody retries them; those it concerned."""
    with sweep_dir.lock():
        statuses = look(sweep_dir).statuses
        concerned = [run_id for run_id in run_ids if not statuses[run_id].state.final]
        if concerned:
            runs = {run_id: _last_attempt(sweep_dir, run_id) for run_id in concerned}
            sweep_dir.add_to_ledger("cancel", {"time": time.time(), "runs": runs})
    return concerned


def retry_runs(sweep_dir: SweepDir, run_ids: Sequence[str]) -> list[str]:
    """Make finished, failed, stale, skipped or cancelled runs pending again; those it concerned.

    The old result of a run stays in its folder under another name.
    """
    with sweep_dir.lock():
        seen = look(sweep_dir)
        statuses = correct(seen, inspect(sweep_dir, run_ids), sweep_dir).statuses
        concerned = [run_id for run_id in run_ids if statuses[run_id].state.final]
        if concerned:
            runs = {run_id: _last_attempt(sweep_dir, run_id) for run_id in concerned}
            # In this order: a run without its result is to be done, whatever the ledger says.
            for run_id in concerned:
                run = sweep_dir.run(run_id)
                run.retire_result()
                # Failed, and not for a reason of the run's: something it builds on is damaged.
                if statuses[run_id].state is RunState.FAILED and statuses[run_id].reason is None:
                    run.begin_anew()
            sweep_dir.add_to_ledger("retry", {"time": time.time(), "runs": runs})
    return concerned


def present(sweep_dir: SweepDir, backend: Backend | None = None) -> Survey:
    """The sweep's state for people: as :func:`look`, with what other code than today's trained as stale."""
    return with_stale(look(sweep_dir, backend), sweep_dir)


def with_stale(seen: Survey, sweep_dir: SweepDir) -> Survey:
    """The survey with runs that other code than today's trained as stale.

    Without the trainer's packages, as on a laptop that only looks, there is no code of today.
    """
    spec = _trainer_of(sweep_dir)
    return mark_stale(seen, code_id(spec)) if spec and is_installed(spec) else seen


def _trainer_of(sweep_dir: SweepDir) -> TrainerSpec | None:
    for entry in reversed(sweep_dir.read_ledger()):
        if entry.kind == "submission":
            try:
                return get_trainer(entry.data["trainer"])
            except OrchestrateError:
                return None
    return None


def _give_up_lost_jobs(sweep_dir: SweepDir, backend: Backend) -> None:
    """Use up the tokens of jobs that were recorded and never began, so that they never will."""
    ledger, logs = sweep_dir.read_ledger(), sweep_dir.read_journals()
    taken, gone = {log.token for log in logs}, _ended_before_they_began(ledger, logs, backend)
    for entry in ledger:
        if entry.kind != "submission":
            continue
        for job in entry.data["jobs"]:
            token = job["token"]
            recorded = token in entry.data["job_ids"]
            if token not in taken and not (recorded and token not in gone and _young(entry.data["time"])):
                sweep_dir.take_token(token, Event(REVOKED, time.time()))


def _young(moment: float) -> bool:
    return 0 <= time.time() - moment < _START_GRACE_S


def _new_skips(plan: Plan, seen: Survey) -> bool:
    """Whether the ledger does not say yet what the plan skips, and why."""
    return any(
        (seen.statuses[run_id].state, seen.statuses[run_id].reason) != (RunState.SKIPPED, why)
        for run_id, why in plan.skipped.items()
    )


def _compact(sweep_dir: SweepDir) -> None:
    ended = [log for log in sweep_dir.read_journals() if _gone(log)]
    sweep_dir.compact_journals(ended)


def _gone(log: WorkerLog) -> bool:
    holder = log.holder
    return holder is None or holder.alive() is False


def _job_ids(ledger: Iterable[LedgerEntry]) -> dict[str, str]:
    ids: dict[str, str] = {}
    for entry in ledger:
        if entry.kind == "submission":
            ids |= entry.data["job_ids"]
    return ids


def _last_attempt(sweep_dir: SweepDir, run_id: str) -> int:
    attempts = sweep_dir.run(run_id).attempts()
    return attempts[-1].number if attempts else 0

"""The pipeline of a sweep, top to bottom: record, survey, plan, submit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from orchestrator.backends.base import Backend
from orchestrator.backends.registry import list_price
from orchestrator.config.code.snapshot import freeze
from orchestrator.config.sweep import load_sweep
from orchestrator.control.last_submission import submitted_code
from orchestrator.control.poll import (
    close_attempts,
    compact,
    leave_queue,
    poll_sweep,
    settle_submissions,
)
from orchestrator.control.reuse.adopted import Adoptions
from orchestrator.control.reuse.origins import await_trunks
from orchestrator.control.reuse.reuse import NOTHING, Reuse, find_reuse
from orchestrator.control.staleness import with_stale
from orchestrator.control.submission import Submission, scripts_of, without
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import (
    Capacity,
    Plan,
    Run,
    RunState,
    Sweep,
    TargetAssignment,
    number_of,
)
from orchestrator.planning.auto_retry import second_chances
from orchestrator.planning.budget import BudgetedPlan, reckon
from orchestrator.planning.estimate import where_at
from orchestrator.planning.plan import AS_USUAL, ReuseOption, SubmitOptions, make_plan
from orchestrator.rundir import FrozenCode, IndexRow, LedgerEntry, RunDir, SweepDir
from orchestrator.rundir.copies.synced import require_own
from orchestrator.rundir.records.ledger_entries import (
    AttemptsEntry,
    DamagedEntry,
    RetryEntry,
    SubmissionEntry,
    jobs_of,
)
from orchestrator.status.disk_check import RunEvidence, correct, inspect, put_on_record
from orchestrator.status.ledger import submitted_plugins
from orchestrator.status.ownership import share
from orchestrator.status.survey import RunStatus, Survey, retried


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
    rows = [IndexRow(run_id, True, point) for run_id, point in sweep.points.items()]
    known = _known_rows(sweep_dir)
    return rows + [IndexRow(row.run_id, False, row.point) for row in known if row.run_id not in sweep.points]


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
class SweepState:
    """What a plan rests on.

    ``told``: the states by journals and backends; ``found``: what run folders hold; ``seen``: the states by
    both. ``chances``: failed runs to train again, if that is decided for several targets at once.
    ``reuse``: what runs need not train; ``seen`` has it in place.
    """

    sweep: Sweep
    sweep_dir: SweepDir
    told: Survey
    found: Mapping[str, RunEvidence]
    seen: Survey
    chances: Sequence[AttemptsEntry] | None = None
    reuse: Reuse = NOTHING

    def with_chances(self, chances: Sequence[AttemptsEntry]) -> SweepState:
        """Return the state in which these failed runs are trained again."""
        return replace(self, seen=retried(self.seen, chances), chances=chances)

    def after(self, plan: Plan, ledger: Sequence[LedgerEntry] | None = None) -> SweepState:
        """Return the state once the plan is submitted, with the ``ledger`` of then.

        Without a ledger, as in a dry run, an entry with the jobs stands in for the submission's.
        """
        tokens = {run_id: job.token for job in plan.jobs for run_id in job.run_ids}
        queued = {
            run_id: replace(self.seen.statuses[run_id], state=RunState.QUEUED, token=token, reason=None)
            for run_id, token in tokens.items()
        }
        new, before = [job.token for job in plan.jobs], self.seen.ledger
        entry = SubmissionEntry(number=before[-1].number + 1 if before else 1, jobs=plan.jobs)
        seen = replace(
            self.seen,
            statuses={**self.seen.statuses, **queued},
            live=self.seen.live.union(new),
            targets={**self.seen.targets, **dict.fromkeys(new, plan.target)},
            ledger=(*before, entry) if ledger is None else ledger,
        )
        reuse = replace(self.reuse, adoptions=Adoptions())  # they are in place
        return replace(self, told=seen, found={}, seen=seen, chances=(), reuse=reuse)


def inspect_sweep(
    sweep: Sweep, sweep_dir: SweepDir, reuse: ReuseOption | None = None, code: FrozenCode | None = None
) -> SweepState:
    """Read the state of the sweep's runs, and find what they need not train. Writes nothing.

    ``code`` as for :func:`submit_checked`.
    """
    require_own(sweep_dir)
    told = poll_sweep(sweep_dir, rows_of(sweep, sweep_dir))
    found = inspect(sweep_dir, told.statuses)
    seen = correct(told, found, sweep_dir)
    reusable = find_reuse(sweep, sweep_dir, seen, reuse, code.cwd if code else None)
    return SweepState(sweep, sweep_dir, told, found, reusable.applied(seen), reuse=reusable)


def unbegun(sweep: Sweep, sweep_dir: SweepDir) -> SweepState:
    """Return the state of a sweep that was never submitted. Reads nothing."""
    rows = [IndexRow(run_id, True, point) for run_id, point in sweep.points.items()]
    seen = Survey(rows, {row.run_id: RunStatus(row.run_id) for row in rows}, frozenset())
    reuse = Reuse(prefixes=await_trunks(sweep))
    return SweepState(sweep, sweep_dir, seen, {}, reuse.applied(seen), reuse=reuse)


@dataclass(frozen=True)
class SubmissionPlan:
    """What would be submitted, by which state. ``room``: jobs that the queue still accepts, if limited."""

    plan: Plan
    state: SweepState
    options: SubmitOptions
    assignment: TargetAssignment | None
    room: int | None

    @property
    def reused(self) -> tuple[str, ...]:
        """What its runs need not train, and why others must; a line each."""
        planned = dict.fromkeys((*self.plan.run_ids, *self.plan.waiting))
        return self.state.reuse.notes(len(self.state.sweep.runs), planned)

    @property
    def forks(self) -> str:
        """Which runs wait for others that they go on from; empty without any."""
        return self.state.reuse.prefixes.forks(self.plan.waiting)


@dataclass(frozen=True)
class SubmissionReport:
    """What was submitted, by which plan, and notes for users. ``state``: that of the sweep afterwards."""

    plan: Plan
    planned: SubmissionPlan
    job_ids: Mapping[str, str]
    notes: tuple[str, ...]
    state: SweepState

    @property
    def full(self) -> bool:
        """Whether runs wait because the queue had no room at all."""
        return bool(self.plan.waiting) and self.planned.room == 0


def plan_sweep(
    state: SweepState,
    capacity: Capacity,
    options: SubmitOptions = AS_USUAL,
    assignment: TargetAssignment | None = None,
) -> SubmissionPlan:
    """What would be submitted now; with an ``assignment`` of its runs alone. Writes nothing."""
    if state.chances is None:
        state = state.with_chances(second_chances(state.sweep, state.seen, capacity))
    plan = make_plan(
        state.sweep,
        state.seen,
        capacity,
        submission=_next_submission(state.seen.ledger),
        options=options,
        assignment=assignment,
    )
    return SubmissionPlan(plan, state, options, assignment, capacity.room)


def _next_submission(ledger: Sequence[LedgerEntry]) -> int:
    """The number of the next submission: what else is entered meanwhile does not change it."""
    if any(isinstance(entry, DamagedEntry) for entry in ledger):
        return ledger[-1].number + 1  # above every number that was ever given
    return 1 + max((number_of(job.token) for _, job in jobs_of(ledger)), default=0)


def is_settled(prospect: SubmissionPlan) -> bool:
    """Whether submitting would change nothing: all is over, and on record as it is in the grid."""
    plan, state = prospect.plan, prospect.state
    latest = state.sweep_dir.latest_grid()
    return (
        state.seen.statuses == state.told.statuses
        and all(status.final for status in plan.states.values())
        and not plan.jobs
        and not _new_skips(plan, state.seen)
        and latest is not None
        and latest[1] == state.sweep.grid_text
        and list(state.seen.rows) == _known_rows(state.sweep_dir)
    )


def resubmit(
    sweep: Sweep,
    sweep_dir: SweepDir,
    backend: Backend,
    options: SubmitOptions,
    capacity: Callable[[], Capacity] | None = None,
    assignment: TargetAssignment | None = None,
) -> SubmissionReport:
    """Submit the runs that no live job has, as a replacement of a lost worker.

    ``capacity`` replaces the backend's own; it is read when no other command can submit.
    """
    with _deciding(sweep_dir):
        settle_submissions(sweep_dir)
        state = inspect_sweep(as_submitted(sweep, sweep_dir), sweep_dir)
        prospect = plan_sweep(state, (capacity or backend.capacity)(), options, assignment)
        return _submit(prospect, backend, None, define=False)


def as_submitted(sweep: Sweep, sweep_dir: SweepDir) -> Sweep:
    """Return the sweep with the plug-ins of its latest submission."""
    return replace(sweep, plugins=submitted_plugins(sweep_dir))


def submit_checked(
    prospect: SubmissionPlan,
    backend: Backend,
    check: Callable[[Plan], None] | None = None,
    code: FrozenCode | None = None,
    *,
    define: bool = True,
) -> SubmissionReport:
    """Submit a checked plan. If another command has decided on the sweep since, plan and ``check`` anew.

    ``code`` replaces a new snapshot of the code. With ``define`` the grid becomes the sweep's latest;
    without, a grid that was submitted meanwhile stays the latest, and the latest code is used.
    """
    state = prospect.state
    with _deciding(state.sweep_dir):
        if settle_submissions(state.sweep_dir) or state.seen.ledger != state.sweep_dir.read_ledger():
            state = inspect_sweep(state.sweep, state.sweep_dir, prospect.options.reuse, code)
            if prospect.assignment is not None:  # second chances are given by all targets together
                state = state.with_chances(())
            prospect = plan_sweep(state, backend.capacity(), prospect.options, prospect.assignment)
            if check is not None:
                check(prospect.plan)
        return _submit(prospect, backend, code, define=define)


@contextmanager
def _deciding(sweep_dir: SweepDir) -> Iterator[None]:
    """Create the sweep's folder, and let no other command submit."""
    require_own(sweep_dir)
    sweep_dir.create()
    with sweep_dir.lock():
        yield


def _submit(
    prospect: SubmissionPlan,
    backend: Backend,
    code: FrozenCode | None,
    *,
    define: bool,
) -> SubmissionReport:
    """Put on record what the plan rests on, then submit it. Call under the lock.

    The order is safe at every moment: ledger entry, submission, its id in the ledger. A job that was
    submitted but not recorded is found by its token.
    """
    state, sweep_dir, seen = prospect.state, prospect.state.sweep_dir, prospect.state.seen
    latest = sweep_dir.latest_grid()
    grid = record(state.sweep, sweep_dir) if define or latest is None else latest[0]
    notes = _record(prospect)
    again = (run_id for run_id in prospect.plan.waiting if seen.statuses[run_id].state is RunState.SKIPPED)
    if back := dict.fromkeys(again, 0):  # what they wait for is to be done after all
        sweep_dir.add_to_ledger(RetryEntry(runs=back))
    plan = _describe_runs(prospect.plan, sweep_dir)
    notes += tuple(state.reuse.place(plan.run_ids, plan.waiting, sweep_dir))
    ids: Mapping[str, str] = {}
    if plan.jobs or _new_skips(plan, seen):
        if not define:  # the checkout may have changed since
            code = submitted_code(sweep_dir)
        code = code or freeze(sweep_dir, Path.cwd())
        money = budgeted(prospect, plan, backend, launch=define)
        scripts = scripts_of(money.plan, sweep_dir, backend, code)
        entry = _entry(money, prospect, backend, grid, code)
        submission = Submission(money.plan, sweep_dir, entry)  # what cannot be rendered is not on record
        full = submission.submit(scripts, backend)
        plan, ids = submission.plan, submission.job_ids
        notes += code.notes + money.notes + full
    return SubmissionReport(plan, prospect, ids, notes, state.after(plan, sweep_dir.read_ledger()))


def budgeted(prospect: SubmissionPlan, plan: Plan, backend: Backend, *, launch: bool) -> BudgetedPlan:
    """Predict a plan's cost, and share the budget among its jobs. Raises as :func:`reckon`."""
    state, where = prospect.state, partial(where_at, backend.address, list_price)
    return reckon(plan, state.seen, state.sweep_dir, where, prospect.options.budget, launch=launch)


def _record(prospect: SubmissionPlan) -> tuple[str, ...]:
    """Record the states that the plan rests on, and clear up; return notes for users. Call under the lock."""
    state, sweep_dir = prospect.state, prospect.state.sweep_dir
    compact(sweep_dir, state.told)
    close_attempts(sweep_dir, state.told)
    notes = leave_queue(sweep_dir, state.told)
    put_on_record(state.told, state.found, sweep_dir)
    for entry in state.chances or ():
        sweep_dir.add_to_ledger(entry)
    return notes


def _describe_runs(plan: Plan, sweep_dir: SweepDir) -> Plan:
    """Write the run descriptions. A run with an unwritable folder is left out, and the others go on."""
    runs = {run.run_id: run for run in plan.sweep.runs}
    problems = sweep_dir.describe(runs[run_id] for run_id in plan.run_ids)
    if not problems:
        return plan
    arrays = []
    for array in plan.arrays:
        jobs = tuple(replace(job, run_ids=without(job.run_ids, problems)) for job in array.jobs)
        if kept := tuple(job for job in jobs if job.run_ids):
            arrays.append(replace(array, jobs=kept))
    return replace(plan, arrays=tuple(arrays), problems={**plan.problems, **problems})


def render_plan(
    plan: Plan, sweep_dir: SweepDir, backend: Backend, code: FrozenCode | None = None
) -> dict[str, str]:
    """What would be submitted, by array, to the byte; ``code`` as for :func:`submit_checked`."""
    code = code or freeze(sweep_dir, Path.cwd(), dry=True)
    return {one.array.token: one.text for one in scripts_of(plan, sweep_dir, backend, code)}


def _entry(
    money: BudgetedPlan, prospect: SubmissionPlan, backend: Backend, grid: int, code: FrozenCode
) -> SubmissionEntry:
    """Return the ledger entry of a submission before its first array is submitted."""
    plan, options, assignment = money.plan, prospect.options, prospect.assignment
    return SubmissionEntry(
        grid=grid,
        backend=backend.kind,
        target=plan.target,
        on=backend.address,
        options=tuple(backend.options),
        slots=options.slots,
        canary=options.canary,
        trainer=plan.sweep.trainer,
        code=code,
        jobs=plan.jobs,
        skipped=plan.skipped,
        waiting=bool(plan.waiting),
        dealt=None if assignment is None else assignment.run_ids,
        cost=money.cost,
        notify=plan.sweep.notify or None,
    )


def present(sweep_dir: SweepDir) -> Survey:
    """The sweep's state for people: :func:`poll_sweep`, with runs of other code than today's marked stale."""
    return with_stale(poll_sweep(sweep_dir), sweep_dir)


def latest_sweep(sweep_dir: SweepDir) -> Sweep:
    """The sweep as its latest grid defines it: the runs that are this tree's to do."""
    sweep = load_sweep(sweep_dir.latest_grid_path(), sweep_dir.results)
    own = share(sweep_dir.read_ledger())
    if own is None:
        return sweep
    return replace(sweep, runs=tuple(run for run in sweep.runs if run.run_id in own.run_ids))


def _new_skips(plan: Plan, seen: Survey) -> bool:
    """Whether the ledger does not say yet what the plan skips, and why."""
    return any(
        (seen.statuses[run_id].state, seen.statuses[run_id].message) != (RunState.SKIPPED, why)
        for run_id, why in plan.skipped.items()
    )

"""The state shown by `orchestrate top`, as values: surveys, ledgers and journals in, rows out. Pure."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from orchestrator.core.labels import labeller
from orchestrator.core.types import JobState, JobStatus, RunState
from orchestrator.planning.accounts import accounts
from orchestrator.planning.ordering import sweep_eta
from orchestrator.rundir import LedgerEntry, SweepDir, WorkerLog
from orchestrator.rundir.records.journal import PROGRESS, STARTED
from orchestrator.rundir.records.ledger_entries import jobs_of
from orchestrator.status.cost import Cost, job_cost, job_state
from orchestrator.status.ownership import assigned
from orchestrator.status.survey import RunStatus, Survey

# Refreshes kept of the fleet's throughput, and reports kept of a run's speed.
_SAMPLES = 240
_SPEEDS = 30

# Beginning of a backend's text that already says since when a job is unknown.
SAID_SINCE = "unknown"

_TRAINING = (RunState.RUNNING, RunState.STALLED)
_AT_WORK = (*_TRAINING, RunState.QUEUED)

# US dollars for one job and hour, by its target's address and what its submission says of it, if anything.
Price = Callable[[str, float | None], float | None]


@dataclass(frozen=True)
class History:
    """A sweep's submissions and journals. ``rented``: jobs with an instance not known to be gone."""

    ledger: Sequence[LedgerEntry] = ()
    logs: Sequence[WorkerLog] = ()
    rented: Collection[str] = ()


class RunRow(NamedTuple):
    """A run. ``speeds``: frames/s of its last iterations, while it runs.

    ``unanswered``: since when its job is unknown. ``target``: of its present or last job.
    """

    sweep: str
    run_id: str
    label: str
    status: RunStatus
    speeds: tuple[float, ...] = ()
    unanswered: float | None = None
    target: str = ""


class JobRow(NamedTuple):
    """A job. ``said`` is its backend's own word; ``run_ids`` the runs assigned to it, ``done`` how many are.

    ``since``: its start, or its submission before that (unknown for jobs of another tree). ``seconds``: time
    it has worked. ``unanswered``: since when its backend does not answer about it.
    """

    sweep: str
    token: str
    target: str
    state: JobState
    said: str
    run_ids: tuple[str, ...]
    done: int
    job_id: str = ""
    slots: int | None = None
    since: float | None = None
    seconds: float = 0.0
    cost: Cost = Cost()
    unanswered: float | None = None


@dataclass(frozen=True)
class SweepSnapshot:
    """One sweep at the time ``seen`` (seconds since the epoch), and the last refresh's problem, if any."""

    sweep_dir: SweepDir
    seen: float | None = None
    runs: tuple[RunRow, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    counts: Mapping[RunState, int] = field(default_factory=dict)
    end_to_end_fps: float = 0.0
    eta: float | None = None
    cost: Cost = field(default_factory=Cost)
    problem: str | None = None

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self.sweep_dir.name


@dataclass(frozen=True)
class FleetState:
    """The fleet at one moment. ``throughput``: total end-to-end frames/s per refresh, the latest last."""

    at: float | None = None
    sights: tuple[SweepSnapshot, ...] = ()
    throughput: tuple[float, ...] = ()
    problem: str | None = None

    @property
    def counts(self) -> dict[RunState, int]:
        """Number of runs in each state."""
        counted: Counter[RunState] = Counter()
        for snapshot in self.sights:
            counted.update(snapshot.counts)
        return {state: counted[state] for state in RunState if counted[state]}

    @property
    def jobs(self) -> dict[JobState, int]:
        """Jobs by state, without ended ones."""
        counted = Counter(job.state for one in self.sights for job in one.jobs if not job.state.final)
        return {state: counted[state] for state in JobState if counted[state]}

    @property
    def cost(self) -> Cost:
        """Cost of all jobs so far."""
        return sum((snapshot.cost for snapshot in self.sights), Cost())

    def sight(self, name: str) -> SweepSnapshot | None:
        """Return the snapshot of a sweep, if there is one."""
        return next((snapshot for snapshot in self.sights if snapshot.name == name), None)


def following(
    before: FleetState, sights: Sequence[SweepSnapshot], now: float, problem: str | None = None
) -> FleetState:
    """Return the next state. Sweeps that could not be read add nothing to the throughput."""
    fps = sum(snapshot.end_to_end_fps for snapshot in sights if snapshot.seen == now)
    return FleetState(now, tuple(sights), (*before.throughput, fps)[-_SAMPLES:], problem)


def out_of_date(sweep_dir: SweepDir, before: SweepSnapshot | None, problem: str) -> SweepSnapshot:
    """Return the earlier snapshot of a sweep that could not be read, with the problem."""
    return replace(before or SweepSnapshot(sweep_dir), problem=problem)


def sight(
    sweep_dir: SweepDir,
    seen: Survey,
    history: History,
    price: Price,
    now: float,
    before: SweepSnapshot | None = None,
) -> SweepSnapshot:
    """Return the snapshot of a sweep ``now``; since when backends do not answer is taken from ``before``.

    Runs of earlier grids are shown while they are at work.
    """
    name = sweep_dir.name
    seen = replace(seen, statuses={run_id: _finite(status) for run_id, status in seen.statuses.items()})
    unanswered = _unanswered(seen.jobs, now, before)
    jobs = _jobs(name, seen, history, price, now, unanswered)
    speeds = _speeds(seen, history.logs)
    label = labeller([row.point for row in seen.rows if row.in_grid] or [row.point for row in seen.rows])
    runs = []
    for row in seen.rows:
        status = seen.statuses[row.run_id]
        if not row.in_grid and status.state not in _AT_WORK:
            continue
        since = unanswered.get(status.token or "")
        told, target = speeds.get(row.run_id, ()), seen.target(row.run_id) or ""
        runs.append(RunRow(name, row.run_id, label(row.point), status, told, since, target))
    running = (row.status.end_to_end_fps or 0.0 for row in runs if row.status.state is RunState.RUNNING)
    cost = sum((job.cost for job in jobs), Cost())
    problem = "; ".join(seen.remarks) or None
    return SweepSnapshot(
        sweep_dir, now, tuple(runs), jobs, seen.counts(), sum(running), sweep_eta(seen), cost, problem
    )


def _unanswered(jobs: Mapping[str, JobStatus], now: float, before: SweepSnapshot | None) -> dict[str, float]:
    """Return since when jobs, by token, are unknown to their backends: since the first snapshot with that."""
    known = {job.token: job.unanswered for job in before.jobs} if before else {}
    return {
        token: known.get(token) or now
        for token, job in jobs.items()
        if job.state is JobState.UNKNOWN and not job.text.startswith(SAID_SINCE)
    }


def _jobs(
    name: str, seen: Survey, history: History, price: Price, now: float, unanswered: Mapping[str, float]
) -> tuple[JobRow, ...]:
    logs = {log.token: log for log in history.logs}
    paid = accounts(history.ledger, history.logs, history.rented, now, seen)
    rows: dict[str, JobRow] = {}
    for entry, job in jobs_of(history.ledger):
        token, log = job.token, logs.get(job.token)
        account = paid[token]
        rows[token] = JobRow(
            name,
            token,
            job.target,
            job_state(token, seen, log),
            _said(seen.jobs.get(token)),
            job.run_ids,
            sum(_is_done(seen, run_id) for run_id in job.run_ids),
            job_id=entry.job_ids.get(token, ""),
            slots=job.slots,
            since=_start_time(log) or entry.time,
            seconds=account.seconds,
            cost=job_cost(account.seconds, price(entry.on, account.price)),
            unanswered=unanswered.get(token),
        )
    return (*rows.values(), *_remote_jobs(name, seen, history, price, unanswered))


def _remote_jobs(
    name: str, seen: Survey, history: History, price: Price, unanswered: Mapping[str, float]
) -> Iterable[JobRow]:
    """Yield the jobs of other trees: the names of these begin with the place and a slash."""
    prices = {share.place.name: price(share.place.address, None) for share in assigned(history.ledger)}
    for token, job in seen.jobs.items():
        place, slash, _ = token.rpartition("/")
        if slash:
            run_ids = tuple(status.run_id for status in seen.statuses.values() if status.token == token)
            seconds = job.seconds or 0.0
            yield JobRow(
                name,
                token,
                place,
                job.state,
                _said(job),
                run_ids,
                sum(_is_done(seen, run_id) for run_id in run_ids),
                seconds=seconds,
                cost=job_cost(seconds, prices.get(place)),
                unanswered=unanswered.get(token),
            )


def _said(job: JobStatus | None) -> str:
    return " ".join(filter(None, (job.text, job.place))) if job else ""


def _is_done(seen: Survey, run_id: str) -> bool:
    status = seen.statuses.get(run_id)
    return status is not None and status.state is RunState.DONE


def _start_time(log: WorkerLog | None) -> float | None:
    starts = [event.time for event in log.events if event.kind == STARTED] if log else []
    return starts[-1] if starts else None


def _speeds(seen: Survey, logs: Iterable[WorkerLog]) -> dict[str, tuple[float, ...]]:
    """Return frames/s of the last iterations that running runs reported in their present attempt."""
    running = {
        run_id: status.attempt for run_id, status in seen.statuses.items() if status.state in _TRAINING
    }
    told: dict[str, deque[float]] = {run_id: deque(maxlen=_SPEEDS) for run_id in running}
    for log in logs:
        for event in log.events:
            run_id = event.run_id
            if event.kind == PROGRESS and run_id in running and running[run_id] == event.attempt:
                fps = event.progress.iteration_fps
                told[run_id].append(fps if _is_number(fps) and fps is not None else 0.0)
    return {run_id: tuple(speeds) for run_id, speeds in told.items()}


def _finite(status: RunStatus) -> RunStatus:
    """Return the status without values that are not finite numbers, as programs may report such."""
    unsound = [
        name
        for name in ("frames", "total", "end_to_end_fps", "value")
        if not _is_number(getattr(status, name))
    ]
    nothing: dict[str, Any] = dict.fromkeys(unsound)
    return replace(status, **nothing) if unsound else status


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))

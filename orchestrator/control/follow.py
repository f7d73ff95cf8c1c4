"""Follow a sweep to its end: poll it, rest, replace lost workers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from orchestrator.backends.base import Backend
from orchestrator.control import decisions, submit
from orchestrator.control.cloud import cloud_instances
from orchestrator.control.cloud.exchange import Tell, drain_instances, exchange_with_instances, quietly
from orchestrator.control.poll import leave_queue, poll_sweep
from orchestrator.core.errors import BackendUnavailableError, BudgetError, RefusedError, StorageError
from orchestrator.core.types import JobState, Reason, RunState, Sweep
from orchestrator.planning.auto_retry import second_chances
from orchestrator.planning.budget import worth_going_on
from orchestrator.planning.ordering import canaries
from orchestrator.planning.plan import AS_USUAL, SubmitOptions
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import AttemptsEntry, jobs_of
from orchestrator.status.disk_check import proved_ended
from orchestrator.status.survey import Survey

# How often a lost worker is replaced without any run having advanced in between.
_REPLACEMENTS = 3
_REFRESH_S = 0.5
# Interval of polls for runs of unreachable workers. First pause after a failed submission.
_PATIENCE_S = 5.0
# Workers kill what does not leave within its grace, half a minute; then something holds them up.
_STOP_PATIENCE_S = 60.0
# Following must not slow the training: after a poll, rest this many times as long, up to a limit.
_REST, _LONGEST_REST_S = 40, 30.0
# Workers watched during a rest, to notice the end of the last one soon.
_WATCHED = 16


class Submitter(Protocol):
    """Submits what is missing of a sweep, to one target or to several.

    ``queues``: jobs wait in a queue. ``apart``: jobs have file systems of their own.
    """

    sweep: Sweep
    sweep_dir: SweepDir
    options: SubmitOptions
    queues: bool
    apart: bool

    def survey(self) -> Survey:
        """Return the sweep's state now."""
        ...

    def submit(self) -> str | None:
        """Submit what is missing; return a temporary obstacle as text, or ``None``."""
        ...

    def second_chances(self, seen: Survey) -> Sequence[AttemptsEntry]:
        """Return the failed runs that it would train again."""
        ...

    def waits_for_lost(self, seen: Survey) -> bool:
        """Whether workers that cannot be reached may still have runs, until their claims expire."""
        ...


class OneTarget:
    """The :class:`Submitter` of a target that this tree submits to."""

    def __init__(
        self, sweep: Sweep, sweep_dir: SweepDir, backend: Backend, options: SubmitOptions = AS_USUAL
    ) -> None:
        self.sweep, self.sweep_dir, self.options, self._backend = sweep, sweep_dir, options, backend
        self.queues, self.apart = backend.queues, backend.capacity(ask=False).apart

    def survey(self) -> Survey:
        return poll_sweep(self.sweep_dir, submit.rows_of(self.sweep, self.sweep_dir))

    def submit(self) -> str | None:
        done = submit.resubmit(self.sweep, self.sweep_dir, self._backend, self.options)
        full = done.full and not done.plan.jobs
        return "the queue takes no more jobs of yours now" if full else None

    def second_chances(self, seen: Survey) -> Sequence[AttemptsEntry]:
        return second_chances(self.sweep, seen, self._backend.capacity(ask=False))

    def waits_for_lost(self, seen: Survey) -> bool:
        return bool(seen.unknown) and not any(proved_ended(self.sweep_dir.run(one)) for one in seen.unknown)


def follow(target: Submitter, tell: Tell = quietly) -> Iterator[Survey]:
    """Yield the sweep's state again and again, until no run is active and no instance is left.

    Replaces a worker that died, but none that ended for a reason or on request. ``tell`` gets lines about
    obstacles: problems of instances, a backend that does not answer, a full queue.
    """
    for seen in _work_off(target, tell):
        for note in seen.notes:
            tell(note)
        yield seen
    for note in leave_queue(target.sweep_dir, target.survey()):
        tell(note)
    for _ in drain_instances(target.sweep_dir, tell):
        yield target.survey()


def _work_off(target: Submitter, tell: Tell) -> Iterator[Survey]:
    sweep_dir = target.sweep_dir
    tries, before, wait = 0, (-1, -1), _PATIENCE_S
    while True:
        exchange_with_instances(sweep_dir, tell, orphans=True)
        began = time.monotonic()
        seen = target.survey()
        yield seen
        if seen.active:
            rest(sweep_dir, time.monotonic() - began, seen)
            continue
        if target.waits_for_lost(seen):
            time.sleep(_PATIENCE_S)
            continue
        advanced = _advanced(seen, target)
        again = tries + 1 if advanced <= before else 0
        chances = target.second_chances(seen)
        if not chances:
            idle = not seen.left and not seen.unknown
            if idle or again >= _REPLACEMENTS or _stays_so(sweep_dir, seen, target.options):
                return
        try:
            obstacle = _submit(target)
        except BudgetError:
            if chances:
                raise
            return  # the rest of the budget pays for no job
        if obstacle is None:
            tries, before, wait = again, max(before, advanced), _PATIENCE_S
            continue
        if wait == _PATIENCE_S:
            tell(f"{obstacle}; tried again until it works")
        time.sleep(wait)
        wait = min(_LONGEST_REST_S, 2 * wait)


def _submit(target: Submitter) -> str | None:
    """Submit what is missing; a temporary obstacle as text, or ``None``."""
    try:
        return target.submit()
    except BackendUnavailableError as error:
        if isinstance(error, RefusedError) or not target.queues:
            raise
        return f"cannot submit now: {error}"


def _advanced(seen: Survey, target: Submitter) -> tuple[int, int]:
    """Progress since which lost workers are replaced: finished runs, and attempts at the others.

    Where an attempt costs money, frames in checkpoints count instead of attempts.
    """
    over = sum(status.state.final for status in seen.statuses.values())
    left = [status for status in seen.statuses.values() if not status.state.final]
    if not target.apart:
        return over, sum(status.attempt for status in left)
    kept = (target.sweep_dir.run(status.run_id).checkpoints() for status in left if status.attempt)
    return over, sum(one[0].frames for one in kept if one)


def rest(sweep_dir: SweepDir, took: float, seen: Survey) -> None:
    """Rest after the poll ``seen`` in proportion to its duration ``took`` (seconds).

    With instances of a cloud: for the interval of the exchange. Ends early when a worker begins or ends.
    """
    if cloud_instances.sent_jobs(sweep_dir):
        time.sleep(cloud_instances.EXCHANGE_S / 4)
        return
    until = time.monotonic() + min(_LONGEST_REST_S, _REST * took)
    to_begin, to_leave = _watched(sweep_dir, seen)
    while True:
        time.sleep(_REFRESH_S)
        if sweep_dir.begun(to_begin) or any(map(sweep_dir.has_left, to_leave)):
            return
        if time.monotonic() >= until:
            return


def _watched(sweep_dir: SweepDir, seen: Survey) -> tuple[list[str], list[str]]:
    """Tokens of some jobs with a worker that has yet to begin, and of some with a worker at work.

    Leaves out jobs that wait in the queue again or have no answer of their backend.
    """
    statuses = seen.statuses.values()
    at_work = {status.token or "" for status in statuses if status.state is RunState.RUNNING}
    waiting = {status.token or "" for status in statuses if status.state is RunState.QUEUED}
    some = [token for token in (*sorted(at_work), *sorted(waiting - at_work)) if token in seen.live]
    watched = some[:_WATCHED]
    begun = sweep_dir.begun(watched)
    no_news = {token for token, job in seen.jobs.items() if job.state in (JobState.QUEUED, JobState.UNKNOWN)}
    return (
        [token for token in watched if token not in begun],
        [token for token in watched if token in begun and token not in no_news],
    )


def follow_canaries(target: Submitter, tell: Tell) -> Iterator[Survey]:
    """Yield the sweep's state again and again; submit further runs once their configuration trains.

    Ends when all runs are submitted but those of failed configurations, or when no run is active.
    """
    known = -1
    while True:
        exchange_with_instances(target.sweep_dir, tell, orphans=True)
        began = time.monotonic()
        seen = target.survey()
        yield seen
        todo = [run for run in target.sweep.runs if seen.statuses[run.run_id].state is RunState.PENDING]
        ready, held_back = canaries(todo, target.sweep.runs, seen)
        if ready and len(ready) != known:
            known = len(ready)
            target.submit()
        elif not held_back or not seen.active:
            return
        rest(target.sweep_dir, time.monotonic() - began, seen)


def stop(sweep_dir: SweepDir, tell: Tell = quietly, targets: Collection[str] | None = None) -> bool:
    """Stop the workers after a checkpoint and wait; ``False`` if some do not end in time.

    ``targets``: only the workers of these targets.
    """
    decisions.stop_workers(sweep_dir, targets)
    deadline = time.monotonic() + _STOP_PATIENCE_S
    while _works(poll_sweep(sweep_dir), targets):
        exchange_with_instances(sweep_dir, tell)
        if time.monotonic() > deadline:
            return False
        time.sleep(_REFRESH_S / 5)
    return True


def _works(seen: Survey, targets: Collection[str] | None) -> bool:
    """Whether a run is active, or a worker of these targets is."""
    if targets is None:
        return seen.active
    return any(seen.targets.get(token) in targets for token in seen.live)


def _stays_so(sweep_dir: SweepDir, seen: Survey, options: SubmitOptions) -> bool:
    """Whether the remaining runs are left for a reason, so that no worker is replaced."""
    left = why_left(sweep_dir, seen)
    if left.out_of_budget:  # other jobs may have used less than their share
        return not worth_going_on(sweep_dir, seen, options.budget)
    return bool(left.why)


class WhyLeft(NamedTuple):
    """Why runs are left, as a clause; empty if workers just died or lost their machine."""

    why: str = ""
    cause: Reason | None = None

    @property
    def out_of_budget(self) -> bool:
        """Whether a job used up its share of the budget."""
        return self.cause is Reason.BUDGET


def exit_code_of(seen: Survey, left: WhyLeft) -> int | None:
    """The exit code if runs are left because of the budget or a full disk; else ``None``."""
    if left.out_of_budget:
        return BudgetError.exit_code
    storage = (Reason.DISK_FULL, Reason.STORAGE)
    full = any(seen.statuses[run_id].reason in storage for run_id in seen.left)
    return StorageError.exit_code if full or left.cause is Reason.STORAGE else None


def why_left(sweep_dir: SweepDir, seen: Survey) -> WhyLeft:
    """Return the words of a worker that was stopped, or of a job that ended before its worker."""
    if not seen.left:
        return WhyLeft()
    # Not the survey's: a worker may have written its exit after they were read, before its end was noticed.
    logs = {log.token: log for log in sweep_dir.read_journals()}
    tokens: dict[str, str] = {}
    for _, job in jobs_of(seen.ledger):
        tokens |= dict.fromkeys(job.run_ids, job.token)
    for run_id in seen.left:
        token = tokens.get(run_id, "")
        log, said = logs.get(token), seen.statuses[run_id].message
        taken_away = token in seen.jobs and seen.jobs[token].reason is Reason.PREEMPTED
        if log is None and said and not taken_away:
            shown = f"{said}; `orchestrate logs {sweep_dir.name} {run_id[:8]}` shows what it printed"
            return WhyLeft(shown, Reason.BUDGET if seen.statuses[run_id].unpaid else None)
        if log is not None and log.exited and log.events and log.events[-1].exit.asked is not False:
            left = log.events[-1].exit
            return WhyLeft(left.why or "its submission was given up", left.cause)
    return WhyLeft()

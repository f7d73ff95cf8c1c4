"""A sweep on one target that this tree submits to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.backends.base import Backend
from orchestrator.config.backends import is_rented
from orchestrator.config.check import check_plan
from orchestrator.control import dry_run, submit
from orchestrator.control.cloud.exchange import exchange_with_instances
from orchestrator.control.fleet import present
from orchestrator.control.flow.base import Flow
from orchestrator.control.follow import OneTarget, WhyLeft, follow, follow_canaries, stop
from orchestrator.control.poll import leave_queue, poll_sweep
from orchestrator.control.remote import delegate
from orchestrator.control.staleness import with_stale
from orchestrator.control.submission import Started, array_line, forks_later, waiting
from orchestrator.control.submit import SubmissionReport
from orchestrator.core.formatting import count
from orchestrator.core.progress import report_step
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Plan, Sweep
from orchestrator.planning.plan import SubmitOptions
from orchestrator.rundir import FrozenCode, SweepDir
from orchestrator.status.survey import Survey


class OwnTarget(Flow):
    """A sweep on a target with jobs that write to this tree.

    ``take_back``: first request idle runs back from trees behind ssh. ``code``: a snapshot that another tree
    sent, by default one of the folder of the call.
    """

    def __init__(
        self,
        sweep: Sweep,
        sweep_dir: SweepDir,
        options: SubmitOptions,
        backend: Backend,
        *,
        take_back: bool = False,
        code: FrozenCode | None = None,
    ) -> None:
        super().__init__(sweep, sweep_dir, options)
        self._backend, self._take_back, self._code = backend, take_back, code
        self._replacing = OneTarget(sweep, sweep_dir, backend, options)
        self.target, self.on = backend.capacity(ask=False).target, backend.address
        self.leaves, self.stops = backend.leaves, "" if backend.queues else "runs"
        self._jobs: Sequence[Job] = ()
        self._waiting: Collection[str] = ()
        self._settled: Survey | None = None

    def rehearse(self) -> Mapping[str, Any]:
        state = self._inspect()
        prospect, unasked = dry_run.plan_now(state, self._backend, self.options)
        warnings = dry_run.warnings_of(prospect.plan, self._code)
        return dry_run.rehearse(prospect, self._backend, unasked, warnings, self._code)

    def _start(self) -> Started:
        kept = delegate.take_back(self.sweep, self.sweep_dir) if self._take_back else {}
        exchange_with_instances(self.sweep_dir, self._tell, not_within=0, orphans=True)
        report_step("looking at what is done")
        state, path = self._inspect(), f"{self.sweep_dir.path}/"
        prospect = submit.plan_sweep(state, self._backend.capacity(ask=False), self.options)
        if submit.is_settled(prospect):
            notes = leave_queue(self.sweep_dir, prospect.state.seen)
            self._settled = with_stale(prospect.state.seen, self.sweep_dir)
            return Started(path, notes=notes, kept=kept, over=self.detach or not self.costs())
        prospect = submit.plan_sweep(state, self._backend.capacity(), self.options)
        self._check(prospect.plan)
        report_step(f"submitting to {self.target}")
        done = submit.submit_checked(prospect, self._backend, self._check, self._code)
        seen = done.planned.state.seen
        plan, self._jobs, self._waiting = done.plan, done.plan.jobs, done.plan.waiting
        return Started(
            path,
            len(plan.run_ids) if plan.jobs else 0,
            len(seen.working),
            len(seen.live - seen.working),
            arrays=tuple(_arrays(done)),
            waiting=waiting(
                len(set(plan.waiting).difference(done.planned.state.reuse.prefixes.waiting)),
                canary=self.options.canary,
                submitted=bool(plan.jobs),
                no_feed=plan.no_feed,
                follow=self._code is None,
            ),
            notes=(
                *done.planned.reused,
                *forks_later(
                    done.planned.forks,
                    follows=not self.detach,
                    feeds=self._backend.queues and not self._replacing.apart and plan.no_feed is None,
                ),
                *done.notes,
            ),
            problems=plan.problems,
            kept=kept,
        )

    def _inspect(self) -> submit.SweepState:
        return submit.inspect_sweep(self.sweep, self.sweep_dir, self.options.reuse, self._code)

    def _check(self, plan: Plan) -> None:
        warnings = check_plan(plan, self._code.cwd if self._code else None).require_passed()
        for warning in (*warnings, *dry_run.said_before(self._backend, plan)):
            self._warn(str(warning))

    def _follow(self) -> Iterator[Survey]:
        if self.options.canary and self._settled is None:
            yield from follow_canaries(self._replacing, self._tell)
        if not self.detach:
            yield from follow(self._replacing, self._tell)

    def survey(self) -> Survey:
        if self._settled is not None:
            return self._settled
        seen = poll_sweep(self.sweep_dir, submit.rows_of(self.sweep, self.sweep_dir))
        return present(self.sweep_dir, with_stale(seen, self.sweep_dir))

    def stop(self) -> bool:
        return stop(self.sweep_dir, self._tell)

    def why_left(self, seen: Survey) -> WhyLeft:
        left, full = super().why_left(seen), "the queue takes no more jobs of yours now"
        if self.options.canary:
            return left._replace(why="no run of their configuration has trained anything yet")
        return left._replace(why=left.why or (full if self._waiting else "their worker died again and again"))

    def facts(self) -> Mapping[str, Any]:
        return {"jobs": plain(self._jobs)}


def _arrays(done: SubmissionReport) -> Iterator[str]:
    for array in done.plan.arrays:
        known, slots = done.job_ids.get(array.jobs[0].token, ""), array.jobs[0].slots
        scheduler, _, job_id = known.partition(":")
        if len(array.jobs) > 1 or "." in array.jobs[0].token:
            yield array_line(known, len(array.jobs), slots)
        elif is_rented(scheduler):
            runs = count(len(array.jobs[0].run_ids), "run")
            yield f"instance {job_id.partition('/')[0]}: {runs}, {slots} at once"

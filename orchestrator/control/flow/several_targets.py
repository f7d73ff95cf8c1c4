"""A sweep that several targets share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.control import fleet
from orchestrator.control.cloud.exchange import exchange_with_instances, quietly
from orchestrator.control.flow.base import Flow
from orchestrator.control.follow import WhyLeft, follow, follow_canaries, stop
from orchestrator.control.multi_target import SharedSweep, SharedTargets, TargetHandle
from orchestrator.control.submission import Started, forks_later
from orchestrator.core.formatting import count
from orchestrator.status.survey import Survey


class SeveralTargets(Flow):
    """A sweep with runs for several targets, dealt when it is submitted."""

    leaves, stops, stays = False, "runs on this machine", ", jobs elsewhere go on"

    def __init__(self, shared: SharedSweep, targets: Sequence[TargetHandle]) -> None:
        super().__init__(shared.sweep, shared.sweep_dir, shared.options)
        self._targets = targets
        self.target = ", ".join(one.name for one in targets)
        self.on = ",".join(one.address for one in targets)
        self._shared = SharedTargets(shared, targets, quietly)

    def rehearse(self) -> Mapping[str, Any]:
        return self._shared.rehearse()

    def _start(self) -> Started:
        shared = self._shared
        shared.tell = self._tell
        kept = shared.take_from_others()
        exchange_with_instances(self.sweep_dir, self._tell, not_within=0, orphans=True)
        now = shared.inspect()
        seen = now.seen
        for warning in shared.check(seen):
            self._warn(str(warning))
        todo = shared.todo(seen)
        shared.submit(now, define=True)
        left = max(0, len(todo) - sum(shared.dealt.values()))
        return Started(
            f"{self.sweep_dir.path}/",
            max(len(todo), sum(shared.dealt.values())),
            len(seen.working),
            len(seen.live - seen.working),
            ", ".join(f"{name} ({runs})" for name, runs in shared.dealt.items()),
            waiting=f"{count(left, 'run')} left until a target has room: {self.command}" if left else None,
            notes=forks_later(shared.forks(now), follows=not self.detach, feeds=False),
            kept=kept,
        )

    def _follow(self) -> Iterator[Survey]:
        self._shared.tell = self._tell
        if self.options.canary:
            yield from follow_canaries(self._shared, self._tell)
        if self.detach:
            return
        for seen in follow(self._shared, self._tell):
            self._name_lost_jobs(seen)
            yield seen
        fleet.fetch_from_trees(self.sweep_dir, self._tell)

    def _name_lost_jobs(self, seen: Survey) -> None:
        """Say once of each target that jobs of it ended before their runs, while other jobs work."""
        left = Counter(seen.target(run_id) for run_id in self._lost(seen))
        for target in filter(None, left) if seen.active else ():
            runs = count(left[target], "run")
            said = f"{target}: {runs} left by jobs that ended; dealt again when no job is left, and now by:"
            self._shared.tell_once(f"{said} {self.command}", target)

    def _lost(self, seen: Survey) -> list[str]:
        forks = self.sweep.trunks  # those without an attempt wait
        lost = [run_id for run_id in seen.left if run_id not in forks or seen.statuses[run_id].attempt]
        return [] if self.options.canary else lost

    def survey(self) -> Survey:
        return self._shared.survey()

    def stop(self) -> bool:
        here = {one.name for one in self._targets if one.begins_at_once}
        return stop(self.sweep_dir, self._tell, here)

    def facts(self) -> Mapping[str, Any]:
        return {"targets": [one.name for one in self._targets]}

    def fact_of(self, seen: Survey, run_id: str) -> Mapping[str, Any]:
        return {**super().fact_of(seen, run_id), "target": seen.target(run_id)}

    def exit_code(self, seen: Survey, why: WhyLeft) -> int:
        refused = [error.exit_code for error in self._shared.refusals if seen.left]
        return max(refused, default=0) or super().exit_code(seen, why)

"""A sweep that several targets share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.control.exchange import quietly
from orchestrator.control.flow.base import Flow, Started
from orchestrator.control.instance_costs import costs
from orchestrator.control.multi_target import (
    SharedSweep,
    TargetHandle,
    TargetScheduler,
    check,
    rehearse,
    stop_here,
    submit_all,
    take_from_others,
)
from orchestrator.core.errors import BudgetError, OrchestrateError
from orchestrator.status.survey import Survey


class SeveralTargets(Flow):
    """A sweep with runs for several targets, assigned in turns while it is followed, or all at once."""

    leaves, stops, stays = False, "runs on this machine", ", jobs elsewhere go on"

    def __init__(self, shared: SharedSweep, targets: Sequence[TargetHandle]) -> None:
        super().__init__(shared.sweep, shared.sweep_dir, shared.wish)
        self._shared, self._targets = shared, targets
        self.target = ", ".join(one.name for one in targets)
        self.on = ",".join(one.address for one in targets)
        self._refused = 0
        self._scheduler = TargetScheduler(shared, targets, quietly)

    def _rehearse(self) -> Mapping[str, Any]:
        return rehearse(self._shared, self._targets, detach=self.detach)

    def _start(self) -> Started:
        if self.detach and self.wish.canary:
            raise OrchestrateError(
                "found --canary with --detach: several targets submit the further runs only while followed",
                hint="leave one of them away",
            )
        kept = take_from_others(self._shared, self._targets)
        for warning in check(self._shared, self._targets):
            self._warn(str(warning))
        seen = self._scheduler.take_snapshot()
        loads = self._scheduler.loads(seen)
        started = Started(
            f"{self.sweep_dir.path}/",
            len(self._scheduler.todo(seen)),
            len(seen.seen.working),
            len(seen.seen.live - seen.seen.working),
            ", ".join(f"{load.name} ({load.places} at once)" for load in loads),
            kept=kept,
        )
        if self.detach:
            self._refused = submit_all(self._shared, self._targets, self._tell)
        return started

    def _follow(self) -> Iterator[Survey]:
        if not self.detach:
            self._scheduler = TargetScheduler(self._shared, self._targets, self._tell)
            yield from self._scheduler.follow()

    def survey(self) -> Survey:
        return self._scheduler.take_snapshot().seen

    def stop(self) -> bool:
        return stop_here(self._shared, self._targets)

    def facts(self) -> Mapping[str, Any]:
        return {"targets": [one.name for one in self._targets]}

    def fact_of(self, seen: Survey, run_id: str) -> Mapping[str, Any]:
        return {**super().fact_of(seen, run_id), "target": seen.target(run_id)}

    def costs(self) -> Sequence[str]:
        return costs(self.sweep_dir)

    def _obstacle(self, seen: Survey) -> int | None:
        unpaid = any(isinstance(error, BudgetError) for error in self._scheduler.refusals)
        return BudgetError.exit_code if unpaid else super()._obstacle(seen)

    def exit_code(self, seen: Survey) -> int:
        return self._refused or super().exit_code(seen)

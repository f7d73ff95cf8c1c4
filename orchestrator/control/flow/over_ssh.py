"""A sweep on one target behind ssh, with a tree of its own there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.config.profiles import Profile, as_typed
from orchestrator.control import fleet
from orchestrator.control.flow.base import Flow
from orchestrator.control.follow import WhyLeft
from orchestrator.control.remote import delegate
from orchestrator.control.remote.delegate import Delegation
from orchestrator.control.submission import Started
from orchestrator.control.submit import SubmitOptions
from orchestrator.core.types import Reason, Sweep
from orchestrator.rundir import SweepDir
from orchestrator.status.survey import Survey


class TargetOverSsh(Flow):
    """A sweep given to the tree of a profile behind ssh, which submits it there.

    ``only``: the runs that are given, by default all that are to do. ``adopt``: go on with a sweep of this
    name that another tree submitted there.
    """

    leaves = True

    def __init__(
        self,
        sweep: Sweep,
        sweep_dir: SweepDir,
        options: SubmitOptions,
        profile: Profile,
        scheduler_options: Sequence[str],
        *,
        only: Collection[str] | None,
        adopt: bool,
    ) -> None:
        super().__init__(sweep, sweep_dir, options)
        self._profile = profile
        self._asked = Delegation(sweep, sweep_dir, profile, options, scheduler_options, only, adopt)
        self.target, self.on = profile.name, profile.address
        self._seen: Survey | None = None

    def rehearse(self) -> Mapping[str, Any]:
        return delegate.rehearse(replace(self._asked, only=None))

    def _start(self) -> Started:
        return replace(delegate.send(self._asked), over=False)  # results are still to be fetched

    def _follow(self) -> Iterator[Survey]:
        for seen in () if self.detach else fleet.watch(self.sweep_dir, self._tell):
            self._seen = seen
            yield seen

    def survey(self) -> Survey:
        return self._seen or fleet.present(self.sweep_dir)

    @property
    def next_step(self) -> str:
        return f"orchestrate sync {as_typed(self._profile)} brings results home"

    def facts(self) -> Mapping[str, Any]:
        return {"on": self.target, "kept": dict(self._started.kept) if self._started else {}}

    def why_left(self, seen: Survey) -> WhyLeft:
        unpaid = any(seen.statuses[run_id].unpaid for run_id in seen.left)
        return super().why_left(seen)._replace(cause=Reason.BUDGET if unpaid else None)

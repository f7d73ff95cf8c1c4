"""A sweep on one target behind ssh, with a tree of its own there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.config.profiles import as_typed
from orchestrator.control import fleet
from orchestrator.control.flow.base import Flow
from orchestrator.control.follow import WhyLeft
from orchestrator.control.remote import delegate
from orchestrator.control.remote.delegate import Delegation
from orchestrator.control.submission import Started
from orchestrator.core.types import Reason
from orchestrator.status.survey import Survey


class TargetOverSsh(Flow):
    """A sweep given to the tree of a profile behind ssh, which submits it there."""

    leaves = True

    def __init__(self, asked: Delegation) -> None:
        super().__init__(asked.sweep, asked.sweep_dir, asked.options)
        self._asked = asked
        self.target, self.on = asked.profile.name, asked.profile.address
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
        return f"orchestrate sync {as_typed(self._asked.profile)} brings results home"

    def facts(self) -> Mapping[str, Any]:
        return {"on": self.target, "kept": dict(self._started.kept) if self._started else {}}

    def why_left(self, seen: Survey) -> WhyLeft:
        unpaid = any(seen.statuses[run_id].unpaid for run_id in seen.left)
        return super().why_left(seen)._replace(cause=Reason.BUDGET if unpaid else None)

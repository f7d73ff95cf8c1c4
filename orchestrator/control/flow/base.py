"""The steps of working through a sweep, the same for one target and for several."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.control.cloud.exchange import Tell, quietly
from orchestrator.control.cloud.instance_costs import costs
from orchestrator.control.follow import WhyLeft, exit_code_of, why_left
from orchestrator.control.submission import Started
from orchestrator.core.types import RunState, Sweep
from orchestrator.planning.plan import SubmitOptions
from orchestrator.rundir import SweepDir
from orchestrator.status.survey import Survey


class Flow(ABC):
    """Work through a sweep: rehearse it, or start it, follow it and judge the outcome.

    ``target``: its targets' names. ``leaves``: whether a command leaves after the submission by default;
    ``detach``: whether this one does. ``stops``: which runs an interrupted command stops, empty for none;
    ``stays``: what goes on nevertheless. ``on``: the argument of `--on` that names the targets.
    """

    target: str
    on: str
    leaves: bool
    stops = stays = ""

    def __init__(self, sweep: Sweep, sweep_dir: SweepDir, options: SubmitOptions) -> None:
        self.sweep, self.sweep_dir, self.options = sweep, sweep_dir, options
        self.detach = False
        self._started: Started | None = None
        self._tell: Tell = quietly
        self._warn: Tell = quietly

    @abstractmethod
    def rehearse(self) -> Mapping[str, Any]:
        """What would be submitted, to the byte, as of :func:`dry_run.rehearse`; writes nothing."""

    def start(self, tell: Tell, warn: Tell, *, detach: bool) -> Started:
        """Check and submit what is missing. ``warn`` gets what a person should know before that.

        Raises :class:`ChecksFailedError` before anything is submitted, and what a submission raises.
        """
        self._tell, self._warn, self.detach = tell, warn, detach
        self._started = self._start()
        return self._started

    def follow(self, tell: Tell, *, detach: bool = False) -> Iterator[Survey]:
        """The sweep's state again and again, until nothing works on it any more; ``tell`` gets obstacles.

        With ``detach`` only while runs are held back for canaries.
        """
        self._tell, self.detach = tell, detach
        return self._follow()

    @abstractmethod
    def _start(self) -> Started: ...

    @abstractmethod
    def _follow(self) -> Iterator[Survey]: ...

    @abstractmethod
    def survey(self) -> Survey:
        """The sweep's state for people."""

    def stop(self) -> bool:
        """Stop the runs that ``stops`` names; ``False`` if some have not left in time."""
        return True

    def why_left(self, seen: Survey) -> WhyLeft:
        """Why runs are left, as far as that is known; for :meth:`exit_code`, too."""
        return why_left(self.sweep_dir, seen)

    def facts(self) -> Mapping[str, Any]:
        """What ``--json`` prints beside the runs."""
        return {}

    def fact_of(self, seen: Survey, run_id: str) -> Mapping[str, Any]:
        """A run's state as ``--json`` prints it."""
        return seen.statuses[run_id].to_json()

    @property
    def command(self) -> str:
        """The command that goes on with the sweep."""
        return shlex.join(["orchestrate", "sweep", *self.sweep.grid_options, "--on", self.on])

    @property
    def next_step(self) -> str:
        """The command after a sweep that is done."""
        name = self.sweep_dir.name
        return f"orchestrate collect {name} && orchestrate report {name}"

    def costs(self) -> Sequence[str]:
        """Instances that are still up, a line each."""
        return costs(self.sweep_dir)

    def exit_code(self, seen: Survey, why: WhyLeft) -> int:
        """The command's exit code: 1 if runs failed or are left, or that of what keeps them from going on."""
        left = bool(seen.left or seen.unknown) and not self.detach
        if left and (code := exit_code_of(seen, why)) is not None:
            return code
        started = self._started
        amiss = started is not None and (started.problems or started.kept)
        return int(bool(seen.counts().get(RunState.FAILED) or amiss or left))

"""Cloud instances, and the interface of a backend that starts one for each of its jobs."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Protocol

from orchestrator.config.backends import get_backend
from orchestrator.core.machine.ssh import Host
from orchestrator.rundir import SweepDir

# A launch takes minutes, and as long as its files are on their way.
_LONG_LAUNCH_S = 3600.0


class RecordedState(enum.Enum):
    """State of an instance in its backend's records. STARTING: also one found to be broken."""

    STARTING = "starting"
    UP = "up"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Instance:
    """An instance in its backend's records.

    ``since``: launch time, in seconds since 1970. ``price_per_hour``: US dollars by the backend's price list,
    ``None`` if not listed. ``autodown``: when it terminates by itself, as text; "" for never.
    """

    name: str
    state: RecordedState
    since: float
    price_per_hour: float | None
    region: str
    instance_type: str
    spot: bool
    autodown: str

    @property
    def launched_long(self) -> bool:
        """Whether the launch, which nothing stops before it is over, takes very long."""
        return bool(not self.autodown and self.since and time.time() - self.since > _LONG_LAUNCH_S)


class InstanceState(enum.Enum):
    """State of a job's instance. UP: reachable. STOPPED: stopped by a user, its disk still exists.

    GONE: it does not exist, or never became usable. ORPHAN: its launch died before its job was sent, so that
    no launch is active and no automatic termination is set.
    """

    STARTING = "starting"
    UP = "up"
    STOPPED = "stopped"
    ORPHAN = "orphan"
    GONE = "gone"


class Instances(Protocol):
    """The instances of one backend, by the ids of their jobs. A module with these functions will do.

    ``RESULTS_THERE``: the results tree on an instance. ``RESTART``: how to restart a stopped instance, or to
    give it up; "{}" stands for its name. Functions raise :class:`BackendUnavailableError` where the backend
    must be queried and does not answer.
    """

    RESULTS_THERE: str
    RESTART: str

    def instance_of(self, job_id: str) -> str:
        """Return the name of a job's instance, as known to ssh and the backend."""
        ...

    def unrecorded_id(self, sweep: SweepDir, token: str) -> str:
        """Return the id of a job with an unrecorded launch, if it exists."""
        ...

    def standing_of(self, ids: Sequence[str], found: Mapping[str, Instance]) -> dict[str, InstanceState]:
        """Return the states of these jobs' instances, of which :meth:`up` has ``found`` these."""
        ...

    def up(self, ids: Sequence[str]) -> dict[str, Instance]:
        """Return the existing instances of these jobs, by name."""
        ...

    def is_orphan(self, job_id: str, instance: Instance) -> bool:
        """Return whether a job's instance is an orphan according to the backend's records."""
        ...

    def never_sent(self, job_id: str) -> bool:
        """Return whether the job of an orphan was never sent."""
        ...

    def launch_failure(self, job_id: str) -> str | None:
        """Return why a job's launch failed; ``None`` if it did not, or that is unknown."""
        ...

    def launch_over(self, job_id: str) -> float | None:
        """Return when a job's launch failed or was cancelled (epoch seconds); ``None`` if that is unknown."""
        ...

    def over(self, job_id: str) -> str | None:
        """Return the description of a job that ended on a running instance; ``None`` while it has not."""
        ...

    def reach(self, job_id: str) -> Host:
        """Return a job's instance as an ssh host, with its results tree at ``RESULTS_THERE``."""
        ...

    def last_words(self, job_id: str) -> str:
        """Return the end of the output of a job's set-up and program, from its instance."""
        ...

    def trust(self, job_id: str) -> None:
        """Record that a job's instance answered."""
        ...

    def doubt(self, job_id: str) -> None:
        """Record that it did not answer: its existence is checked next time."""
        ...

    def take_down(self, job_id: str, said: str | None = None) -> None:
        """Terminate a job's instance and verify that. ``said``: how its job ended, if it ended by itself."""
        ...


def instances_of(kind: str) -> Instances:
    """Return the instances of the backend of that kind."""
    found: Instances = resolve_name(get_backend(kind).instances)
    return found

"""Requests to SkyPilot. Every function raises :class:`BackendUnavailableError`.

:class:`RefusedError`: the request was certainly not executed. Any other error leaves that unknown.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.backends.instances import Instance, RecordedState
from orchestrator.backends.skypilot.errors import Failure, unanswered
from orchestrator.backends.waiting import SlowLog
from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.machine.json_process import JsonProcess
from orchestrator.core.types import JobState

# Seconds to wait: the first request waits for SkyPilot's import and API server, and clouds are slow.
_PATIENCE_S = 120.0
_END_S = 900.0
# Seconds until a slow request is logged; loading SkyPilot alone takes a few.
_SLOW_S = 5.0


class RequestState(enum.Enum):
    """State of a request at the API server. UNKNOWN: the server has no such request."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Request:
    """A request. ``text`` and ``hint``: why it failed, and the next command. ``finished``: epoch seconds.

    ``refused``: it failed before a machine was obtained, and another one like it would fail as well.
    """

    state: RequestState
    text: str = ""
    hint: str = ""
    finished: float | None = None
    refused: bool = True


@dataclass(frozen=True)
class SkyTask:
    """A task on an instance; ``text``: SkyPilot's name of its state."""

    state: JobState
    text: str


@dataclass(frozen=True)
class MachinePrice:
    """The machine that SkyPilot would choose now, and its US dollars per hour.

    ``otherwise``: the price of the same machine on demand if it is spot, as spot if not; ``None`` if unknown.
    """

    cloud: str
    region: str
    instance_type: str
    spot: bool
    usd_per_hour: float
    otherwise: float | None


@dataclass(frozen=True)
class Check:
    """Usable clouds, in lower case; ``why``: what the requested one lacks."""

    enabled: list[str]
    why: str


def validate(task_text: str) -> None:
    """Check the form of a task file. Needs no server, no cloud and no network."""
    _ask("check the task file", "validate", text=task_text)


def launch(cluster: str, task_text: str, *, secrets: Mapping[str, str], boot: Sequence[str] = ()) -> str:
    """Start an instance, or use the one of that name, and run the task there; return the request's id.

    Returns when SkyPilot has accepted the request. ``secrets`` go to the task's environment and to no file
    here. ``boot``: commands to run as root when a machine of AWS boots; other clouds do not support them.
    """
    rest: dict[str, Any] = {"secrets": dict(secrets), "boot": list(boot)}
    return str(_ask(f"launch {cluster}", "launch", cluster=cluster, text=task_text, **rest))


def launching(cluster: str) -> str | None:
    """Return the id of the active launch request of this instance, if any."""
    found = _ask(f"look up the launch of {cluster}", "launching", cluster=cluster)
    return None if found is None else str(found)


def request_state(request: str) -> Request:
    """Return the state of a request."""
    if not request:
        return Request(RequestState.UNKNOWN)
    state, *rest = _ask(f"look up request {request}", "request_state", request=request)
    return Request(RequestState(state), *rest)


def clusters(names: Collection[str] | None, refresh: bool) -> dict[str, Instance]:
    """Return instances by name; missing ones do not exist. ``None``: all of this user.

    ``refresh`` queries the clouds, not only SkyPilot's records; raises if one does not answer.
    """
    if names is not None and not names:
        return {}
    asked = "list instances" if names is None else f"look up {', '.join(sorted(names))}"
    found = _ask(asked, "clusters", names=None if names is None else sorted(set(names)), refresh=refresh)
    return {one["name"]: Instance(**{**one, "state": RecordedState(one["state"])}) for one in found}


_QUEUED = ("INIT", "PENDING")
_RUNNING = ("SETTING_UP", "RUNNING")


def tasks(cluster: str) -> dict[str, SkyTask]:
    """Return the tasks on an instance by name; of several with one name, the last."""
    found = _ask(f"list the tasks on {cluster}", "tasks", cluster=cluster)
    return {name: _task_of(said) for name, said in found}


def _task_of(said: str) -> SkyTask:
    state = JobState.QUEUED if said in _QUEUED else JobState.RUNNING if said in _RUNNING else JobState.ENDED
    return SkyTask(state, said.lower().replace("_", " "))


def down(cluster: str) -> None:
    """Terminate an instance, also one that is still starting; return when it no longer exists."""
    _ask(f"terminate {cluster}", "down", patience=_END_S, cluster=cluster)


def ssh_config(cluster: str) -> None:
    """Set up `ssh CLUSTER`. Raises :class:`RefusedError` if the instance is not up."""
    if not _ask(f"set up ssh to {cluster}", "ssh_config", cluster=cluster):
        raise RefusedError(f"{cluster} cannot be reached: it is not up", hint="sky status")


def price(task_text: str) -> MachinePrice:
    """Return SkyPilot's choice of a machine for a task, by its price list."""
    return MachinePrice(**_ask("look up a price", "price", text=task_text))


def server_version() -> str:
    """Return the version of SkyPilot's API server, which is started if necessary."""
    return str(_ask("start SkyPilot", "server_version"))


def enabled_clouds() -> list[str]:
    """Return the clouds of which SkyPilot may choose, in lower case, by its last check."""
    return list(_ask("list the enabled clouds", "enabled_clouds"))


def check(infra: str | None) -> Check:
    """Check with a cloud, or all, whether the credentials on this machine are accepted."""
    return Check(**_ask(f"check {infra or 'all clouds'}", "check", cloud=infra))


_lock = threading.Lock()
_helper: JsonProcess | None = None
_slow_log = SlowLog(logging.getLogger(__name__), _SLOW_S)


def close() -> None:
    """Stop the helper process; the next request starts another."""
    with _lock:
        _close()


def _close() -> None:
    global _helper
    helper, _helper = _helper, None
    if helper is not None:
        helper.close()


def _ask(asked: str, call: str, *, patience: float = _PATIENCE_S, **arguments: Any) -> Any:
    global _helper
    with _lock:
        if _helper is not None and not _helper.alive:
            _close()
        if _helper is None:  # Ctrl-C is for this process to handle
            _helper = JsonProcess("orchestrator.backends.skypilot.helper", own_session=True)
        try:
            with _slow_log.watch(asked, f"waiting for SkyPilot, for up to {patience:.0f} s: {asked}"):
                _helper.send({"call": call, "asked": asked, "arguments": arguments})
                answer = _helper.receive(patience)
        except TimeoutError:
            _close()
            raise unanswered(asked, patience).error() from None
        except EOFError as error:
            lines = _helper.error_lines()
            _close()
            raise BackendUnavailableError(
                f"{asked}: SkyPilot's helper process ended: {lines[-1] if lines else 'no output'}",
                hint="orchestrate doctor --on PROFILE",
            ) from error
        except BaseException:  # Ctrl-C: the pending reply must not be read as that of the next request
            _close()
            raise
    if "failure" in answer:
        message, hint, refused = answer["failure"]
        raise Failure(message, hint, refused).error()
    return answer["value"]

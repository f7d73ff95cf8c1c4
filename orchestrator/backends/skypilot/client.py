"""What the program asks of SkyPilot, and what it is told. Everything raises :class:`BackendUnavailableError`.

A :class:`RefusedError` means no: what was asked did not happen. Any other says that nobody knows.
"""

from __future__ import annotations

import enum
import json
import logging
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.backends.skypilot.errors import Failure, unanswered
from orchestrator.backends.waiting import said_when_silent
from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.types import JobState

# The first question waits until SkyPilot is imported and its API server is up; and clouds take their time.
_PATIENCE_S = 120.0
_END_S = 900.0
# What takes longer is said; to load SkyPilot takes a few seconds by itself.
_SILENT_S = 5.0

_log = logging.getLogger(__name__)


class ClusterState(enum.Enum):
    """How an instance stands with SkyPilot. STARTING: also one that was found to be broken."""

    STARTING = "starting"
    UP = "up"
    STOPPED = "stopped"


class RequestState(enum.Enum):
    """How a request stands with the API server; UNKNOWN: it knows of none."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Request:
    """``text`` and ``hint`` say why a failed one failed, and what to type next."""

    state: RequestState
    text: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Cluster:
    """An instance that SkyPilot knows of.

    ``since``: when it was launched, in seconds since 1970. ``price_per_hour``: US dollars by SkyPilot's price
    list, ``None`` where that has none. ``autodown``: when it goes by itself, in words; "" if never.
    """

    name: str
    state: ClusterState
    since: float
    price_per_hour: float | None
    region: str
    instance_type: str
    spot: bool
    autodown: str


@dataclass(frozen=True)
class SkyTask:
    """A task on an instance; ``text`` is its state in SkyPilot's words."""

    state: JobState
    text: str


@dataclass(frozen=True)
class MachinePrice:
    """The machine that SkyPilot would take now, and US dollars for an hour of it.

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
    """Clouds that can be used, in small letters; ``why`` says what the one asked for lacks."""

    enabled: list[str]
    why: str


def validate(task_text: str) -> None:
    """SkyPilot's own check of a task file's form. Needs no server, no cloud and no network."""
    _ask("check the task file", "validate", text=task_text)


def launch(
    cluster: str,
    task_text: str,
    *,
    secrets: Mapping[str, str],
    boot: Sequence[str] = (),
    dry: bool = False,
) -> str:
    """Have an instance started, or the one of that name used, and the task run there: the request's id.

    Returns when SkyPilot has taken the request. ``secrets`` reach the task's environment and no file here.
    ``boot``: commands for a machine of AWS to run as root when it boots; other clouds have no place for them.
    """
    rest: dict[str, Any] = {"secrets": dict(secrets), "boot": list(boot), "dry": dry}
    return str(_ask(f"launch {cluster}", "launch", cluster=cluster, text=task_text, **rest))


def launching(cluster: str) -> str | None:
    """The request that is starting this instance now, if one is."""
    found = _ask(f"ask for {cluster}", "launching", cluster=cluster)
    return None if found is None else str(found)


def request_state(request: str) -> Request:
    if not request:
        return Request(RequestState.UNKNOWN)
    state, text, hint = _ask(f"ask for request {request}", "request_state", request=request)
    return Request(RequestState(state), text, hint)


def clusters(names: Collection[str] | None, refresh: bool) -> dict[str, Cluster]:
    """Instances by name; one that is not in it does not exist. ``None`` asks for all of this user.

    ``refresh`` asks the clouds, not only SkyPilot's own records; raises where one does not answer.
    """
    if names is not None and not names:
        return {}
    asked = "ask for instances" if names is None else f"ask for {', '.join(sorted(names))}"
    found = _ask(asked, "clusters", names=None if names is None else sorted(set(names)), refresh=refresh)
    return {one["name"]: Cluster(**{**one, "state": ClusterState(one["state"])}) for one in found}


_QUEUED = ("INIT", "PENDING")
_RUNNING = ("SETTING_UP", "RUNNING")


def tasks(cluster: str) -> dict[str, SkyTask]:
    """The tasks on an instance by name; of several with one name, the last."""
    found = _ask(f"ask {cluster} for its tasks", "tasks", cluster=cluster)
    return {name: _task_of(said) for name, said, _ in found}


def _task_of(said: str) -> SkyTask:
    state = JobState.QUEUED if said in _QUEUED else JobState.RUNNING if said in _RUNNING else JobState.ENDED
    return SkyTask(state, said.lower().replace("_", " "))


def cancel(cluster: str, names: Sequence[str]) -> None:
    """End tasks on an instance; those that ended are passed over."""
    _ask(f"cancel {', '.join(names)} on {cluster}", "cancel", cluster=cluster, names=list(names))


def down(cluster: str) -> None:
    """Take an instance down, also one that is being started, and return when it is gone."""
    _ask(f"take {cluster} down", "down", patience=_END_S, cluster=cluster)


def ssh_config(cluster: str) -> None:
    """See to it that `ssh CLUSTER` reaches the instance."""
    if not _ask(f"ask for the way to {cluster}", "ssh_config", cluster=cluster):
        raise RefusedError(f"{cluster} cannot be reached: it is not up", hint="sky status")


def price(task_text: str) -> MachinePrice:
    """What SkyPilot's optimizer chooses for a task, by its price list."""
    return MachinePrice(**_ask("ask for a price", "price", text=task_text))


def server_version() -> str:
    """The version of SkyPilot's API server, which is started where none runs."""
    return str(_ask("start SkyPilot", "server_version"))


def check(infra: str | None) -> Check:
    """Have SkyPilot ask a cloud, or all, whether it takes the credentials that are here."""
    return Check(**_ask(f"check {infra or 'all clouds'}", "check", cloud=infra))


class _Helper:
    """The process that :mod:`helper` is. It ends when this one does."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.backends.skypilot.helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for this process to answer
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, question: Mapping[str, Any], patience: float) -> Any:
        """The answer; ``None`` if none comes in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(patience):
                return None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()


_lock = threading.Lock()
_helper: _Helper | None = None


def close() -> None:
    """End the process that asks SkyPilot; the next question starts another."""
    global _helper
    with _lock:
        if _helper is not None:
            _helper.close()
            _helper = None


# Questions whose last answer took long.
_slow: set[str] = set()


@contextmanager
def _said_once_when_silent(asked: str, patience: float) -> Iterator[None]:
    """Log that an answer takes long: once for each time that it begins to."""
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if asked not in _slow:
            _log.warning(text)

    with said_when_silent(f"waiting for SkyPilot, for up to {patience:.0f} s: {asked}", tell, _SILENT_S):
        yield
    (_slow.add if told else _slow.discard)(asked)


def _ask(asked: str, call: str, *, patience: float = _PATIENCE_S, **arguments: Any) -> Any:
    global _helper
    question = {"call": call, "asked": asked, "arguments": arguments}
    with _lock:
        if _helper is None or not _helper.alive:
            _helper = _Helper()
        try:
            with _said_once_when_silent(asked, patience):
                answer = _helper.ask(question, patience)
        except (EOFError, OSError) as error:
            words = _helper.last_words()
            _helper.close()
            _helper = None
            raise BackendUnavailableError(
                f"{asked}: the process that asks SkyPilot ended: {words}",
                hint="orchestrate doctor --on PROFILE",
            ) from error
        except BaseException:  # Ctrl-C: the answer that is still to come is nobody's
            _helper.close()
            _helper = None
            raise
        if answer is None:
            _helper.close()
            _helper = None
            raise unanswered(asked, patience).error()
    if "trouble" in answer:
        message, hint, refused = answer["trouble"]
        raise Failure(message, hint, refused).error()
    return answer["value"]

"""Requests to a results tree behind ssh, one class per request.

:func:`parse_request` reads what ``to_json`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from orchestrator.control.submit import SubmitOptions
from orchestrator.rundir.frozen_code import SentCode


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request. ``mark``: the line after which its answer begins."""

    do: ClassVar[str]

    mark: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the request in JSON form; the fields of its decision are its own."""
        data = asdict(self)
        decision = data.pop("decision", {})
        return {"do": self.do, **data, **decision}


@dataclass(frozen=True)
class Decision:
    """The decision of the tree ``home`` that a request carries out, by its number. ``owner``: for users."""

    home: str | None
    owner: str
    number: int


@dataclass(frozen=True, kw_only=True)
class StatusRequest(Request):
    """List runs and jobs."""

    do = "status"


@dataclass(frozen=True, kw_only=True)
class LogsRequest(Request):
    """Print a run's log after the answer."""

    do = "logs"

    run: str
    attempt: int | None
    follow: bool


@dataclass(frozen=True, kw_only=True)
class DecisionRequest(Request):
    """Carry out a decision of the tree that assigned runs."""

    decision: Decision


@dataclass(frozen=True, kw_only=True)
class StopRequest(DecisionRequest):
    """Stop all workers."""

    do = "stop"


@dataclass(frozen=True, kw_only=True)
class CancelRequest(DecisionRequest):
    """Cancel runs."""

    do = "cancel"

    runs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RetryRequest(DecisionRequest):
    """Make runs pending again."""

    do = "retry"

    runs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(DecisionRequest):
    """Release runs without a worker.

    ``moved``: failed and cancelled ones, too; ``waiting``: those of queued jobs, too.
    """

    do = "release"

    runs: tuple[str, ...]
    moved: bool
    waiting: bool = False


@dataclass(frozen=True)
class SentGrid:
    """A grid's text, and its path relative to the code's folder."""

    text: str
    path: str


@dataclass(frozen=True)
class SentProfile:
    """A profile as it is for the machine that it leads to."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class PlanRequest(Request):
    """Plan the submission of these runs."""

    do = "plan"

    runs: tuple[str, ...]
    grid: SentGrid
    profile: SentProfile
    wish: SubmitOptions
    options: tuple[str, ...]
    code: SentCode


@dataclass(frozen=True, kw_only=True)
class SubmitRequest(PlanRequest, DecisionRequest):
    """Submit these runs. ``adopt``: also in a sweep that another tree assigned."""

    do = "submit"

    adopt: bool


_KINDS: Mapping[str, type[Request]] = {
    one.do: one
    for one in (
        StatusRequest,
        LogsRequest,
        StopRequest,
        CancelRequest,
        RetryRequest,
        ReleaseRequest,
        PlanRequest,
        SubmitRequest,
    )
}
_PARSED: Mapping[str, Callable[[Any], Any]] = {
    "runs": tuple,
    "options": tuple,
    "grid": lambda data: SentGrid(**data),
    "profile": lambda data: SentProfile(**data),
    "wish": lambda data: SubmitOptions(**data),
    "code": SentCode.from_json,
}


def parse_request(data: Mapping[str, Any]) -> Request:
    """Parse a request. Raises ``KeyError`` or ``TypeError`` for anything else."""
    of = _KINDS[data["do"]]
    names = {field.name for field in fields(of)}
    found = {name: _PARSED.get(name, lambda value: value)(data[name]) for name in names & data.keys()}
    if "decision" in names:
        found["decision"] = Decision(data["home"], data["owner"], data["number"])
    return of(**found)

"""Requests to a results tree behind ssh, one class per request, and their answers.

:func:`parse_request` and :func:`parse_answer` read what ``to_json`` writes. A plan is answered as
:func:`orchestrator.control.dry_run.planned` describes it, a request for logs by the log itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, TypeVar

from orchestrator.control.submit import SubmitOptions
from orchestrator.core.records import parse
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


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer to a request. ``runs``: their statuses, None if not listed; ``jobs``: by token."""

    runs: Sequence[Mapping[str, Any]] | None = None
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the answer in JSON form."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class StopAnswer(Answer):
    """``stopped``: whether all workers ended in time."""

    stopped: bool


@dataclass(frozen=True, kw_only=True)
class DecisionAnswer(Answer):
    """``concerned``: the runs that were cancelled or made pending."""

    concerned: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ReleaseAnswer(Answer):
    """``released``: runs; ``held``: why the others stay, by run id."""

    released: Sequence[str]
    held: Mapping[str, str]


@dataclass(frozen=True)
class SubmittedArray:
    """An array by its scheduler's ``id``, with its number of jobs and each job's slots."""

    id: str | None
    jobs: int
    slots: int


@dataclass(frozen=True, kw_only=True)
class SubmitAnswer(Answer):
    """A submission. ``settled``: nothing was missing; ``problems``: why nothing was submitted.

    ``to_do``: runs that were missing; ``adopted``: jobs at work before, ``queued``: in the queue before;
    ``waiting``: runs without room in the queue, with ``no_feed`` as for :class:`Plan`; ``cannot``: why runs
    could not be submitted, by run id.
    """

    settled: bool = False
    problems: Sequence[str] = ()
    to_do: int = 0
    adopted: int = 0
    queued: int = 0
    arrays: Sequence[SubmittedArray] = ()
    waiting: int = 0
    no_feed: str | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "arrays": [asdict(array) for array in self.arrays]}


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
    "options": tuple,
    "grid": lambda data: SentGrid(**data),
    "profile": lambda data: SentProfile(**data),
    "wish": lambda data: SubmitOptions(**data),
    "code": partial(parse, SentCode),
    "arrays": lambda data: [SubmittedArray(**array) for array in data],
}
A = TypeVar("A", bound=Answer)


def parse_request(data: Mapping[str, Any]) -> Request:
    """Parse a request. Raises ``KeyError`` or ``TypeError`` for anything else."""
    of = _KINDS[data["do"]]
    found = _fields_of(of, data)
    if "runs" in found:
        found["runs"] = tuple(found["runs"])
    if issubclass(of, DecisionRequest):
        found["decision"] = Decision(data["home"], data["owner"], data["number"])
    return of(**found)


def parse_answer(of: type[A], data: Mapping[str, Any]) -> A:
    """Parse an answer of this class. Raises ``TypeError`` for anything else."""
    return of(**_fields_of(of, data))


def _fields_of(of: type[Request] | type[Answer], data: Mapping[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(of)}
    return {name: _PARSED.get(name, lambda value: value)(data[name]) for name in names & data.keys()}

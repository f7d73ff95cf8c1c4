"""The entries of a sweep's ledger, one class per kind.

:func:`parse_entry` reads what ``to_json`` writes. Unknown keys are kept in ``more`` and written again. Absent
keys have defaults; a field that is ``None`` is not written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from orchestrator.rundir.frozen_code import FrozenCode, SentCode
from orchestrator.rundir.kinds import require_kinds
from orchestrator.rundir.submitted import SubmissionCost, SubmittedJob

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One decision of a user or a command. ``time`` is in epoch seconds.

    ``number`` orders all entries of a sweep; 0 for an entry not yet in the ledger.
    """

    kind: ClassVar[str]

    number: int = 0
    time: float = field(default_factory=time.time)
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _take(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Remove this kind's keys from ``data``; return the parsed fields."""
        raise NotImplementedError(f"{cls.kind}: {data}")

    def _fields(self) -> dict[str, Any]:
        """Return this kind's fields in JSON form."""
        raise NotImplementedError(self.kind)

    def to_json(self) -> dict[str, Any]:
        return {**self.more, "kind": self.kind, "time": self.time, **self._fields()}


@dataclass(frozen=True, kw_only=True)
class SubmissionEntry(LedgerEntry):
    """Jobs submitted to a backend, with their known ids.

    ``on``: the target's address; ``options``: options passed to its scheduler; ``slots``, ``canary``: as in
    the command. ``folder``: the working folder of a job without a code snapshot. ``dealt``: the target's runs
    in a sweep with several targets. ``waiting``: the queue had no room for some runs.
    """

    kind = "submission"

    jobs: tuple[SubmittedJob, ...] = ()
    job_ids: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    backend: str = "local"
    target: str = "local"
    on: str = "local"
    options: tuple[str, ...] = ()
    grid: int | None = None
    slots: int | None = None
    canary: bool = False
    trainer: str | None = None
    code: FrozenCode | None = None
    folder: str | None = None
    dealt: frozenset[str] | None = None
    waiting: bool = False
    cost: SubmissionCost = field(default_factory=SubmissionCost)

    @classmethod
    def _take(cls, data: dict[str, Any]) -> dict[str, Any]:
        if type(data["time"]) not in (int, float) or type(jobs := data.pop("jobs")) is not list:
            raise TypeError("a submission has a time and a list of jobs")
        found = {name: data.pop(name) for name in _PLAIN if name in data}
        found |= {name: _by_name(data.pop(name), str) for name in ("job_ids", "skipped")}
        found |= {name: of(data.pop(name)) for name, of in _PARSED.items() if name in data}
        cost = {name: data.pop(name) for name in SubmissionCost.__dataclass_fields__ if name in data}
        if "budget" in cost:
            cost["budget"] = math.inf if cost["budget"] is None else float(cost["budget"])
        submitted = tuple(map(SubmittedJob.from_json, jobs))
        return {**found, "jobs": submitted, "cost": require_kinds(SubmissionCost(**cost))}

    def _fields(self) -> dict[str, Any]:
        lifted = self.cost.budget is not None and math.isinf(self.cost.budget)
        return {
            **_known({name: getattr(self, name) for name in _PLAIN} | asdict(self.cost)),
            **({"budget": None} if lifted else {}),
            **({} if self.code is None else {"code": self.code.to_json()}),
            **({} if self.dealt is None else {"dealt": sorted(self.dealt)}),
            "jobs": [job.record for job in self.jobs],
            "job_ids": dict(self.job_ids),
            "skipped": dict(self.skipped),
            "options": list(self.options),
        }


_PLAIN = ("backend", "target", "on", "grid", "slots", "canary", "trainer", "folder", "waiting")
_PARSED: Mapping[str, Callable[[Any], Any]] = {
    "options": tuple,
    "code": FrozenCode.from_json,
    "dealt": frozenset,
}


@dataclass(frozen=True, kw_only=True)
class DecisionEntry(LedgerEntry, Generic[T]):
    """A decision or finding about runs, by run id."""

    runs: Mapping[str, T]


@dataclass(frozen=True, kw_only=True)
class AttemptsEntry(DecisionEntry[int]):
    """Runs, each with its newest attempt. ``why``: the reason of an automatic decision."""

    why: str | None = None

    @classmethod
    def _take(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {"runs": _by_name(data.pop("runs"), int), "why": data.pop("why", None)}

    def _fields(self) -> dict[str, Any]:
        return _known({"runs": dict(self.runs), "why": self.why})


class CancelEntry(AttemptsEntry):
    """Runs cancelled until a retry."""

    kind = "cancel"


class RetryEntry(AttemptsEntry):
    """Runs to be done again; their attempts so far are forgiven."""

    kind = "retry"


class MemoryEntry(AttemptsEntry):
    """Runs to be done again with more memory."""

    kind = "memory"


class LostEntry(AttemptsEntry):
    """Finished runs that have lost their results."""

    kind = "lost"


@dataclass(frozen=True)
class FoundResult:
    """A result that no journal records."""

    attempt: int
    frames: int | None = None
    value: float | None = None
    code_id: str | None = None

    @classmethod
    def of(cls, result: Mapping[str, Any], attempt: int = 0) -> Self:
        """Read a result file's content. ``attempt``: the default attempt."""
        frames, value = result.get("frames"), result.get("final_return")
        return cls(result.get("attempt", attempt), frames, value, result.get("code_id"))


@dataclass(frozen=True)
class FailedAttempt:
    """A failure that no journal records."""

    attempt: int
    reason: str | None = None
    message: str | None = None
    frames: int | None = None


@dataclass(frozen=True, kw_only=True)
class _EvidenceEntry(DecisionEntry[T]):
    """A finding on disk."""

    evidence: ClassVar[type]

    @classmethod
    def _take(cls, data: dict[str, Any]) -> dict[str, Any]:
        runs = data.pop("runs").items()
        return {"runs": {run_id: require_kinds(cls.evidence(**about)) for run_id, about in runs}}

    def _fields(self) -> dict[str, Any]:
        return {"runs": {run_id: dict(vars(about)) for run_id, about in self.runs.items()}}


class FoundEntry(_EvidenceEntry[FoundResult]):
    """Results found on disk."""

    kind, evidence = "found", FoundResult


class EndedEntry(_EvidenceEntry[FailedAttempt]):
    """Attempts that failed, by their end records."""

    kind, evidence = "ended", FailedAttempt


@dataclass(frozen=True)
class TreePlace:
    """A results tree behind ssh.

    ``name``: its profile's name; ``address``: the name or path that finds the profile again; ``ssh``: the
    machine's ssh name; ``folder``: the absolute path there that holds results/.
    """

    name: str
    address: str
    ssh: str
    folder: str

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the tree, through any profile."""
        return self.ssh, self.folder


@dataclass(frozen=True, kw_only=True)
class _PlaceEntry(LedgerEntry):
    """Runs assigned to, or taken from, a results tree behind ssh."""

    place: TreePlace
    run_ids: frozenset[str]

    @classmethod
    def _take(cls, data: dict[str, Any]) -> dict[str, Any]:
        place = TreePlace(**_by_name(data.pop("place"), str))
        return {"place": place, "run_ids": frozenset(_by_name(data.pop("runs"), int))}

    def _fields(self) -> dict[str, Any]:
        return {"place": asdict(self.place), "runs": _numbered(self.run_ids)}


@dataclass(frozen=True, kw_only=True)
class AssignedEntry(_PlaceEntry):
    """Runs assigned to a place, with the code sent. ``home``: this tree's unique name.

    ``accepted``: the place has confirmed runs.
    """

    kind = "assigned"

    code: SentCode
    home: str
    accepted: bool = False

    @classmethod
    def _take(cls, data: dict[str, Any]) -> dict[str, Any]:
        code, home, accepted = SentCode.from_json(data.pop("code")), data.pop("home"), data.pop("accepted")
        if type(home) is not str or type(accepted) is not bool:
            raise TypeError("an assignment names its home, and says whether it was accepted")
        return {**super()._take(data), "code": code, "home": home, "accepted": accepted}

    def _fields(self) -> dict[str, Any]:
        own = {"code": self.code.to_json(), "home": self.home, "accepted": self.accepted}
        return {**super()._fields(), **own}


class RecalledEntry(_PlaceEntry):
    """Runs recalled from a place."""

    kind = "recalled"


class ReleasedEntry(_PlaceEntry):
    """Runs that a place released."""

    kind = "released"


@dataclass(frozen=True)
class AssignedShare:
    """The runs of a sweep assigned to this tree by decision ``number`` of the tree ``home``.

    ``owner``: that tree's machine and folder, for users.
    """

    run_ids: frozenset[str]
    home: str
    owner: str
    number: int


@dataclass(frozen=True, kw_only=True)
class ShareEntry(LedgerEntry):
    """The runs of another home's sweep that are assigned to this tree."""

    kind = "share"

    share: AssignedShare

    @classmethod
    def _take(cls, data: dict[str, Any]) -> dict[str, Any]:
        runs = _by_name(data.pop("runs"), int)
        share = AssignedShare(frozenset(runs), data.pop("home"), data.pop("owner"), data.pop("number"))
        if [type(value) for value in (share.home, share.owner, share.number)] != [str, str, int]:
            raise TypeError("a share has a home, an owner and a number")
        return {"share": share}

    def _fields(self) -> dict[str, Any]:
        share = self.share
        own = {"home": share.home, "owner": share.owner, "number": share.number}
        return {"runs": _numbered(share.run_ids), **own}


@dataclass(frozen=True, kw_only=True)
class InstanceEntry(LedgerEntry):
    """The machine obtained for a job, or its proven end: ``ended``, in epoch seconds.

    ``price_per_hour``: US dollars by the backend's price list, ``None`` if unknown.
    """

    kind = "instance"

    token: str
    price_per_hour: float | None = None
    region: str = ""
    instance_type: str = ""
    spot: bool = False
    ended: float | None = None

    @classmethod
    def _take(cls, data: dict[str, Any]) -> dict[str, Any]:
        found = {name: data.pop(name) for name in _MACHINE if name in data}
        if type(found["token"]) is not str:
            raise TypeError("an instance has the token of its job")
        return found | {name: float(found[name]) for name in ("price_per_hour", "ended") if name in found}

    def _fields(self) -> dict[str, Any]:
        return _known({name: getattr(self, name) for name in _MACHINE})


_MACHINE = ("token", "price_per_hour", "region", "instance_type", "spot", "ended")


@dataclass(frozen=True, kw_only=True)
class OtherEntry(LedgerEntry):
    """An entry of an unknown kind; it has no effect."""

    kind = "other"

    name: str

    def to_json(self) -> dict[str, Any]:
        return {**self.more, "kind": self.name}


@dataclass(frozen=True, kw_only=True)
class DamagedEntry(LedgerEntry):
    """An unreadable entry and the reason. Never written."""

    kind = "damaged"

    problem: str


_KINDS: Mapping[str, type[LedgerEntry]] = {
    one.kind: one
    for one in (
        SubmissionEntry,
        CancelEntry,
        RetryEntry,
        MemoryEntry,
        LostEntry,
        FoundEntry,
        EndedEntry,
        AssignedEntry,
        RecalledEntry,
        ReleasedEntry,
        ShareEntry,
        InstanceEntry,
    )
}


def parse_entry(record: Mapping[str, Any], number: int = 0) -> LedgerEntry:
    """Parse an entry. Raises an error of :data:`~orchestrator.rundir.kinds.MALFORMED`."""
    data = dict(record)
    kind = data.pop("kind")
    if (of := _KINDS.get(kind)) is None:
        return OtherEntry(number=number, name=kind, more=data)
    fields, at = of._take(data), data.pop("time", 0.0)
    if type(at) not in (int, float):
        raise TypeError("a time is a number")
    entry = require_kinds(of(number=number, time=at, more=data, **fields))
    if not math.isfinite(entry.time):
        raise ValueError("a time is finite")
    return entry


def submissions(ledger: Iterable[LedgerEntry]) -> list[SubmissionEntry]:
    """Return the submissions of the ledger."""
    return [entry for entry in ledger if isinstance(entry, SubmissionEntry)]


def jobs_of(ledger: Iterable[LedgerEntry]) -> Iterator[tuple[SubmissionEntry, SubmittedJob]]:
    """Yield every job ever submitted, with its submission."""
    for entry in submissions(ledger):
        for job in entry.jobs:
            yield entry, job


def obtained_prices(ledger: Iterable[LedgerEntry]) -> dict[str, float]:
    """Return the highest known price per hour of the machines obtained for each job, by token."""
    found: dict[str, float] = {}
    for entry in ledger:
        if isinstance(entry, InstanceEntry) and entry.price_per_hour is not None:
            found[entry.token] = max(entry.price_per_hour, found.get(entry.token, 0.0))
    return found


def _by_name(value: Any, of: type) -> dict[str, Any]:
    if type(value) is not dict or any(type(item) is not of for item in value.values()):
        raise TypeError(f"expected {of.__name__} by name, found {value!r}"[:200])
    return value


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _numbered(run_ids: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(sorted(run_ids), 0)

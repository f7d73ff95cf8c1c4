"""The entries of a sweep's ledger, one class per kind.

:func:`parse_entry` reads what ``to_json`` writes. Unknown keys are kept in ``more`` and written again. Absent
keys have defaults; a field that is ``None`` is not written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from orchestrator.core.records import parse, plain
from orchestrator.core.types import Int64, Job, Reason, Value
from orchestrator.rundir.frozen_code import FrozenCode, SentCode
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.records.submitted import SubmissionCost

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

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in plain(self).items() if value is not None}
        del fields["number"], fields["more"]
        return {**self.more, "kind": self.kind, **fields}


@dataclass(frozen=True, kw_only=True)
class SubmissionEntry(LedgerEntry):
    """Jobs submitted to a backend, with their known ids.

    ``on``: the target's address; ``options``: options passed to its scheduler; ``slots``, ``canary``: as in
    the command. ``folder``: the working folder of a job without a code snapshot. ``dealt``: the target's runs
    in a sweep with several targets. ``waiting``: the queue had no room for some runs. ``notify``: the command
    that sends messages.
    """

    kind = "submission"

    jobs: tuple[Job, ...]
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
    notify: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class AddEntry(LedgerEntry):
    """Points added to the grid's: of each all keys of the trainer, and the seed.

    ``by``: what added them; ``why``: what that rested on; ``round``: of its decisions, counted from 1.
    """

    kind = "add"

    points: tuple[Mapping[str, Value], ...]
    by: str
    why: str
    round: int = 1


@dataclass(frozen=True, kw_only=True)
class DecisionEntry(LedgerEntry, Generic[T]):
    """A decision or finding about runs, by run id."""

    runs: Mapping[str, T]


@dataclass(frozen=True)
class Beginning:
    """The frames of the shorter run that a run goes on from, and those at the end."""

    frames: Int64
    total: Int64


class PrefixEntry(DecisionEntry[Beginning]):
    """Runs that go on from finished shorter ones."""

    kind = "prefix"


@dataclass(frozen=True, kw_only=True)
class AttemptsEntry(DecisionEntry[Int64]):
    """Runs, each with its newest attempt. ``why``: the reason of an automatic decision."""

    why: str | None = None


class CancelEntry(AttemptsEntry):
    """Runs cancelled until a retry."""

    kind = "cancel"


class ReturnedEntry(CancelEntry):
    """Runs cancelled here because they went back to the tree that had assigned them."""

    kind = "returned"


class RetryEntry(AttemptsEntry):
    """Runs to be done again; their attempts so far are forgiven."""

    kind = "retry"

    @property
    def needs_another_job(self) -> bool:
        """Whether the runs need more than jobs submitted before have: automatic retries, another machine."""
        return self.why is not None


class MemoryEntry(RetryEntry):
    """Runs to be done again with more memory."""

    kind = "memory"

    @property
    def needs_another_job(self) -> bool:
        return True


class LostEntry(AttemptsEntry):
    """Finished runs that have lost their results."""

    kind = "lost"


class Change(NamedTuple):
    """A file with its hash in a run's program and in a later one, ``None`` where absent.

    Without a name: the ids of the whole code.
    """

    name: str
    was: str | None
    now: str | None


@dataclass(frozen=True, kw_only=True)
class AcceptEntry(LedgerEntry):
    """Changes of code that do not make these runs stale. ``by``: the user's name on the machine."""

    kind = "accept"

    run_ids: frozenset[str]
    changes: tuple[Change, ...]
    by: str = ""


@dataclass(frozen=True)
class FoundResult:
    """A result that no journal records."""

    attempt: Int64
    frames: Int64 | None = None
    value: float | None = None
    code_id: str | None = None

    @classmethod
    def of(cls, result: Result) -> Self:
        return cls(result.attempt, result.frames, result.final_return, result.code_id)


@dataclass(frozen=True)
class FailedAttempt:
    """A failure that no journal records."""

    attempt: Int64
    reason: Reason | None = None
    message: str | None = None
    frames: Int64 | None = None


class FoundEntry(DecisionEntry[FoundResult]):
    """Results found on disk."""

    kind = "found"


class EndedEntry(DecisionEntry[FailedAttempt]):
    """Attempts that failed, by their end records."""

    kind = "ended"


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


@dataclass(frozen=True, kw_only=True)
class AssignedEntry(_PlaceEntry):
    """Runs assigned to a place, with the code sent. ``home``: this tree's unique name.

    ``accepted``: the place has confirmed runs.
    """

    kind = "assigned"

    code: SentCode
    home: str
    accepted: bool = False


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
        AddEntry,
        PrefixEntry,
        CancelEntry,
        ReturnedEntry,
        RetryEntry,
        MemoryEntry,
        AcceptEntry,
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
    """Parse an entry. Raises an error of :data:`~orchestrator.rundir.files.kinds.MALFORMED`."""
    data = {name: value for name, value in record.items() if name != "kind"}
    if (of := _KINDS.get(kind := record["kind"])) is None:
        return OtherEntry(number=number, name=kind, more=data)
    more = {name: value for name, value in data.items() if name not in of.__dataclass_fields__}
    entry = parse(of, {"time": 0.0, **data, "number": number, "more": more})
    if not math.isfinite(entry.time):
        raise ValueError("a time is finite")
    return entry


def submissions(ledger: Iterable[LedgerEntry]) -> list[SubmissionEntry]:
    """Return the submissions of the ledger."""
    return [entry for entry in ledger if isinstance(entry, SubmissionEntry)]


def added_points(ledger: Iterable[LedgerEntry]) -> tuple[Mapping[str, Value], ...]:
    """Return the points that the ledger adds to the grid's."""
    return tuple(point for entry in ledger if isinstance(entry, AddEntry) for point in entry.points)


def jobs_of(ledger: Iterable[LedgerEntry]) -> Iterator[tuple[SubmissionEntry, Job]]:
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

"""Assign each run to one results tree at a time, as claims never span file systems. Pure.

Home, the tree of the submitting user, enters in its ledger the runs it assigns (``assigned``), recalls
(``recalled``) and gets back (``released``). The numbers of these entries order its decisions, however late
they arrive: the other tree enters the runs (``share``) with the decision's number and its home, and accepts
no older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from orchestrator.rundir import LedgerEntry

ASSIGNED, RECALLED, RELEASED, SHARE = "assigned", "recalled", "released", "share"


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


@dataclass(frozen=True)
class SentCode:
    """A code snapshot sent to a place: its id, and paths relative to its own folder.

    ``cwd`` is None if the folder of the call has no part in it.
    """

    id: str
    python_path: tuple[str, ...]
    cwd: str | None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["id"], tuple(data["python_path"]), data["cwd"])

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "python_path": list(self.python_path), "cwd": self.cwd}


@dataclass(frozen=True)
class AssignedRuns:
    """The runs of a sweep at a place, and the code sent last.

    ``accepted``: the place has confirmed runs. ``number``: the latest decision.
    """

    place: TreePlace
    code: SentCode
    run_ids: frozenset[str]
    accepted: bool = False
    number: int = 0


@dataclass(frozen=True)
class AssignedShare:
    """The runs of a sweep assigned to this tree by decision ``number`` of the tree ``home``.

    ``owner``: that tree's machine and folder, for users.
    """

    run_ids: frozenset[str]
    home: str
    owner: str
    number: int


def entry(place: TreePlace, code: SentCode, run_ids: Iterable[str], home: str, now: float) -> dict[str, Any]:
    """Return the ledger's data of an assignment. ``now`` is in epoch seconds."""
    given = {"place": asdict(place), "code": code.to_json(), "runs": dict.fromkeys(sorted(run_ids), 0)}
    return {"time": now, "home": home, "accepted": False, **given}


def about(place: TreePlace, run_ids: Iterable[str], now: float) -> dict[str, Any]:
    """Return the ledger's data of recalled or released runs."""
    return {"time": now, "place": asdict(place), "runs": dict.fromkeys(sorted(run_ids), 0)}


def home_of(ledger: Sequence[LedgerEntry]) -> str | None:
    """Return the unique name by which this tree assigned runs; None if it never did."""
    return next((one.data["home"] for one in ledger if one.kind == ASSIGNED), None)


def assigned(ledger: Sequence[LedgerEntry]) -> list[AssignedRuns]:
    """Return every place that ever got runs, with those it still has, in order of first assignment."""
    places: dict[tuple[str, str], AssignedRuns] = {}
    holders: dict[str, tuple[str, str]] = {}
    for one in ledger:
        if one.kind == ASSIGNED:
            place = TreePlace(**one.data["place"])
            before = places.get(place.key)
            accepted = one.data["accepted"] or (before is not None and before.accepted)
            code = SentCode.from_json(one.data["code"])
            places[place.key] = AssignedRuns(place, code, frozenset(), accepted, one.number)
            holders |= dict.fromkeys(one.data["runs"], place.key)
        elif one.kind == RECALLED:
            key = TreePlace(**one.data["place"]).key
            if key in places:
                places[key] = replace(places[key], number=one.number)
        elif one.kind == RELEASED:
            key = TreePlace(**one.data["place"]).key
            holders = {run: at for run, at in holders.items() if at != key or run not in one.data["runs"]}
            if key in places and key not in holders.values():
                places[key] = replace(places[key], accepted=False)
    runs: dict[tuple[str, str], set[str]] = {key: set() for key in places}
    for run_id, key in holders.items():
        runs[key].add(run_id)
    return [replace(one, run_ids=frozenset(runs[key])) for key, one in places.items()]


def share(ledger: Sequence[LedgerEntry]) -> AssignedShare | None:
    """Return the runs of another home's sweep assigned to this tree; None if all runs are its own."""
    for one in reversed(ledger):
        if one.kind == SHARE:
            data = one.data
            return AssignedShare(frozenset(data["runs"]), data["home"], data["owner"], data["number"])
    return None


def share_entry(share: AssignedShare, now: float) -> dict[str, Any]:
    """Return the ledger's data of a share."""
    runs = dict.fromkeys(sorted(share.run_ids), 0)
    return {"time": now, "home": share.home, "owner": share.owner, "number": share.number, "runs": runs}


def given_back(ledger: Sequence[LedgerEntry]) -> frozenset[str]:
    """Return the runs that this tree released and was not assigned again."""
    found: set[str] = set()
    for one in ledger:
        if one.kind == "cancel" and one.data.get("why") == RELEASED:
            found |= set(one.data["runs"])
        elif one.kind == "retry":
            found -= set(one.data["runs"])
    return frozenset(found)

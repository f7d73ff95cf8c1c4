"""Which results tree may run a run: claims never span file systems, so a run is one tree's at a time. Pure.

The tree that a person submits from, home, enters in its ledger what it gives away (``assigned``), what it
wants back (``recalled``) and what came back (``released``). The numbers of these entries put its decisions in
order, however late they arrive: the other tree enters with what it was given (``share``) by which decision of
which home, and takes no older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from orchestrator.rundir import LedgerEntry

ASSIGNED, RECALLED, RELEASED, SHARE = "assigned", "recalled", "released", "share"


@dataclass(frozen=True)
class TreePlace:
    """A results tree behind ssh. ``name`` is its profile's, ``address`` by what that is found again.

    ``ssh`` is the machine as ssh knows it, ``folder`` the absolute path there that holds results/.
    """

    name: str
    address: str
    ssh: str
    folder: str

    @property
    def key(self) -> tuple[str, str]:
        """What makes it that tree, whichever profile leads there."""
        return self.ssh, self.folder


@dataclass(frozen=True)
class SentCode:
    """Code as it was sent to a place: its id, and paths relative to the code's own folder.

    ``cwd`` is None where the folder of the call had no part in it.
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
    """What a place has of a sweep: runs, and the code that was sent last.

    ``accepted``: it has answered that it took runs up. ``number`` is that of the latest decision.
    """

    place: TreePlace
    code: SentCode
    run_ids: frozenset[str]
    accepted: bool = False
    number: int = 0


@dataclass(frozen=True)
class AssignedShare:
    """What a tree was given of a sweep: runs, by decision ``number`` of the tree ``home``.

    ``owner`` is that tree's machine and folder, for people.
    """

    run_ids: frozenset[str]
    home: str
    owner: str
    number: int


def entry(place: TreePlace, code: SentCode, run_ids: Iterable[str], home: str, now: float) -> dict[str, Any]:
    """What the ledger keeps of an assignment. ``now`` is in epoch seconds."""
    given = {"place": asdict(place), "code": code.to_json(), "runs": dict.fromkeys(sorted(run_ids), 0)}
    return {"time": now, "home": home, "accepted": False, **given}


def about(place: TreePlace, run_ids: Iterable[str], now: float) -> dict[str, Any]:
    """What the ledger keeps of runs that are asked back, or came back."""
    return {"time": now, "place": asdict(place), "runs": dict.fromkeys(sorted(run_ids), 0)}


def home_of(ledger: Sequence[LedgerEntry]) -> str | None:
    """The name, by no other's, that this tree goes by where it gave runs; ``None`` if it never did."""
    return next((one.data["home"] for one in ledger if one.kind == ASSIGNED), None)


def assigned(ledger: Sequence[LedgerEntry]) -> list[AssignedRuns]:
    """Every place that was ever given runs, with those that it still has, in the order of the first time."""
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
    """What this tree was given of a sweep that another one holds; ``None`` where all runs are its own."""
    for one in reversed(ledger):
        if one.kind == SHARE:
            data = one.data
            return AssignedShare(frozenset(data["runs"]), data["home"], data["owner"], data["number"])
    return None


def share_entry(share: AssignedShare, now: float) -> dict[str, Any]:
    """What the ledger keeps of a share."""
    runs = dict.fromkeys(sorted(share.run_ids), 0)
    return {"time": now, "home": share.home, "owner": share.owner, "number": share.number, "runs": runs}


def given_back(ledger: Sequence[LedgerEntry]) -> frozenset[str]:
    """Runs that this tree released and was not given again."""
    found: set[str] = set()
    for one in ledger:
        if one.kind == "cancel" and one.data.get("why") == RELEASED:
            found |= set(one.data["runs"])
        elif one.kind == "retry":
            found -= set(one.data["runs"])
    return frozenset(found)

"""Assign each run to one results tree at a time, as claims never span file systems. Pure.

Home, the tree of the submitting user, enters in its ledger the runs it assigns (``assigned``), recalls
(``recalled``) and gets back (``released``). The numbers of these entries order assignments and recalls,
however late they arrive: the other tree enters the runs (``share``) with the decision's number and its home,
and accepts no older one. A cancellation or a retry has the number of the latest of them: it is refused after
a later one, and not ordered with other cancellations and retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.rundir import LedgerEntry
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import (
    AssignedEntry,
    AssignedShare,
    RecalledEntry,
    ReleasedEntry,
    RetryEntry,
    ReturnedEntry,
    ShareEntry,
    TreePlace,
)


@dataclass(frozen=True)
class TreeAssignment:
    """The runs of a sweep at a place, and the code sent last.

    ``accepted``: the place has confirmed runs. ``number``: the latest decision.
    """

    place: TreePlace
    code: SentCode
    run_ids: frozenset[str]
    accepted: bool = False
    number: int = 0


def home_of(ledger: Sequence[LedgerEntry]) -> str | None:
    """Return the unique name by which this tree assigned runs; None if it never did."""
    return next((one.home for one in ledger if isinstance(one, AssignedEntry)), None)


def assigned(ledger: Sequence[LedgerEntry]) -> list[TreeAssignment]:
    """Return every place that ever got runs, with those it still has, in order of first assignment."""
    places: dict[tuple[str, str], TreeAssignment] = {}
    holders: dict[str, tuple[str, str]] = {}
    for one in ledger:
        if isinstance(one, AssignedEntry):
            key = one.place.key
            accepted = one.accepted or (key in places and places[key].accepted)
            places[key] = TreeAssignment(one.place, one.code, frozenset(), accepted, one.number)
            holders |= dict.fromkeys(one.run_ids, key)
        elif isinstance(one, RecalledEntry):
            if (key := one.place.key) in places:
                places[key] = replace(places[key], number=one.number)
        elif isinstance(one, ReleasedEntry):
            key = one.place.key
            holders = {run: at for run, at in holders.items() if at != key or run not in one.run_ids}
            if key in places and key not in holders.values():
                places[key] = replace(places[key], accepted=False)
    runs: dict[tuple[str, str], set[str]] = {key: set() for key in places}
    for run_id, key in holders.items():
        runs[key].add(run_id)
    return [replace(one, run_ids=frozenset(runs[key])) for key, one in places.items()]


def share(ledger: Sequence[LedgerEntry]) -> AssignedShare | None:
    """Return the runs of another home's sweep assigned to this tree; None if all runs are its own."""
    return next((one.share for one in reversed(ledger) if isinstance(one, ShareEntry)), None)


def given_back(ledger: Sequence[LedgerEntry]) -> frozenset[str]:
    """Return the runs that this tree released and was not assigned again."""
    found: set[str] = set()
    for one in ledger:
        if isinstance(one, ReturnedEntry):
            found |= one.runs.keys()
        elif isinstance(one, RetryEntry):
            found -= one.runs.keys()
    return frozenset(found)

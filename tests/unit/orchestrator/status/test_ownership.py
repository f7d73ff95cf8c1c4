"""Which tree may run a run: at any time one, whatever was entered before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.records import plain
from orchestrator.rundir import LedgerEntry, SweepDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import (
    AssignedEntry,
    AssignedShare,
    CancelEntry,
    RecalledEntry,
    ReleasedEntry,
    RetryEntry,
    ReturnedEntry,
    ShareEntry,
    TreePlace,
)
from orchestrator.status.ownership import assigned, given_back, home_of, share
from tests.helpers import enter

PLACES = [
    TreePlace(name, f"/{name}.yaml", ssh, "/w") for name, ssh in (("a", "one"), ("b", "two"), ("c", "one"))
]
CODE = SentCode("0123456789abcdef", ("tree", "ours"), None)
RUNS = ["r1", "r2", "r3"]

Decision = tuple[type[AssignedEntry | RecalledEntry | ReleasedEntry], TreePlace, set[str]]
decisions = st.lists(
    st.tuples(
        st.sampled_from([AssignedEntry, RecalledEntry, ReleasedEntry]),
        st.sampled_from(PLACES),
        st.sets(st.sampled_from(RUNS)),
    )
)


def ledger(taken: list[Decision]) -> list[LedgerEntry]:
    return [made(number, *decision) for number, decision in enumerate(taken, start=1)]


def made(number: int, kind: type[LedgerEntry], place: TreePlace, runs: set[str]) -> LedgerEntry:
    more: dict[str, Any] = {"code": CODE, "home": "home"} if kind is AssignedEntry else {}
    return kind(number=number, place=place, run_ids=frozenset(runs), **more)


@given(decisions)
def test_a_run_has_the_tree_that_it_was_given_to_last_until_that_one_releases_it(
    taken: list[Decision],
) -> None:
    expected: dict[str, tuple[str, str]] = {}
    for kind, place, runs in taken:
        for run_id in runs:
            if kind is AssignedEntry:
                expected[run_id] = place.key
            elif kind is ReleasedEntry and expected.get(run_id) == place.key:
                del expected[run_id]
    found = assigned(ledger(taken))
    pairs = [(run_id, one.place.key) for one in found for run_id in one.run_ids]
    assert len({run_id for run_id, _ in pairs}) == len(pairs), "a run has two trees"
    assert dict(pairs) == expected
    for one in found:
        told = [number for number, (kind, place, _) in enumerate(taken, 1) if place.key == one.place.key]
        decided = [number for number in told if taken[number - 1][0] is not ReleasedEntry]
        first = next(number for number in told if taken[number - 1][0] is AssignedEntry)
        assert (one.code, one.number) == (CODE, max(number for number in decided if number >= first))
    assert home_of(ledger(taken)) == ("home" if found else None)


def test_two_profiles_of_one_tree_are_one_tree() -> None:
    first, _, same_tree = PLACES
    (one,) = assigned(ledger([(AssignedEntry, first, {"r1"}), (AssignedEntry, same_tree, {"r2"})]))
    assert (one.place, one.run_ids) == (same_tree, {"r1", "r2"})


@given(st.lists(st.tuples(st.sampled_from(["cancel", "release", "retry"]), st.sets(st.sampled_from(RUNS)))))
def test_what_a_tree_gave_back(taken: list[tuple[str, set[str]]]) -> None:
    expected: set[str] = set()
    entries = []
    for number, (kind, runs) in enumerate(taken, start=1):
        of = {"retry": RetryEntry, "release": ReturnedEntry, "cancel": CancelEntry}[kind]
        entries.append(of(number=number, runs=dict.fromkeys(runs, 0)))
        if kind == "release":
            expected |= runs
        elif kind == "retry":
            expected -= runs
    assert given_back(entries) == expected


def test_the_share_is_the_latest_one(results: Path) -> None:
    sweep = SweepDir(results, "tiny")
    sweep.create()
    assert share(sweep.read_ledger()) is None
    for number, runs in enumerate((["r1", "r2"], []), start=4):
        given = AssignedShare(frozenset(runs), "home", "laptop:/proj", number)
        sweep.add_to_ledger(ShareEntry(share=given))
        assert share(sweep.read_ledger()) == given


def test_a_place_has_accepted_until_it_has_nothing_left() -> None:
    first, other, _ = PLACES
    given, other_given = ledger([(AssignedEntry, first, {"r1", "r2"}), (AssignedEntry, other, set())])
    assert isinstance(given, AssignedEntry)
    taken = [replace(given, accepted=True), other_given, made(3, ReleasedEntry, first, {"r1"})]
    assert [one.accepted for one in assigned(taken)] == [True, False]
    gone = made(4, ReleasedEntry, first, {"r2"})
    assert [one.accepted for one in assigned([*taken, gone])] == [False, False]


def test_an_entry_of_the_wrong_shape_gives_nothing_to_anybody(results: Path) -> None:
    sweep = SweepDir(results, "tiny")
    sweep.create()
    enter(sweep, "assigned", {"place": ["/etc"], "run_ids": ["r1"]})
    enter(sweep, "assigned", {"place": {"name": "a"}, "code": {}, "run_ids": ["r1"]})
    whole = made(1, AssignedEntry, PLACES[0], {"r1"}).to_json()
    for name, wrong in (("home", 1), ("accepted", 1), ("code", {**plain(CODE), "python_path": [1]})):
        enter(sweep, "assigned", {**whole, name: wrong})
    enter(
        sweep,
        "share",
        {"share": {"run_ids": ["r1"], "home": "home", "owner": "me", "number": "1"}},
    )
    assert {one.kind for one in sweep.read_ledger()} == {"damaged"}
    assert assigned(sweep.read_ledger()) == []
    assert share(sweep.read_ledger()) is None

"""Which tree may run a run: at any time one, whatever was entered before."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rundir import LedgerEntry, SweepDir
from orchestrator.status.ownership import (
    ASSIGNED,
    RECALLED,
    RELEASED,
    SHARE,
    AssignedShare,
    SentCode,
    TreePlace,
    about,
    assigned,
    entry,
    given_back,
    home_of,
    share,
    share_entry,
)

PLACES = [
    TreePlace(name, f"/{name}.yaml", ssh, "/w") for name, ssh in (("a", "one"), ("b", "two"), ("c", "one"))
]
CODE = SentCode("0123456789abcdef", ("tree", "ours"), None)
RUNS = ["r1", "r2", "r3"]

decisions = st.lists(
    st.tuples(
        st.sampled_from([ASSIGNED, RECALLED, RELEASED]),
        st.sampled_from(PLACES),
        st.sets(st.sampled_from(RUNS)),
    )
)


def ledger(taken: list[tuple[str, TreePlace, set[str]]]) -> list[LedgerEntry]:
    def data(kind: str, place: TreePlace, runs: set[str]) -> dict[str, object]:
        made = entry(place, CODE, runs, "home", 1.0) if kind == ASSIGNED else about(place, runs, 1.0)
        return dict(json.loads(json.dumps(made)))  # as it comes back from a file

    return [
        LedgerEntry(number, kind, data(kind, *rest)) for number, (kind, *rest) in enumerate(taken, start=1)
    ]


@given(decisions)
def test_a_run_has_the_tree_that_it_was_given_to_last_until_that_one_releases_it(
    taken: list[tuple[str, TreePlace, set[str]]],
) -> None:
    expected: dict[str, tuple[str, str]] = {}
    for kind, place, runs in taken:
        for run_id in runs:
            if kind == ASSIGNED:
                expected[run_id] = place.key
            elif kind == RELEASED and expected.get(run_id) == place.key:
                del expected[run_id]
    found = assigned(ledger(taken))
    pairs = [(run_id, one.place.key) for one in found for run_id in one.run_ids]
    assert len({run_id for run_id, _ in pairs}) == len(pairs), "a run has two trees"
    assert dict(pairs) == expected
    for one in found:
        told = [number for number, (kind, place, _) in enumerate(taken, 1) if place.key == one.place.key]
        decided = [number for number in told if taken[number - 1][0] != RELEASED]
        first = next(number for number in told if taken[number - 1][0] == ASSIGNED)
        assert (one.code, one.number) == (CODE, max(number for number in decided if number >= first))
    assert home_of(ledger(taken)) == ("home" if found else None)


def test_two_profiles_of_one_tree_are_one_tree() -> None:
    first, _, same_tree = PLACES
    (one,) = assigned(ledger([(ASSIGNED, first, {"r1"}), (ASSIGNED, same_tree, {"r2"})]))
    assert (one.place, one.run_ids) == (same_tree, {"r1", "r2"})


@given(st.lists(st.tuples(st.sampled_from(["cancel", "release", "retry"]), st.sets(st.sampled_from(RUNS)))))
def test_what_a_tree_gave_back(taken: list[tuple[str, set[str]]]) -> None:
    expected: set[str] = set()
    entries = []
    for number, (kind, runs) in enumerate(taken, start=1):
        why = {"why": RELEASED} if kind == "release" else {}
        named = "cancel" if kind == "release" else kind
        entries.append(LedgerEntry(number, named, {"runs": dict.fromkeys(runs, 0), **why}))
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
        sweep.add_to_ledger(SHARE, share_entry(given, 1.0))
        assert share(sweep.read_ledger()) == given


def test_a_place_has_accepted_until_it_has_nothing_left() -> None:
    first, other, _ = PLACES
    taken = ledger([(ASSIGNED, first, {"r1", "r2"}), (ASSIGNED, other, set()), (RELEASED, first, {"r1"})])
    taken[0].data["accepted"] = True  # type: ignore[index]
    assert [one.accepted for one in assigned(taken)] == [True, False]
    gone = LedgerEntry(4, RELEASED, about(first, ["r2"], 1.0))
    assert [one.accepted for one in assigned([*taken, gone])] == [False, False]


def test_an_entry_of_the_wrong_shape_gives_nothing_to_anybody(results: Path) -> None:
    sweep = SweepDir(results, "tiny")
    sweep.create()
    sweep.add_to_ledger(ASSIGNED, {"place": ["/etc"], "runs": {"r1": 0}})
    sweep.add_to_ledger(ASSIGNED, {"place": {"name": "a"}, "code": {}, "runs": {"r1": 0}})
    whole = entry(PLACES[0], CODE, ["r1"], "home", 1.0)
    for name, wrong in (("home", 1), ("accepted", 1), ("code", {**CODE.to_json(), "python_path": [1]})):
        sweep.add_to_ledger(ASSIGNED, {**whole, name: wrong})
    sweep.add_to_ledger(SHARE, {"runs": {"r1": 0}, "home": "home", "owner": "me", "number": "1"})
    assert {one.kind for one in sweep.read_ledger()} == {"damaged"}
    assert assigned(sweep.read_ledger()) == []
    assert share(sweep.read_ledger()) is None

"""Which final returns can be ranked, and how it is said where they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.analysis.groups.comparability import ReturnTerms, classes, differences, mixed_code, terms_of

EVAL, COLLECTION = "eval/reward/episode_reward_mean", "collection/reward/episode_reward_mean"


def row(metric: str | None = EVAL, frames: int | None = 6000, episodes: int | None = 10) -> dict[str, Any]:
    return {
        "final_return": 1.0,
        "return_metric": metric,
        "frames": frames,
        "evaluation_episodes": episodes,
    }


def test_the_terms_of_a_group_are_those_of_its_runs_with_a_return() -> None:
    assert terms_of([row(), row(frames=6400)]) == ReturnTerms(EVAL, 6200.0, "10")
    assert terms_of([row(), {**row(COLLECTION), "final_return": None}]) == ReturnTerms(EVAL, 6000.0, "10")
    assert terms_of([row(), row(COLLECTION)]).metric == f"{COLLECTION} and {EVAL}"
    assert terms_of([row(COLLECTION)]).episodes is None, "it is no evaluation"
    assert terms_of([row("return")]) == ReturnTerms("return", 6000.0, None)
    assert terms_of([row(None, None, None)]) == terms_of([]) == ReturnTerms(None, None, None)


def test_a_batch_over_the_end_makes_no_other_length() -> None:
    terms = {
        name: ReturnTerms(EVAL, frames, "10") for name, frames in (("a", 60_000), ("b", 64_000), ("c", 360))
    }
    assert classes(terms.items()) == [["c"], ["a", "b"]]
    assert differences(list(terms.items())) == [
        "trained for different lengths: 60,000 to 64,000 frames (a, b); 360 frames (c)"
    ]


def test_metrics_and_episodes_are_told_apart() -> None:
    named = [
        ("ours", ReturnTerms(EVAL, 6000, "10")),
        ("mine", ReturnTerms(EVAL, 6000, "10")),
        ("theirs", ReturnTerms(EVAL, 6000, "2")),
        ("unsaid", ReturnTerms(EVAL, 6000, None)),
        ("raw", ReturnTerms(COLLECTION, 6000, None)),
    ]
    assert classes(named) == [["ours", "mine"], ["theirs"], ["unsaid"], ["raw"]]
    assert differences(named) == [
        "final returns are of different metrics: evaluation (ours, mine, theirs, unsaid); collection (raw)",
        "evaluated in different numbers of episodes: 10 episodes (ours, mine); 2 episodes (theirs); "
        "unknown episodes (unsaid)",
    ]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (f"{COLLECTION} and {EVAL}", "evaluation (a); collection and evaluation (b)"),
        ("eval/return", f"{EVAL} (a); eval/return (b)"),
    ],
)
def test_every_difference_of_metrics_is_named(other: str, told: str) -> None:
    named = [("a", ReturnTerms(EVAL, 6000, None)), ("b", ReturnTerms(other, 6000, None))]
    assert len(classes(named)) == 2
    assert differences(named) == [f"final returns are of different metrics: {told}"]


def test_runs_that_train_for_as_many_minutes_are_as_long_whatever_their_frames() -> None:
    fast, slow = ([{**row(frames=frames), "minutes": 5}] for frames in (9000, 3000))
    named = [("fast", terms_of(fast)), ("slow", terms_of(slow)), ("frames", terms_of([row()]))]
    assert classes(named) == [["fast", "slow"], ["frames"]]
    assert differences(named[:2]) == []
    assert differences(named) == [
        "trained for different lengths: 5 minutes (fast, slow); 6,000 frames (frames)"
    ]


def test_what_is_alike_or_unknown_everywhere_is_not_flagged() -> None:
    assert differences([("a", ReturnTerms(EVAL, 6000, "10")), ("b", ReturnTerms(EVAL, 6300, "10"))]) == []
    assert differences([("a", ReturnTerms(None, None, None)), ("b", ReturnTerms(None, None, None))]) == []
    assert differences([]) == []
    unknown = [("a", ReturnTerms("return", None, None)), ("b", ReturnTerms("return", 5.0, None))]
    assert differences(unknown) == [
        "trained for different lengths: an unknown number of frames (a); 5 frames (b)"
    ]


def test_what_older_code_trained_is_not_ranked_beside_what_todays_did() -> None:
    old, new = ({**row(), "state": state, "code_id": state} for state in ("stale", "done"))
    named = [("a", terms_of([old])), ("b", terms_of([new, {**new}]))]
    assert classes(named) == [["a"], ["b"]]
    told = "trained by different code: older code stale (a); today's code done (b)"
    assert differences(named) == [told]
    assert mixed_code(named) == []


@pytest.mark.parametrize("state", ["done", "stale"])
def test_variants_of_a_sweep_that_different_code_trained_are_not_ranked(state: str) -> None:
    """On a copy nothing is stale: there is no code of today to hold results against."""

    def of(sweep: str, code: str | None) -> ReturnTerms:
        return terms_of([{**row(), "sweep": sweep, "state": state, "code_id": code}])

    named = [("a", of("one", "0a")), ("b", of("one", "0b")), ("c", of("one", "0a"))]
    assert classes(named) == [["a", "c"], ["b"]]
    code = "older code" if state == "stale" else "code"
    assert differences(named) == [f"trained by different code: {code} 0a (a, c); {code} 0b (b)"]
    programs = [("a", of("one", "0a")), ("b", of("other", "0b")), ("c", of("one", None))]
    assert classes(programs) == [["a", "b", "c"]], "two programs, a sweep each"
    assert differences(programs) == []


def test_code_that_was_accepted_counts_as_the_code_that_it_was_accepted_beside() -> None:
    before = terms_of([{**row(), "sweep": "one", "code_id": "0a", "accepted_as": "0b"}])
    after = terms_of([{**row(), "sweep": "one", "code_id": "0b", "accepted_as": None}])
    assert classes([("a", before), ("b", after)]) == [["a", "b"]]


def test_an_average_over_different_code_is_flagged() -> None:
    mixed = terms_of([{**row(), "code_id": code} for code in ("0a", "0a", "0b", None)])
    named = [("plain", terms_of([{**row(), "code_id": "0a"}])), ("edited", mixed)]
    assert mixed_code(named) == [
        "results of different code are averaged together: 2 × 0a and 1 × 0b (edited)"
    ]
    assert differences(named) == ["trained by different code: code 0a (plain); code 0a and 0b (edited)"]


@pytest.mark.parametrize("other", ["aab", "abb", "aaabbb"])
def test_mixtures_of_code_in_about_equal_shares_are_ranked(other: str) -> None:
    one, two = (terms_of([{**row(), "code_id": code} for code in codes]) for codes in ("abaab", other))
    assert classes([("one", one), ("two", two)]) == [["one", "two"]]


def test_mixtures_of_code_in_other_shares_are_not_ranked() -> None:
    one, two = (terms_of([{**row(), "code_id": code} for code in codes]) for codes in ("aaab", "abbb"))
    named = [("one", one), ("two", two), ("three", one)]
    assert classes(named) == [["one", "three"], ["two"]]
    assert differences(named) == [
        "trained by different code: code 3 × a and 1 × b (one, three); code 1 × a and 3 × b (two)"
    ]


LONG = 100_000


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (
            row(),
            row(COLLECTION, episodes=None),
            "returns of different metrics are averaged together: "
            "3 × collection and 1 × evaluation (a); 1 × collection and 3 × evaluation (b)",
        ),
        (
            row(),
            row("eval/return"),
            "returns of different metrics are averaged together: "
            f"3 × eval/return and 1 × {EVAL} (a); 1 × eval/return and 3 × {EVAL} (b)",
        ),
        (
            row(frames=1000),
            row(frames=LONG),
            "returns after different lengths are averaged together: "
            "1 × 1,000 frames and 3 × 100,000 frames (a); 3 × 1,000 frames and 1 × 100,000 frames (b)",
        ),
        (
            {**row(), "minutes": 5},
            row(),
            "returns after different lengths are averaged together: "
            "1 × 5 minutes and 3 × 6,000 frames (a); 3 × 5 minutes and 1 × 6,000 frames (b)",
        ),
        (
            row(episodes=2),
            row(),
            "returns over different numbers of episodes are averaged together: "
            "3 × 10 episodes and 1 × 2 episodes (a); 1 × 10 episodes and 3 × 2 episodes (b)",
        ),
    ],
)
def test_equal_mixtures_are_not_alike(one: dict[str, Any], other: dict[str, Any], told: str) -> None:
    """Both groups hold the same two kinds of runs, in different numbers."""
    named = [("a", terms_of([one, other, other, other])), ("b", terms_of([one, one, one, other]))]
    assert classes(named) == [["a"], ["b"]]
    assert told in differences(named)
    assert told.partition(":")[0] in differences(named[:1])[0], "also of a single group"


def test_a_mixture_is_apart_from_each_of_its_parts() -> None:
    named = [
        ("short", terms_of([row(frames=1000)] * 4)),
        ("both", terms_of([row(frames=1000)] * 3 + [row()])),
    ]
    assert classes(named) == [["short"], ["both"]]


def test_runs_without_a_finite_return_make_no_mixture() -> None:
    lost = [{**row(COLLECTION, 9, 2), "final_return": value} for value in (None, float("nan"))]
    assert terms_of([row(), *lost]).mixed == ()
    assert terms_of([row(), row(frames=6500)]).mixed == ()

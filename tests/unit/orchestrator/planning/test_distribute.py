"""Which target is dealt which runs, and from which they are taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning.distribute import TargetLoad, deal

RUNS = tuple(f"r{number}" for number in range(12))
ALL = frozenset(RUNS)


def counts(dealt: dict[str, str]) -> dict[str, int]:
    return dict(Counter(dealt.values()))


def test_a_deal_goes_by_places_and_predicted_time() -> None:
    slow, fast = TargetLoad("slow", 2, ALL), TargetLoad("fast", 4, ALL)
    assert counts(deal(RUNS, [slow, fast])) == {"slow": 4, "fast": 8}
    timed = [replace(slow, seconds=50.0), replace(fast, places=2, seconds=10.0)]
    assert counts(deal(RUNS, timed)) == {"slow": 2, "fast": 10}
    assert counts(deal(RUNS, [replace(slow, seconds=1.0), fast])) == {"slow": 4, "fast": 8}, (
        "of one it is unknown"
    )


def test_what_is_busy_or_waits_counts() -> None:
    here, queue = TargetLoad("here", 2, ALL, busy=2), TargetLoad("queue", 2, ALL, wait=600.0)
    assert counts(deal(RUNS[:4], [here, queue])) == {"queue": 2, "here": 2}
    assert counts(deal(RUNS[:2], [here, replace(queue, wait=7200.0)])) == {"here": 2}
    quick = [replace(here, busy=0, seconds=10.0), replace(queue, seconds=10.0)]
    assert counts(deal(RUNS, quick)) == {"here": 12}, "before a job of the queue would begin"


def test_a_target_that_accepts_nothing_gets_nothing_and_keeps_its_own() -> None:
    full = TargetLoad("full", 1, ALL, queued=("r0",), open=False)
    assert deal(RUNS[1:], [full]) == {"r0": "full"}


def test_a_run_with_one_target_comes_before_those_with_several() -> None:
    cpu, gpu = TargetLoad("cpu", 1, ALL), TargetLoad("gpu", 1, frozenset({"r1"}))
    assert deal(["r0", "r1"], [gpu, cpu]) == {"r0": "cpu", "r1": "gpu"}
    only = TargetLoad("cpu", 1, frozenset({"r0"}))
    assert deal(["r1", "r0"], [only, replace(gpu, can=ALL)]) == {"r0": "cpu", "r1": "gpu"}


def test_a_queued_run_moves_only_to_where_it_ends_earlier() -> None:
    queue = TargetLoad("queue", 4, ALL, queued=RUNS[:4], wait=20.0)
    free = TargetLoad("free", 1, ALL)
    assert counts(deal([], [free, queue])) == {"free": 1, "queue": 3}
    assert counts(deal([], [replace(free, busy=1), queue])) == {"queue": 4}
    alike = TargetLoad("alike", 4, ALL, wait=20.0)
    assert counts(deal([], [alike, queue])) == {"queue": 4}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[TargetLoad]]:
    """Runs without a target, and targets that have the others."""
    left = draw(st.permutations(RUNS))
    loads = []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0, 3))
        queued, left = tuple(left[:size]), left[size:]
        places, busy = draw(st.integers(1, 5)), draw(st.integers(0, 5))
        can = frozenset(draw(st.sets(st.sampled_from(RUNS))))
        seconds = draw(st.none() | st.floats(0.1, 1e5))
        wait, accepts = draw(st.floats(0, 1e4)), draw(st.booleans())
        loads.append(TargetLoad(f"s{number}", places, can, busy, queued, seconds, wait, accepts))
    return list(left), loads


@given(tables())
def test_each_run_goes_to_a_target_that_can_train_it_or_stays(
    sweep: tuple[list[str], list[TargetLoad]],
) -> None:
    todo, loads = sweep
    by_name, owner = (
        {load.name: load for load in loads},
        {run: one.name for one in loads for run in one.queued},
    )
    dealt = deal(todo, loads)
    for run, name in dealt.items():
        assert owner.get(run) == name or (by_name[name].open and run in by_name[name].can)
    doable = {run for load in loads if load.open for run in load.can}
    assert dealt.keys() == {*owner, *(run for run in todo if run in doable)}
    assert deal(todo, loads) == dealt, "the same again: a rehearsal shows what is submitted"


@given(tables())
def test_a_target_without_a_run_leaves_none_to_a_busy_one(sweep: tuple[list[str], list[TargetLoad]]) -> None:
    todo, loads = sweep
    loads = [replace(load, wait=0.0, seconds=None, can=ALL, open=True) for load in loads]
    dealt = Counter(deal(todo, loads).values())
    for idle in (load for load in loads if load.busy + dealt[load.name] < load.places):
        for other in loads:
            assert dealt[other.name] == 0 or other.busy + dealt[other.name] <= other.places, idle

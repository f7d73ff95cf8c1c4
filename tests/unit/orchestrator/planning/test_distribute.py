"""Who is dealt which runs, and from whom they are taken."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning.distribute import ActiveJob, TargetLoad, assign_runs, reassign, split

RUNS = tuple(f"r{number}" for number in range(12))
ALL = frozenset(RUNS)


def test_a_target_gets_what_it_can_begin_and_as_much_again() -> None:
    assigned = assign_runs(RUNS, [TargetLoad("local", 2, ALL), TargetLoad("cluster", 3, ALL)])
    assert {name: len(runs) for name, runs in assigned.items()} == {"local": 4, "cluster": 6}
    assert assigned["local"][:2] == ["r0", "r1"], "the most urgent runs begin first"


def test_a_target_that_has_enough_gets_nothing() -> None:
    busy = TargetLoad("local", 2, ALL, (ActiveJob(("t",), ("a", "b", "c"), 2),))
    assert assign_runs(RUNS, [busy]) == {}
    ending = replace(busy, jobs=(ActiveJob(("t",), ("a",), 2),))
    assert len(assign_runs(RUNS, [ending])["local"]) == 2


def test_a_closed_target_gets_nothing() -> None:
    assert assign_runs(RUNS, [TargetLoad("local", 2, ALL, open=False)]) == {}


def test_who_can_do_little_is_dealt_that_first() -> None:
    assigned = assign_runs(["r0", "r1"], [TargetLoad("gpu", 2, ALL), TargetLoad("cpu", 1, frozenset({"r1"}))])
    assert assigned == {"cpu": ["r1"], "gpu": ["r0"]}


def test_what_only_waits_goes_to_who_is_free() -> None:
    waiting = [
        ActiveJob((f"t{number}",), (run,), waited=20.0 - number) for number, run in enumerate(RUNS[:4])
    ]
    queue = TargetLoad("queue", 4, ALL, (ActiveJob(("t",), ("r9",)), *waiting), patience=15)
    free = TargetLoad("free", 1, ALL)
    assert [(one.owner, one.taker, one.run_ids) for one in reassign([free, queue], {})] == [
        ("queue", "free", ("r3",)),
        ("queue", "free", ("r2",)),
    ]
    assert reassign([free, queue], {"free": ["r7"]}) == [], "it was dealt enough"
    assert reassign([replace(free, open=False), queue], {}) == []
    assert reassign([replace(free, can=frozenset({"r9"})), queue], {}) == [], "that one has begun"
    assert reassign([free, replace(queue, patience=21)], {}) == []


def test_a_queue_that_does_not_move_takes_from_nobody() -> None:
    first = TargetLoad("first", 4, ALL, (ActiveJob(("a",), ("r0",), waited=100),))
    second = TargetLoad("second", 4, ALL, (ActiveJob(("b",), ("r1",), waited=100),))
    assert reassign([first, second], {}) == []


def test_a_split_goes_by_places_and_speed() -> None:
    loads = [TargetLoad("slow", 2, ALL), TargetLoad("fast", 2, ALL)]
    assert {name: len(runs) for name, runs in split(RUNS, loads).items()} == {"slow": 6, "fast": 6}
    by_speed = split(RUNS, loads, {"slow": 1, "fast": 5})
    assert {name: len(runs) for name, runs in by_speed.items()} == {"slow": 2, "fast": 10}
    only = [replace(loads[0], can=frozenset(RUNS[:3])), replace(loads[1], open=False)]
    assert split(RUNS, only) == {"slow": list(RUNS[:3])}


helds = st.lists(st.sampled_from(RUNS), min_size=1, max_size=4, unique=True)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[TargetLoad]]:
    """Runs that nobody has, and targets that have the others."""
    left = draw(st.permutations(RUNS))
    loads = []
    for number in range(draw(st.integers(1, 4))):
        jobs = []
        for _ in range(draw(st.integers(0, 3))):
            size = draw(st.integers(1, 3))
            own, left = left[:size], left[size:]
            if own:
                waited = draw(st.none() | st.floats(0, 100))
                jobs.append(
                    ActiveJob((f"{number}-{len(jobs)}",), tuple(own), draw(st.integers(1, 3)), waited)
                )
        can = frozenset(draw(st.sets(st.sampled_from(RUNS))))
        loads.append(
            TargetLoad(
                f"s{number}",
                draw(st.integers(1, 5)),
                can,
                tuple(jobs),
                draw(st.floats(0, 100)),
                draw(st.booleans()),
            )
        )
    return list(left), loads


@given(tables())
def test_a_deal_gives_each_run_once_and_only_to_who_can_do_it(
    sweep: tuple[list[str], list[TargetLoad]],
) -> None:
    todo, loads = sweep
    for assigned in (assign_runs(todo, loads), split(todo, loads)):
        dealt = [run for runs in assigned.values() for run in runs]
        assert len(dealt) == len(set(dealt))
        assert set(dealt) <= set(todo)
        for load in loads:
            assert set(assigned.get(load.name, ())) <= (load.can if load.open else set())


@given(tables())
def test_nobody_is_idle_who_could_work(sweep: tuple[list[str], list[TargetLoad]]) -> None:
    """Neither while a run is nobody's, nor while somebody has more than he can begin."""
    todo, loads = sweep
    assigned = assign_runs(todo, loads)
    dealt = {run for runs in assigned.values() for run in runs}
    surplus = {run for load in loads for run in assigned.get(load.name, ())[load.free :]}
    for load in loads:
        if load.free > len(assigned.get(load.name, ())):
            assert not load.can & (set(todo) - dealt)
            assert not load.can & surplus


@given(tables())
def test_what_is_taken_only_waited_and_is_for_somebody_free(
    sweep: tuple[list[str], list[TargetLoad]],
) -> None:
    todo, loads = sweep
    assigned, by_name = assign_runs(todo, loads), {load.name: load for load in loads}
    moves = reassign(loads, assigned)
    assert len(moves) == len({one.job.tokens for one in moves})
    for one in moves:
        owner, taker = by_name[one.owner], by_name[one.taker]
        assert one.job in owner.jobs
        assert (one.job.waited or -1.0) >= owner.patience or one.job.waited == owner.patience
        assert set(one.run_ids) <= taker.can.intersection(one.job.run_ids)
        assert taker.free > len(assigned.get(taker.name, ()))
        assert not taker.waits


@given(tables(), st.data())
def test_everything_that_can_be_done_gets_done(
    sweep: tuple[list[str], list[TargetLoad]], data: st.DataObject
) -> None:
    """Some queues never move; the others end all they have in a turn. Nobody ever has a run of another."""
    todo, loads = sweep
    loads = [replace(load, open=True, jobs=()) for load in loads]
    stuck = {load.name for load in loads if data.draw(st.booleans())}
    doable = {run for run in todo for load in loads if load.name not in stuck and run in load.can}
    done: set[str] = set()
    moved: dict[str, list[str]] = {}
    for turn in range(8 * len(RUNS)):
        having = [run for load in loads for one in load.jobs for run in one.run_ids]
        assert len(having) == len(set(having)), "a run in two jobs"
        assigned = assign_runs([run for run in todo if run not in done and run not in having], loads)
        moves = reassign(loads, assigned, moved)
        gone = {one.job.tokens for one in moves}
        for one in moves:
            assigned.setdefault(one.taker, []).extend(one.run_ids)
            for run in one.job.run_ids:
                moved.setdefault(run, []).append(one.owner)
        after = []
        for load in loads:
            kept = [one for one in load.jobs if one.tokens not in gone]
            if load.name not in stuck:
                done.update(run for one in kept for run in one.run_ids)
                kept = []
            waited = 100.0 if load.name in stuck else None
            new = [ActiveJob((f"{turn}-{run}",), (run,), 1, waited) for run in assigned.get(load.name, ())]
            after.append(replace(load, jobs=(*kept, *new)))
        loads = after
        if doable <= done:
            return
    raise AssertionError(f"never done: {sorted(doable - done)}")

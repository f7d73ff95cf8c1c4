"""Who is dealt which runs, and from whom they are taken."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning.distribute import ActiveJob, TargetLoad, assign_runs, split, take

RUNS = tuple(f"r{number}" for number in range(12))
ALL = frozenset(RUNS)


def test_a_target_gets_what_it_can_begin_and_as_much_again() -> None:
    hands = assign_runs(RUNS, [TargetLoad("local", 2, ALL), TargetLoad("cluster", 3, ALL)])
    assert {name: len(runs) for name, runs in hands.items()} == {"local": 4, "cluster": 6}
    assert hands["local"][:2] == ["r0", "r1"], "the most urgent runs begin first"


def test_a_target_that_has_enough_gets_nothing() -> None:
    busy = TargetLoad("local", 2, ALL, (ActiveJob(("t",), ("a", "b", "c"), 2),))
    assert assign_runs(RUNS, [busy]) == {}
    ending = replace(busy, held=(ActiveJob(("t",), ("a",), 2),))
    assert len(assign_runs(RUNS, [ending])["local"]) == 2


def test_a_closed_target_gets_nothing() -> None:
    assert assign_runs(RUNS, [TargetLoad("local", 2, ALL, open=False)]) == {}


def test_who_can_do_little_is_dealt_that_first() -> None:
    hands = assign_runs(["r0", "r1"], [TargetLoad("gpu", 2, ALL), TargetLoad("cpu", 1, frozenset({"r1"}))])
    assert hands == {"cpu": ["r1"], "gpu": ["r0"]}


def test_what_only_waits_goes_to_who_is_free() -> None:
    waiting = [
        ActiveJob((f"t{number}",), (run,), waited=20.0 - number) for number, run in enumerate(RUNS[:4])
    ]
    queue = TargetLoad("queue", 4, ALL, (ActiveJob(("t",), ("r9",)), *waiting), patience=15)
    free = TargetLoad("free", 1, ALL)
    assert [(one.owner, one.taker, one.run_ids) for one in take([free, queue], {})] == [
        ("queue", "free", ("r3",)),
        ("queue", "free", ("r2",)),
    ]
    assert take([free, queue], {"free": ["r7"]}) == [], "it was dealt enough"
    assert take([replace(free, open=False), queue], {}) == []
    assert take([replace(free, can=frozenset({"r9"})), queue], {}) == [], "that one has begun"
    assert take([free, replace(queue, patience=21)], {}) == []


def test_a_queue_that_does_not_move_takes_from_nobody() -> None:
    first = TargetLoad("first", 4, ALL, (ActiveJob(("a",), ("r0",), waited=100),))
    second = TargetLoad("second", 4, ALL, (ActiveJob(("b",), ("r1",), waited=100),))
    assert take([first, second], {}) == []


def test_a_split_goes_by_places_and_speed() -> None:
    seats = [TargetLoad("slow", 2, ALL), TargetLoad("fast", 2, ALL)]
    assert {name: len(runs) for name, runs in split(RUNS, seats).items()} == {"slow": 6, "fast": 6}
    by_speed = split(RUNS, seats, {"slow": 1, "fast": 5})
    assert {name: len(runs) for name, runs in by_speed.items()} == {"slow": 2, "fast": 10}
    only = [replace(seats[0], can=frozenset(RUNS[:3])), replace(seats[1], open=False)]
    assert split(RUNS, only) == {"slow": list(RUNS[:3])}


helds = st.lists(st.sampled_from(RUNS), min_size=1, max_size=4, unique=True)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[TargetLoad]]:
    """Runs that nobody has, and targets that have the others."""
    left = draw(st.permutations(RUNS))
    seats = []
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
        seats.append(
            TargetLoad(
                f"s{number}",
                draw(st.integers(1, 5)),
                can,
                tuple(jobs),
                draw(st.floats(0, 100)),
                draw(st.booleans()),
            )
        )
    return list(left), seats


@given(tables())
def test_a_deal_gives_each_run_once_and_only_to_who_can_do_it(
    table: tuple[list[str], list[TargetLoad]],
) -> None:
    todo, seats = table
    for hands in (assign_runs(todo, seats), split(todo, seats)):
        dealt = [run for runs in hands.values() for run in runs]
        assert len(dealt) == len(set(dealt))
        assert set(dealt) <= set(todo)
        for seat in seats:
            assert set(hands.get(seat.name, ())) <= (seat.can if seat.open else set())


@given(tables())
def test_nobody_is_idle_who_could_work(table: tuple[list[str], list[TargetLoad]]) -> None:
    """Neither while a run is nobody's, nor while somebody has more than he can begin."""
    todo, seats = table
    hands = assign_runs(todo, seats)
    dealt = {run for runs in hands.values() for run in runs}
    surplus = {run for seat in seats for run in hands.get(seat.name, ())[seat.free :]}
    for seat in seats:
        if seat.free > len(hands.get(seat.name, ())):
            assert not seat.can & (set(todo) - dealt)
            assert not seat.can & surplus


@given(tables())
def test_what_is_taken_only_waited_and_is_for_somebody_free(
    table: tuple[list[str], list[TargetLoad]],
) -> None:
    todo, seats = table
    hands, by_name = assign_runs(todo, seats), {seat.name: seat for seat in seats}
    takings = take(seats, hands)
    assert len(takings) == len({one.held.tokens for one in takings})
    for one in takings:
        owner, taker = by_name[one.owner], by_name[one.taker]
        assert one.held in owner.held
        assert (one.held.waited or -1.0) >= owner.patience or one.held.waited == owner.patience
        assert set(one.run_ids) <= taker.can.intersection(one.held.run_ids)
        assert taker.free > len(hands.get(taker.name, ()))
        assert not taker.waits


@given(tables(), st.data())
def test_everything_that_can_be_done_gets_done(
    table: tuple[list[str], list[TargetLoad]], data: st.DataObject
) -> None:
    """Some queues never move; the others end all they have in a turn. Nobody ever has a run of another."""
    todo, seats = table
    seats = [replace(seat, open=True, held=()) for seat in seats]
    stuck = {seat.name for seat in seats if data.draw(st.booleans())}
    doable = {run for run in todo for seat in seats if seat.name not in stuck and run in seat.can}
    done: set[str] = set()
    moved: dict[str, list[str]] = {}
    for turn in range(8 * len(RUNS)):
        having = [run for seat in seats for one in seat.held for run in one.run_ids]
        assert len(having) == len(set(having)), "a run in two jobs"
        hands = assign_runs([run for run in todo if run not in done and run not in having], seats)
        takings = take(seats, hands, moved)
        gone = {one.held.tokens for one in takings}
        for one in takings:
            hands.setdefault(one.taker, []).extend(one.run_ids)
            for run in one.held.run_ids:
                moved.setdefault(run, []).append(one.owner)
        after = []
        for seat in seats:
            kept = [one for one in seat.held if one.tokens not in gone]
            if seat.name not in stuck:
                done.update(run for one in kept for run in one.run_ids)
                kept = []
            waited = 100.0 if seat.name in stuck else None
            new = [ActiveJob((f"{turn}-{run}",), (run,), 1, waited) for run in hands.get(seat.name, ())]
            after.append(replace(seat, held=(*kept, *new)))
        seats = after
        if doable <= done:
            return
    raise AssertionError(f"never done: {sorted(doable - done)}")

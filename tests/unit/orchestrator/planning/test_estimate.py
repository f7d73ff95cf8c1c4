"""Time and money before launch: runs laid out, ranges, what is said of targets, which is recommended."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backends.skypilot import SkyPilotBackend
from orchestrator.config.grid import parse_grid
from orchestrator.config.profiles import Profile, parse_profile
from orchestrator.config.sweep import runs_of
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Capacity, Price, Resources, Run, RunState, Sweep
from orchestrator.planning.estimate import Forecast, Range, TargetCost, forecast_plan, recommend, where_of
from orchestrator.planning.estimate.ranges import NOTHING, lay_out
from orchestrator.planning.plan import make_plan
from orchestrator.planning.throughput.lookup import SpeedTable
from orchestrator.planning.throughput.model import RunKind, Speed, TrainingPlace, kind_of
from orchestrator.rundir import IndexRow
from orchestrator.status.survey import RunStatus, Survey

ROOT = Path(__file__).parents[4]
PLACE = TrainingPlace("here", "One CPU")


def run_of(frames: int, seed: int = 0) -> Run:
    return get_trainer("command").identify({"command": ["x"], "task": "t", "frames": frames}, seed, 1)


def sweep_of(frames: list[int], resources: Resources | None = None) -> Sweep:
    runs = tuple(run_of(number, seed) for seed, number in enumerate(frames))
    return Sweep("s", "command", runs, "", "grid.yaml", resources=resources or Resources())


def seen_of(sweep: Sweep, **statuses: RunStatus) -> Survey:
    known = {run.run_id: RunStatus(run.run_id) for run in sweep.runs}
    rows = [IndexRow(run.run_id, True, run.point) for run in sweep.runs]
    return Survey(rows, known | statuses, frozenset())


def table_of(fps: float, spread: float = 0.1, start: float | None = 2.0) -> SpeedTable:
    kind = kind_of(run_of(1))
    return SpeedTable([Speed(kind, PLACE, fps, fps * (1 - spread), fps * (1 + spread), start, 100, 4)])


def where(price: float | None = 1.0, machines: int | None = 1, name: str = "here") -> TargetCost:
    cost = None if price is None else Price(price, "as the test says")
    return TargetCost(name, "local", replace(PLACE, target=name), cost, machines, begin=Range(1, 2, 3))


def forecast_of(
    frames: list[int], table: SpeedTable, at: TargetCost, slots: int = 1, survey: Survey | None = None
) -> Forecast:
    sweep = sweep_of(frames)
    seen = survey or seen_of(sweep)
    room = Capacity(at.name, slots, 0, array_size=1, most=at.limit, apart=True)
    return forecast_plan(make_plan(sweep, seen, room, submission=1), seen, at, table)


seconds = st.floats(0.0, 1e6)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    low, mid, high = sorted([draw(seconds), draw(seconds), draw(seconds)])
    return Range(low, mid, high)


@given(st.lists(st.tuples(ranges(), st.integers(1, 6)), max_size=30), st.integers(1, 5), st.integers(1, 6))
def test_laid_out_runs_end_between_the_bounds(
    runs: list[tuple[Range, int]], machines: int, cores: int
) -> None:
    loads = lay_out(runs, machines, cores)
    assert len(loads) == machines
    sizes = [min(size, cores) for _, size in runs]
    for column in ("low", "mid", "high"):
        values = [getattr(one, column) for one, _ in runs]
        ends = max(getattr(one, column) for one in loads)
        assert ends >= max(values, default=0.0) - 1e-6
        work = sum(value * size for value, size in zip(values, sizes, strict=True))
        assert ends >= work / machines / cores * (1 - 1e-9) - 1e-6
        assert ends <= sum(values) + 1e-6
    assert all(one.low <= one.mid <= one.high for one in loads)


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=20), st.integers(1, 4), st.integers(1, 3))
def test_longer_runs_never_end_sooner(times: list[tuple[float, float]], machines: int, at_once: int) -> None:
    shorter = [(Range.exactly(min(pair)), 1) for pair in times]
    longer = [(Range.exactly(max(pair)), 1) for pair in times]
    ends = [max(one.mid for one in lay_out(runs, machines, at_once)) for runs in (shorter, longer)]
    assert ends[0] <= ends[1] + 1e-6


def test_the_longest_goes_first() -> None:
    loads = lay_out([(Range.exactly(one), 1) for one in (1.0, 1.0, 1.0, 3.0)], 2, 1)
    assert [one.mid for one in loads] == [3.0, 3.0]


def test_runs_of_different_sizes_share_the_cores_and_the_price_of_a_machine() -> None:
    sweep = sweep_of([1000, 1000, 1000])
    large, *small = sweep.runs
    needs = {run.run_id: Resources(1) for run in small}
    sweep = replace(sweep, resources=Resources(2), needs=needs)
    seen, at = seen_of(sweep), replace(where(price=3600.0), begin=NOTHING, end=NOTHING)
    room = Capacity(at.name, 2, 0, array_size=1, most=1, apart=True)
    plan = make_plan(sweep, seen, room, submission=1)
    found = forecast_plan(plan, seen, at, table_of(10.0, start=None))
    assert found.wall is not None
    assert found.wall.mid == pytest.approx(200), "the large one alone, then both small ones at once"
    dollars = {run.run_id: run.dollars.mid for run in found.runs if run.dollars is not None}
    assert dollars == {large.run_id: pytest.approx(100), **{run.run_id: pytest.approx(50) for run in small}}
    assert found.dollars is not None
    assert found.dollars.mid == pytest.approx(200)


frames = st.lists(st.integers(1, 10**9), min_size=1, max_size=12)
fps = st.floats(0.01, 1e6)


@given(frames, fps, st.floats(0, 0.9), st.floats(0.0, 100), st.integers(1, 3), st.integers(1, 3))
def test_a_forecast_is_a_number_with_a_range_around_it(
    lengths: list[int], speed: float, spread: float, price: float, machines: int, slots: int
) -> None:
    found = forecast_of(lengths, table_of(speed, spread), where(price, machines), slots)
    assert found.wall is not None
    assert found.dollars is not None
    assert found.overhead is not None
    for one in (found.wall, found.dollars, found.overhead):
        assert 0 <= one.low <= one.mid <= one.high < math.inf
    assert found.wall.low < found.wall.high
    assert found.overhead.mid <= found.dollars.mid


@given(frames, st.integers(1, 1000), fps, st.floats(0.01, 100), st.integers(1, 3))
def test_more_frames_and_a_higher_price_cost_more(
    lengths: list[int], factor: int, speed: float, price: float, machines: int
) -> None:
    table = table_of(speed)
    found, longer, dearer = (
        forecast_of(lengths, table, where(price, machines)),
        forecast_of([one * factor for one in lengths], table, where(price, machines)),
        forecast_of(lengths, table, where(2 * price, machines)),
    )
    for column in ("low", "mid", "high"):
        wall, longer_wall = getattr(found.wall, column), getattr(longer.wall, column)
        cost, more, most = (getattr(one.dollars, column) for one in (found, longer, dearer))
        assert wall <= longer_wall * (1 + 1e-9)
        assert cost <= more * (1 + 1e-9)
        assert most == pytest.approx(2 * cost)


def test_a_run_that_is_unknown_makes_the_whole_unknown() -> None:
    found = forecast_of([100, 200], SpeedTable([]), where())
    assert (found.wall, found.dollars) == (None, None)
    assert found.unknown == {"no measured speed of command on t on a CPU": [r.run_id for r in found.runs]}
    without = Sweep("s", "command", (get_trainer("command").identify({"command": ["x"]}, 0, 1),), "")
    seen = seen_of(without)
    plan = make_plan(without, seen, Capacity("here", 1, 0), submission=1)
    (why,) = forecast_plan(plan, seen, where(), table_of(1.0)).unknown
    assert "set the key frames" in why
    assert list(forecast_of([-5], table_of(1.0), where()).unknown) == [
        "frames: found -5, expected a number from 1"
    ]


def test_only_what_is_left_counts() -> None:
    sweep = sweep_of([1000, 1000])
    first, second = (run.run_id for run in sweep.runs)
    done = RunStatus(first, RunState.DONE)
    half = RunStatus(second, RunState.INTERRUPTED, frames=600, total=2000)
    seen = seen_of(sweep, **{first: done, second: half})
    found = forecast_of([1000, 1000], table_of(100.0, start=0.0), where(), survey=seen)
    (run,) = found.runs
    assert run.frames == 1400
    assert run.seconds is not None
    assert run.seconds.mid == 14.0


def test_a_target_without_a_price_costs_something_unknown() -> None:
    found = forecast_of([100], table_of(1.0), where(None))
    assert found.wall is not None
    assert found.dollars is None
    sweep = sweep_of([1000])
    (run,) = sweep.runs
    seen = seen_of(sweep, **{run.run_id: RunStatus(run.run_id, RunState.DONE)})
    for price, dollars in ((None, None), (2.0, 0.0)):
        left = forecast_of([1000], table_of(1.0), where(price), survey=seen)
        assert left.runs == ()
        assert (left.dollars and left.dollars.mid) == dollars


def at(name: str, time: float, cost: float | None, skipped: int = 0) -> Forecast:
    known = forecast_of([100], table_of(1.0), where(cost, name=name))
    dollars = None if cost is None else Range(0.5 * cost, cost, 2 * cost)
    left_out = {str(number): "no GPU" for number in range(skipped)}
    return replace(known, wall=Range(0.5 * time, time, 2 * time), dollars=dollars, skipped=left_out)


CHEAP, QUICK, FREE = at("cheap", 9000, 2.0), at("quick", 900, 9.0), at("own", 100, None)
HALF = at("half", 1, 0.1, skipped=1)


@pytest.mark.parametrize(
    ("deadline", "budget", "target"),
    [
        (None, None, "cheap"),
        (1000, None, "quick"),
        (20_000, None, "cheap"),
        (None, 10.0, "quick"),
        (None, 5.0, "cheap"),
        (1000, 10.0, "quick"),
        (1000, 5.0, None),
        (100, None, None),
    ],
)
def test_the_cheapest_in_time_or_the_fastest_for_the_money(
    deadline: float | None, budget: float | None, target: str | None
) -> None:
    advice = recommend([HALF, CHEAP, QUICK], deadline, budget)
    assert advice.target == target
    assert "left out: half" in advice.lines
    if target is None:
        assert advice.lines[0].startswith("none meets")


def test_what_has_no_price_is_fast_and_never_cheap() -> None:
    advice = recommend([CHEAP, FREE])
    assert advice.target == "cheap"
    assert any("own" in line and "cost unknown" in line for line in advice.lines)
    assert recommend([CHEAP, FREE], None, 5.0).target == "cheap"
    assert recommend([FREE], 200).target == "own"
    assert recommend([FREE], None, 5.0).target is None
    assert recommend([HALF]).target is None


def test_where_nothing_is_left_that_is_said() -> None:
    over = replace(HALF, runs=(), skipped={})
    assert recommend([over], 1.0).lines == ("none: nothing is left to do",)
    assert recommend([over, HALF], 1.0).lines != ("none: nothing is left to do",)


CLOUD = """
backend: skypilot
infra: aws
instance_type: g6.2xlarge
accelerators: L4:1
cpus_per_task: 8
mem: 32G
price_per_hour: 0.9776
"""

# 10,000,000 steps in 2 to 3 hours.
ON_L4 = Speed(
    RunKind("ppo", "bucket_brigade/*", "ppo", ""),
    TrainingPlace(None, None, "L4"),
    *(1111.1, 926.0, 1389.0),
    source="another set-up on an L4",
)


def cloud_forecast(text: str) -> Forecast:
    sweep = runs_of(parse_grid(on_one_gpu(), "bucket_brigade.yaml"))
    profile = parse_profile(text, "l4.yaml", "l4")
    seen, table = seen_of(sweep), SpeedTable([ON_L4])
    plan = make_plan(sweep, seen, SkyPilotBackend(profile).capacity(ask=False), submission=1)
    return forecast_plan(plan, seen, where_of(profile, table, no_catalog), table)


def on_one_gpu() -> str:
    """A run of each scenario, on a GPU."""
    text = (ROOT / "sweeps" / "bucket_brigade.yaml").read_text()
    return text.replace("seed: [0, 1, 2, 3, 4]", "seed: [0]").replace("base:\n", "base:\n  device: cuda\n")


def no_catalog(profile: Profile) -> Price | None:
    raise OrchestrateError("the price list cannot be reached", hint="connect")


def test_the_cost_table_of_nine_long_runs_and_a_short_one() -> None:
    """g6.2xlarge: 2.5 h of a machine at 0.9776 $/h each, a tenth for the short one."""
    found = cloud_forecast(CLOUD)
    *nine, short = sorted(found.runs, key=lambda run: -(run.frames or 0))
    dollars = [run.dollars for run in found.runs if run.dollars is not None]
    assert len(dollars) == 10
    assert short.dollars is not None
    assert short.dollars.mid == pytest.approx(0.25, abs=0.01)
    assert short.dollars.low < 0.25 < short.dollars.high
    for run in nine:
        assert run.dollars is not None
        assert run.dollars.mid == pytest.approx(2.5, abs=0.06)
        assert run.seconds is not None
        assert 2 * 3600 < run.seconds.mid < 3 * 3600
    assert sum(run.dollars.mid for run in nine if run.dollars) == pytest.approx(22, abs=0.1)
    assert found.dollars is not None
    assert found.overhead is not None
    assert found.dollars.mid == pytest.approx(22.24 + found.overhead.mid, abs=0.05)
    assert all("another set-up on an L4" in words for words in found.rests_on)


def test_instances_share_the_time_and_add_their_starts_and_ends() -> None:
    one, three = cloud_forecast(CLOUD), cloud_forecast(CLOUD + "instances: 3\n")
    assert one.wall is not None
    assert three.wall is not None
    assert three.wall.mid < one.wall.mid / 2
    assert one.overhead is not None
    assert three.overhead is not None
    assert three.overhead.mid == pytest.approx(3 * one.overhead.mid)


def test_hold_is_priced_where_there_is_no_store() -> None:
    with_hold, kept, long = (
        cloud_forecast(CLOUD + more).overhead for more in ("", "store: host:folder\n", 'hold: "4:00:00"\n')
    )
    assert with_hold is not None
    assert kept is not None
    assert long is not None
    assert kept.high < with_hold.high < long.high
    assert kept.mid == with_hold.mid == long.mid


def test_a_price_that_cannot_be_looked_up_is_unknown_and_says_why() -> None:
    found = cloud_forecast(CLOUD.replace("price_per_hour: 0.9776", "spot: true"))
    assert found.dollars is None
    notes = " ".join(found.where.notes)
    assert "the price list cannot be reached (connect)" in notes
    assert "spot" in notes


def test_on_demand_and_spot_are_one_machine() -> None:
    def asked(text: str) -> str | None:
        return where_of(parse_profile(text, "l4.yaml", "l4"), SpeedTable([]), no_catalog).place.machine

    smaller, unnamed = (
        CLOUD.replace("instance_type: g6.2xlarge\n", line) for line in ("instance_type: g6.xlarge\n", "")
    )
    assert asked(CLOUD) == asked(CLOUD + "spot: true\n") == "aws g6.2xlarge"
    assert asked(CLOUD.replace("infra: aws", "infra: AWS/us-east-1")) == asked(CLOUD)
    assert asked(unnamed.replace("L4:1", "l4").replace("aws", "AWS")) == asked(unnamed)
    assert asked(smaller) != asked(CLOUD)
    assert asked(unnamed) == asked(unnamed + "spot: true\n") == "aws L4 8 cores 32768 MB"
    clusters = (CLOUD.replace("infra: aws", f"infra: {infra}") for infra in ("slurm/one", "slurm/two"))
    assert len({asked(text) for text in clusters}) == 2
    assert where().place.machine is None


def test_times_of_a_target_come_from_its_own_jobs_once_there_are_any() -> None:
    profile = parse_profile(CLOUD, "l4.yaml", "l4")
    waits = [None, 60.0, 300.0]
    begins = [
        where_of(profile, SpeedTable([], {}, {} if wait is None else {"l4": wait}), no_catalog).begin
        for wait in waits
    ]
    assert begins[1].mid < begins[0].mid < begins[2].mid
    assert all(one.low < one.mid < one.high for one in begins)


def test_dollars_are_shown_so_that_small_ones_differ() -> None:
    from orchestrator.core.formatting import dollars

    shown = [dollars(amount) for amount in (0, 0.0031, 0.0152, 0.1, 2.5, 1234.5)]
    assert shown == ["$0.00", "$0.0031", "$0.015", "$0.10", "$2.50", "$1,234.50"]
    assert all(one != other for one, other in pairwise(shown))


def test_nothing_left_costs_nothing() -> None:
    sweep = sweep_of([10])
    (run,) = sweep.runs
    seen = seen_of(sweep, **{run.run_id: RunStatus(run.run_id, RunState.DONE)})
    found = forecast_of([10], table_of(1.0), where(), survey=seen)
    assert (found.wall, found.dollars, found.runs) == (NOTHING, NOTHING, ())


def test_kinds_without_a_task_are_named_by_their_trainer() -> None:
    assert kind_of(get_trainer("command").identify({"command": ["x"]}, 0, 1)) == RunKind(
        "command", "", "command", '{"command": ["x"]}'
    )


@pytest.mark.parametrize(("frames", "seconds"), [(None, 600.0), (6_000_000, 600.0), (6_000, 62.0)])
def test_a_run_with_minutes_ends_at_whichever_comes_first(frames: int | None, seconds: float) -> None:
    own = {"task": "vmas/navigation", "algorithm": "mappo", "minutes": 10}
    bound = {} if frames is None else {"experiment.max_n_frames": frames}
    run = get_trainer("benchmarl").identify({**own, **bound}, 0, 1)
    sweep = Sweep("s", "benchmarl", (run,), "", "grid.yaml", resources=Resources())
    table = SpeedTable([Speed(kind_of(run), PLACE, 100.0, 90.0, 110.0, 2.0, 100, 4)])
    room = Capacity("here", 1, 0, array_size=1, most=1, apart=True)
    seen = seen_of(sweep)
    (found,) = forecast_plan(make_plan(sweep, seen, room, submission=1), seen, where(), table).runs
    assert found.seconds is not None
    assert found.seconds.mid == pytest.approx(seconds)


def test_a_run_with_minutes_takes_its_evaluations_too() -> None:
    """A run collects and learns for 10 minutes; others of its kind spent half as much again on the rest."""
    own = {"task": "vmas/navigation", "algorithm": "mappo"}
    run, shorter = (
        get_trainer("benchmarl").identify({**own, "minutes": minutes}, 0, 1) for minutes in (10, 1)
    )
    sweep = Sweep("s", "benchmarl", (run,), "", "grid.yaml", resources=Resources())
    speed = Speed(kind_of(shorter), PLACE, 100.0, 90.0, 110.0, 2.0, 100, 4, wall_per_training=1.5)
    room = Capacity("here", 1, 0, array_size=1, most=1, apart=True)
    seen = seen_of(sweep)
    (found,) = forecast_plan(
        make_plan(sweep, seen, room, submission=1), seen, where(), SpeedTable([speed])
    ).runs
    assert found.seconds is not None
    assert found.seconds.mid == pytest.approx(900.0)
    assert 600.0 < found.seconds.low < 900.0 < found.seconds.high


def test_json_of_advice_names_targets_and_has_no_sentences() -> None:
    told = recommend([HALF, CHEAP, QUICK, FREE]).to_json()
    assert told == {
        "target": "cheap",
        "fastest": "own",
        "cheapest": "cheap",
        "left_out": ["half"],
        "unpriced": ["own"],
    }

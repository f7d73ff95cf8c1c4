from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Capacity, Job, Reason, Resources, RunState, Size, Sweep, TargetAssignment
from orchestrator.core.units import megabytes
from orchestrator.planning.packing import size_of
from orchestrator.planning.plan import SubmitOptions, at_once, make_plan
from orchestrator.rundir import IndexRow
from orchestrator.status.survey import RunStatus, Survey

CPU = Capacity("local", cores=4, gpus=0)


def sweep_of(count: int, device: str = "cpu", resources: Resources | None = None) -> Sweep:
    overrides = {"algorithm": "mappo", "experiment.train_device": device}
    runs = tuple(BENCHMARL.identify(overrides, seed, 1) for seed in range(count))
    return Sweep("s", "benchmarl", runs, "text", resources=resources or Resources())


def survey_of(sweep: Sweep, *states: RunState) -> Survey:
    padded = [*states, *[RunState.PENDING] * (len(sweep.runs) - len(states))]
    statuses = {
        run.run_id: RunStatus(run.run_id, state) for run, state in zip(sweep.runs, padded, strict=True)
    }
    rows = [IndexRow(run.run_id, True, run.point) for run in sweep.runs]
    return Survey(rows, statuses, frozenset())


def test_only_what_is_missing_is_planned_in_the_grids_order() -> None:
    sweep = sweep_of(len(RunState))
    plan = make_plan(sweep, survey_of(sweep, *RunState), CPU, submission=3)
    missing = {RunState.PENDING, RunState.INTERRUPTED, RunState.SKIPPED}
    expected = [run.run_id for run, state in zip(sweep.runs, RunState, strict=True) if state in missing]
    assert list(plan.run_ids) == expected
    assert plan.jobs[0].token == "0003-0001"


def test_nothing_missing_is_no_job() -> None:
    sweep = sweep_of(2)
    assert make_plan(sweep, survey_of(sweep, *[RunState.DONE] * 2), CPU, submission=1).jobs == ()


def test_slots_follow_cores_and_what_already_runs() -> None:
    sweep = sweep_of(9, resources=Resources(cpus_per_task=2))
    assert make_plan(sweep, survey_of(sweep), CPU, submission=1).jobs[0].slots == 2
    busy = survey_of(sweep, RunState.RUNNING)
    assert make_plan(sweep, busy, CPU, submission=1).jobs[0].slots == 1
    assert make_plan(sweep, busy, CPU, submission=1, options=SubmitOptions(slots=3)).jobs[0].slots == 3


def test_gpu_runs_are_skipped_with_the_reason_where_there_is_none() -> None:
    sweep = sweep_of(2, "cuda")
    plan = make_plan(sweep, survey_of(sweep), CPU, submission=1)
    assert plan.jobs == ()
    assert set(plan.skipped) == {run.run_id for run in sweep.runs}
    assert all("GPU" in why for why in plan.skipped.values())
    placed = make_plan(sweep, survey_of(sweep), Capacity("local", 4, 1), submission=1)
    assert len(placed.run_ids) == 2


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (
            Resources(cpus_per_task=64),
            "needs 64 cores, this machine has 4: ask for fewer, or choose a larger target (--on)",
        ),
        (Resources(mem="900G"), "needs 900G of memory, this machine has 24G"),
        (Resources(nodes=2), "needs 2 nodes, this machine is one: choose a cluster (--on)"),
        (Resources(gpus=3), "needs a GPU, and this machine has none that can be used"),
        (Resources(cpus_per_task=4, mem="24G"), None),
    ],
)
def test_what_this_machine_has_not_is_skipped_with_the_reason(needs: Resources, why: str | None) -> None:
    sweep = sweep_of(2, resources=needs)
    plan = make_plan(sweep, survey_of(sweep), replace(CPU, mem="24576M"), submission=1)
    assert set(plan.skipped.values()) == ({why} if why else set())
    assert len(plan.run_ids) == (0 if why else 2)


def test_gpus_limit_runs_at_once() -> None:
    sweep = sweep_of(9, "cuda", resources=Resources(gpus=2))
    machine = Capacity("local", cores=64, gpus=8)
    assert make_plan(sweep, survey_of(sweep), machine, submission=1).jobs[0].slots == 4


@pytest.mark.parametrize("asked", [None, 4])
def test_a_job_on_several_nodes_trains_one_run_at_a_time(asked: int | None) -> None:
    """Even if more runs would fit on the nodes, or the user asked for more."""
    sweep = sweep_of(2, resources=Resources(nodes=3))
    cluster = Capacity("c", 8, 0, pack=4, array_size=9, several_nodes=True)
    options = SubmitOptions(slots=asked)
    (array,) = make_plan(sweep, survey_of(sweep), cluster, submission=1, options=options).arrays
    assert [(job.slots, len(job.run_ids)) for job in array.jobs] == [(1, 1), (1, 1)]
    assert (array.allocation.nodes, array.allocation.cpus_per_task) == (3, 8)
    assert parse(Job, plain(array.jobs[0])) == array.jobs[0]
    plan = make_plan(sweep, survey_of(sweep), replace(cluster, several_nodes=False), submission=1)
    assert set(plan.skipped.values()) == {"needs 3 nodes, a job of c has one: choose a cluster (--on)"}


def test_a_job_of_a_target_without_sizes_requests_what_its_runs_need() -> None:
    sweep = sweep_of(3, resources=Resources(cpus_per_task=4, mem="5G", gpus=2))
    unsized = Capacity("c", None, None, array_size=9, pack=3)
    (array,) = make_plan(sweep, survey_of(sweep), unsized, submission=1).arrays
    assert array.allocation == replace(sweep.resources, cpus_per_task=12, mem="15360M", gpus=6)
    assert not array.jobs[0].steals, "there is no other job to share with"


def test_memory_limits_runs_at_once() -> None:
    sweep = sweep_of(4, resources=Resources(mem="10G"))
    assert make_plan(sweep, survey_of(sweep), replace(CPU, mem="24G"), submission=1).jobs[0].slots == 2


def test_where_cores_are_for_threads_runs_with_fewer_threads_need_fewer() -> None:
    sweep = sized(1, 4, 8)
    small, large, too_large = (run.run_id for run in sweep.runs)
    (plan, mixed) = (make_plan(sweep, survey_of(sweep), there, submission=1) for there in (CPU, CLUSTER))
    assert plan.run_ids == (large, small), "the largest first"
    assert plan.skipped.keys() == {too_large}
    assert mixed.skipped == {
        too_large: "needs 8 cores, a job of c has 4: ask for fewer, or raise cpus_per_task of c"
    }
    (job,) = plan.jobs
    assert (job.room, job.slots, job.resources.cpus_per_task) == (Size(4), 2, 4)
    assert job.sizes == {large: Size(4), small: Size(1)}


CLUSTER = Capacity("c", cores=4, gpus=0, mem="8G", time="1:00:00", array_size=1001)


def sized(*threads: int, resources: str = "{}") -> Sweep:
    """A sweep of one run for each of these numbers of threads."""
    zipped = f"zip: {{n: {list(range(1, len(threads) + 1))}, threads: {list(threads)}}}"
    return runs_of(parse_grid(f"name: s\ntrainer: command\n{zipped}\nresources: {resources}\n", "grid.yaml"))


@given(
    sizes=some.lists(some.integers(1, 8), min_size=1, max_size=40),
    cores=some.integers(1, 8),
    room=some.none() | some.integers(0, 8),
    mem=some.none() | some.integers(1, 20),
    needs=some.sampled_from(["mem: 1G", "mem: '{threads}G'", "mem: '{n}M'"]),
)
def test_runs_of_different_sizes_share_the_cores_and_the_memory_of_jobs(
    sizes: list[int], cores: int, room: int | None, mem: int | None, needs: str
) -> None:
    sweep = sized(*sizes, resources="{" + needs + "}")
    where = replace(CLUSTER, cores=cores, room=room, mem=None if mem is None else f"{mem}G")
    plan = make_plan(sweep, survey_of(sweep), where, submission=1)
    asked = {run.run_id: size_of(sweep.needs_of(run)) for run in sweep.runs}
    whole = Size(cores, (mem or 0) << 10)
    fitting = {run_id: size for run_id, size in asked.items() if size.fits(whole)}
    assert set(plan.skipped) == asked.keys() - fitting.keys()
    assert sorted([*plan.run_ids, *plan.waiting]) == sorted(fitting)
    for array in plan.arrays:
        assert array.allocation.cpus_per_task == cores
        allocated = Size(cores, megabytes(array.allocation.mem or ""))
        for job in array.jobs:
            own = [job.sizes.get(run_id, size_of(job.resources)) for run_id in job.run_ids]
            assert own == [asked[run_id] for run_id in job.run_ids]
            assert parse(Job, json.loads(json.dumps(plain(job)))) == job
            assert job.most_cores <= cores
            if room is None:
                assert reduce(Size.plus, own).fits(allocated), "all of its runs work at once"
                assert len(own) <= job.slots
            if job.room is not None:
                assert job.room.fits(allocated)
                assert job.room.mem, "memory limits the runs at once, too"
            else:
                assert job.slots * own[0].mem <= allocated.mem
    if room is None and plan.jobs and mem is None:
        used = sum(size.cores for size in fitting.values())
        assert len(plan.jobs) <= max(1, 2 * used // cores + 1), "at least half of all cores are at work"


def test_jobs_without_a_size_of_their_own_ask_for_that_of_their_runs() -> None:
    sweep = sized(1, 4, 1, 2)
    plan = make_plan(sweep, survey_of(sweep), replace(CLUSTER, cores=None, mem=None), submission=1)
    assert sorted((array.allocation.cpus_per_task, len(array.jobs)) for array in plan.arrays) == [
        (1, 2),
        (2, 1),
        (4, 1),
    ]


def test_what_already_runs_keeps_its_cores_and_a_number_asked_for_is_kept() -> None:
    sweep = sized(3, 2, 1, 1, 1)
    busy = survey_of(sweep, RunState.RUNNING)
    (job,) = make_plan(sweep, busy, CPU, submission=1).jobs
    assert (job.room, job.slots) == (Size(1), 1)
    (crowded,) = make_plan(sweep, busy, CPU, submission=1, options=SubmitOptions(slots=4)).jobs
    assert (crowded.room, crowded.slots, crowded.most_cores) == (None, 4, 5)
    assert at_once(sweep, CPU) == 2, "four cores, and runs of 1.6 cores each"
    assignment = TargetAssignment(frozenset(run.run_id for run in sweep.runs[1:]), places=2)
    (dealt,) = make_plan(sweep, survey_of(sweep), CPU, submission=1, assignment=assignment).jobs
    assert (dealt.room, dealt.slots) == (Size(4), 2)


def test_small_runs_share_a_job_and_help_each_other() -> None:
    sweep = sweep_of(10, resources=Resources(cpus_per_task=2, mem="1G"))
    plan = make_plan(sweep, survey_of(sweep), CLUSTER, submission=2)
    (array,) = plan.arrays
    assert [job.token for job in array.jobs] == [f"0002-0001.{index}" for index in range(5)]
    assert {job.slots for job in array.jobs} == {2}
    assert all(job.steals for job in array.jobs)
    assert array.allocation == Resources(cpus_per_task=4, gpus=0, mem="8G", time="1:00:00")


@pytest.mark.parametrize(
    ("capacity", "slots", "mem"),
    [(replace(CLUSTER, mem=None), 1, "0"), (CLUSTER, 1, "8G"), (replace(CLUSTER, mem="0"), 1, "0")],
)
def test_a_run_that_wants_all_memory_has_a_job_to_itself(capacity: Capacity, slots: int, mem: str) -> None:
    sweep = sweep_of(4, resources=Resources(mem="0"))
    plan = make_plan(sweep, survey_of(sweep), capacity, submission=1)
    assert (plan.jobs[0].slots, plan.arrays[0].allocation.mem, len(plan.run_ids)) == (slots, mem, 4)


def test_a_job_with_all_memory_of_its_node_holds_as_many_runs_as_it_has_cores() -> None:
    sweep = sweep_of(4, resources=Resources(mem="8G"))
    plan = make_plan(sweep, survey_of(sweep), replace(CLUSTER, mem="0", max_mem="0"), submission=1)
    assert (plan.jobs[0].slots, plan.arrays[0].allocation.mem) == (4, "0")


def test_memory_can_be_what_bounds_a_job() -> None:
    sweep = sweep_of(4, resources=Resources(mem="5G"))
    assert make_plan(sweep, survey_of(sweep), CLUSTER, submission=1).jobs[0].slots == 1


def test_pack_1_is_one_run_to_a_job_and_the_rest_waits_for_room() -> None:
    sweep = sweep_of(25)
    capacity = replace(CLUSTER, pack=1, array_size=10, room=22)
    plan = make_plan(sweep, survey_of(sweep), capacity, submission=1)
    assert [len(array.jobs) for array in plan.arrays] == [10, 10, 2]
    assert {len(job.run_ids) for job in plan.jobs} == {1}
    assert not any(job.steals for job in plan.jobs)
    assert list(plan.waiting) == [run.run_id for run in sweep.runs[22:]]


@given(
    runs=some.integers(1, 60),
    pack=some.none() | some.integers(1, 5),
    room=some.none() | some.integers(0, 40),
    array_size=some.integers(1, 12),
    chain=some.integers(1, 3),
)
def test_every_run_is_planned_or_waits_and_no_limit_is_passed(
    runs: int, pack: int | None, room: int | None, array_size: int, chain: int
) -> None:
    sweep = sweep_of(runs)
    capacity = replace(CLUSTER, pack=pack, room=room, array_size=array_size, chain=chain)
    plan = make_plan(sweep, survey_of(sweep), capacity, submission=1)
    assert sorted([*plan.run_ids, *plan.waiting]) == sorted(run.run_id for run in sweep.runs)
    assert all(len(array.jobs) <= array_size for array in plan.arrays)
    assert room is None or len(plan.jobs) <= room
    if pack == 1:
        assert {len(job.run_ids) for job in plan.jobs} <= {1}
    elif room is None or room >= chain:
        assert not plan.waiting, "they share the jobs there are"
    tokens = [job.token for job in plan.jobs]
    assert len(set(tokens)) == len(tokens)
    links = [array for array in plan.arrays if array.after is None]
    once = [run_id for array in links for run_id in array.run_ids]
    assert len(once) == len(set(once)), "a run is in one job of each link of the chain"


def test_a_chain_gives_the_same_runs_to_jobs_one_after_the_other() -> None:
    sweep = sweep_of(2)
    plan = make_plan(sweep, survey_of(sweep), replace(CLUSTER, pack=1, chain=3), submission=1)
    assert [array.after for array in plan.arrays] == [None, "0001-0001", "0001-0002"]
    assert len({array.run_ids for array in plan.arrays}) == 1
    assert len(plan.run_ids) == 2


def test_a_run_that_was_out_of_memory_gets_twice_what_a_job_has_and_the_job_for_itself() -> None:
    sweep = sweep_of(3)
    survey = survey_of(sweep)
    starved = sweep.runs[1].run_id
    statuses = {**survey.statuses, starved: replace(survey.statuses[starved], more_memory=True)}
    seen = replace(survey, statuses=statuses)
    plan = make_plan(sweep, seen, replace(CLUSTER, max_mem="12G"), submission=1)
    usual, roomy = plan.arrays
    assert usual.allocation.mem == "8G"
    assert roomy.allocation.mem == "12288M", "no more than the profile allows"
    assert roomy.run_ids == (starved,)
    for no_more in (CLUSTER, replace(CLUSTER, max_mem="8G")):
        assert len(make_plan(sweep, seen, no_more, submission=1).arrays) == 1, "where there is no more"
    full = make_plan(sweep, seen, replace(CLUSTER, max_mem="12G", pack=1, chain=3, room=8), submission=1)
    assert len(full.jobs) == 6, "two runs, three jobs one after the other for each"
    assert full.waiting == (starved,), "two places are left, and a chain takes three"


def test_what_no_job_of_the_target_can_hold_is_skipped() -> None:
    sweep = sweep_of(1, resources=Resources(cpus_per_task=8))
    assert "8 cores" in next(iter(make_plan(sweep, survey_of(sweep), CLUSTER, submission=1).skipped.values()))
    sweep = sweep_of(1, resources=Resources(mem="9G"))
    assert "9G" in next(iter(make_plan(sweep, survey_of(sweep), CLUSTER, submission=1).skipped.values()))
    sweep = sweep_of(1, "cuda")
    assert make_plan(sweep, survey_of(sweep), CLUSTER, submission=1).jobs == ()
    asked = make_plan(sweep, survey_of(sweep), replace(CLUSTER, gpus=None), submission=1)
    assert asked.arrays[0].allocation.gpus == 1, "a profile that says nothing asks for what the runs need"


def test_several_runs_share_a_gpu_where_the_profile_packs_them() -> None:
    sweep = sweep_of(4, "cuda")
    plan = make_plan(sweep, survey_of(sweep), replace(CLUSTER, gpus=1, pack=4), submission=1)
    (job,) = plan.jobs
    assert (job.slots, job.resources.gpus, plan.arrays[0].allocation.gpus) == (4, 1, 1)


def measured(run_id: str, seconds: float, state: RunState = RunState.DONE) -> RunStatus:
    return RunStatus(run_id, state, frames=100, total=100, end_to_end_fps=100 / seconds)


def benchmark(*algorithms: str, seeds: int) -> Sweep:
    """As a matrix that names its algorithms first: all seeds of the one, then all of the next."""
    runs = tuple(
        BENCHMARL.identify({"algorithm": one}, seed, 1) for one in algorithms for seed in range(seeds)
    )
    return Sweep("s", "benchmarl", runs, "text")


def begun(sweep: Sweep, run_ids: Sequence[str]) -> list[tuple[str, int]]:
    """Algorithm and seed of these runs."""
    by_id = {run.run_id: (str(run.overrides["algorithm"]), run.seed) for run in sweep.runs}
    return [by_id[run_id] for run_id in run_ids]


def test_only_what_takes_far_longer_than_the_others_comes_before_them() -> None:
    sweep = benchmark("iql", "ippo", "mappo", seeds=3)
    survey = survey_of(sweep)

    def order(mappo_s: float) -> list[tuple[str, int]]:
        times = {"iql": 10.0, "ippo": 12.0, "mappo": mappo_s}
        done = {
            run.run_id: measured(run.run_id, times[str(run.overrides["algorithm"])])
            for run in sweep.runs
            if run.seed == 0
        }
        seen = replace(survey, statuses={**survey.statuses, **done})
        return begun(sweep, make_plan(sweep, seen, CPU, submission=1).run_ids)

    assert order(90.0)[:2] == [("mappo", 1), ("mappo", 2)], (
        "left alone at the end they would keep all waiting"
    )
    turns = [seed for _, seed in order(15.0)]
    assert turns == [1, 1, 1, 2, 2, 2], "in turns"
    assert {algorithm for algorithm, _ in order(15.0)[:3]} == {"iql", "ippo", "mappo"}


@pytest.mark.parametrize("capacity", ["one job", "array", "one run a job", "machines"])
def test_a_busy_hour_and_a_slow_job_hit_all_algorithms_alike(capacity: str) -> None:
    sweep = benchmark("a", "b", "c", "d", seeds=6)
    where = {
        "one job": replace(CPU, pack=4),
        "array": replace(CLUSTER, pack=6),
        "one run a job": replace(CLUSTER, pack=1),
        "machines": replace(instances(4), pack=1),
    }[capacity]
    plan = make_plan(sweep, survey_of(sweep), where, submission=1)
    assert sorted(plan.run_ids) == sorted(run.run_id for run in sweep.runs)
    jobs = [begun(sweep, job.run_ids) for job in plan.jobs]
    longest = max(map(len, jobs))
    # A job after the other begins: what they do at the same time is a line of this.
    order = [job[place] for place in range(longest) for job in jobs if place < len(job)]
    places = {name: [at for at, run in enumerate(order) if run[0] == name] for name in "abcd"}
    middles = [fmean(own) for own in places.values()]
    assert max(middles) - min(middles) <= 1.5
    for start in range(0, len(order), 4):
        assert {name for name, _ in order[start : start + 4]} == set("abcd")
    if len(jobs) in (4, 6):
        most = math.ceil(len(jobs[0]) / 4) + 1
        assert max(Counter(name for name, _ in job).most_common(1)[0][1] for job in jobs) <= most
    again = make_plan(sweep, survey_of(sweep), where, submission=1)
    assert again.run_ids == plan.run_ids


def test_canaries_go_first_and_the_rest_when_they_have_trained() -> None:
    sweep = Sweep(
        "s",
        "benchmarl",
        tuple(BENCHMARL.identify({"algorithm": a}, s, 1) for a in ("iql", "mappo") for s in range(3)),
        "text",
    )
    survey = survey_of(sweep)
    ids = [run.run_id for run in sweep.runs]

    def planned(**states: RunStatus) -> list[str]:
        seen = replace(survey, statuses={**survey.statuses, **states})
        plan = make_plan(sweep, seen, CLUSTER, submission=1, options=SubmitOptions(canary=True))
        assert {*plan.run_ids, *plan.waiting, *states} == set(ids)
        return sorted(plan.run_ids)

    assert planned() == sorted([ids[0], ids[3]])
    begun = RunStatus(ids[3], frames=50)  # with what another run trained
    assert planned(**{ids[3]: begun}) == sorted([ids[0], ids[3]])
    running = RunStatus(ids[0], RunState.RUNNING, attempt=1)
    assert planned(**{ids[0]: running}) == [ids[3]]
    trained = replace(running, frames=100)
    assert planned(**{ids[0]: trained}) == sorted([ids[1], ids[2], ids[3]])
    failed = RunStatus(ids[3], RunState.FAILED)
    assert planned(**{ids[0]: trained, ids[3]: failed}) == sorted([ids[1], ids[2]])


def test_runs_that_were_crowded_out_of_memory_each_get_a_job_of_the_usual_size() -> None:
    sweep = sweep_of(4)
    survey = survey_of(sweep)
    crowded = [run.run_id for run in sweep.runs[:2]]
    died = RunStatus("", RunState.INTERRUPTED, attempt=1, reason=Reason.OUT_OF_MEMORY)
    statuses = {**survey.statuses, **{one: replace(died, run_id=one) for one in crowded}}
    plan = make_plan(sweep, replace(survey, statuses=statuses), CLUSTER, submission=1)
    alone = next(array for array in plan.arrays if set(array.run_ids) == set(crowded))
    assert [(job.slots, len(job.run_ids), job.steals) for job in alone.jobs] == [(1, 1, False)] * 2
    assert alone.allocation.mem == "8G"


def instances(number: int, **more: int) -> Capacity:
    return Capacity("l4", 4, 1, array_size=1, most=number, apart=True, **more)


def test_machines_share_the_runs_and_take_none_of_each_other() -> None:
    sweep = sweep_of(10)
    plan = make_plan(sweep, survey_of(sweep), instances(3), submission=2)
    assert [(job.token, len(job.run_ids), job.steals) for job in plan.jobs] == [
        ("0002-0001", 4, False),
        ("0002-0002", 3, False),
        ("0002-0003", 3, False),
    ]
    assert set(plan.run_ids) == {run.run_id for run in sweep.runs}


def test_a_machine_is_rented_once_for_all_kinds_of_runs() -> None:
    cpu, gpu = sweep_of(2), sweep_of(2, "cuda")
    sweep = replace(cpu, runs=cpu.runs + gpu.runs)
    plan = make_plan(sweep, survey_of(sweep), instances(1), submission=1)
    assert [(len(job.run_ids), job.slots) for job in plan.jobs] == [(4, 1)]  # the GPU is one


def test_no_more_machines_than_there_is_work_at_once() -> None:
    sweep = sweep_of(4)
    assert len(make_plan(sweep, survey_of(sweep), instances(3), submission=1).jobs) == 1
    assert len(make_plan(sweep, survey_of(sweep), instances(3, pack=1), submission=1).jobs) == 3


def test_runs_wait_while_all_machines_work() -> None:
    sweep = sweep_of(2)
    busy = replace(survey_of(sweep), live=frozenset({"0001-0001"}))
    plan = make_plan(sweep, busy, instances(1), submission=2)
    assert plan.jobs == ()
    assert len(plan.waiting) == 2


def test_a_deal_leaves_all_other_runs_alone() -> None:
    sweep = sweep_of(6, resources=Resources(cpus_per_task=2))
    first, second, third = (run.run_id for run in sweep.runs[:3])
    mine = frozenset(run.run_id for run in sweep.runs[3:])
    assignment = TargetAssignment(mine, {first: "no target has enough memory"})
    plan = make_plan(sweep, survey_of(sweep), CLUSTER, submission=1, assignment=assignment)
    assert set(plan.run_ids) == mine
    assert plan.skipped == {first: "no target has enough memory"}
    assert not {second, third} & {*plan.run_ids, *plan.waiting}
    assert len(plan.jobs) == 2
    queued = survey_of(sweep, *[RunState.QUEUED] * 6)
    assert make_plan(sweep, queued, CLUSTER, submission=1, assignment=assignment).jobs == ()


def test_other_targets_jobs_take_no_room_and_their_runs_no_slots() -> None:
    sweep = sweep_of(8, resources=Resources(cpus_per_task=2))
    elsewhere = survey_of(sweep, RunState.RUNNING)
    running = {run.run_id: replace(elsewhere.statuses[run.run_id], token="t") for run in sweep.runs[:1]}
    elsewhere = replace(
        elsewhere,
        statuses={**elsewhere.statuses, **running},
        live=frozenset({"t"}),
        targets={"t": "another"},
    )
    assert make_plan(sweep, elsewhere, CPU, submission=1).jobs[0].slots == 2
    assert len(make_plan(sweep, elsewhere, replace(CLUSTER, most=2), submission=1).jobs) == 2
    own = replace(elsewhere, targets={"t": "c"})
    assert len(make_plan(sweep, own, replace(CLUSTER, most=2), submission=1).jobs) == 1

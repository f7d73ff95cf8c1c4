from __future__ import annotations

from orchestrator.plan import Capacity, make_plan
from orchestrator.rundir import IndexRow
from orchestrator.state import RunStatus, Survey
from orchestrator.trainers import BENCHMARL
from orchestrator.types import Resources, RunState, Sweep

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
    assert make_plan(sweep, busy, CPU, submission=1, slots=3).jobs[0].slots == 3


def test_gpu_runs_are_skipped_with_the_reason_where_there_is_none() -> None:
    sweep = sweep_of(2, "cuda")
    plan = make_plan(sweep, survey_of(sweep), CPU, submission=1)
    assert plan.jobs == ()
    assert set(plan.skipped) == {run.run_id for run in sweep.runs}
    assert all("GPU" in why for why in plan.skipped.values())
    placed = make_plan(sweep, survey_of(sweep), Capacity("local", 4, 1), submission=1)
    assert len(placed.run_ids) == 2

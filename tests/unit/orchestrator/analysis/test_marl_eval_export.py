"""What marl-eval is given: a place for each run and for no two, its values, and its absolute metric."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import (
    EPOCH,
    EVAL,
    create_sweep,
    finish,
    finished_sweep,
    matrix_runs,
    publish,
    training_rows,
)
from orchestrator.analysis.collect import collect
from orchestrator.analysis.marl_eval_export import SWEEP, ExportNames, names_of, write
from orchestrator.core.types import RunState
from orchestrator.rundir import Evaluation, Row, SweepDir
from tests.helpers import published, surveyed

NAVIGATION: dict[str, Sequence[Any]] = {
    "task": ["vmas/navigation"],
    "algorithm": ["mappo", "iql"],
    "seed": range(2),
}


def names(*points: dict[str, Any]) -> list[ExportNames]:
    return names_of([{SWEEP: "speed", **point} for point in points])


def variants(*points: dict[str, Any]) -> list[str]:
    return [name.variant for name in names(*({"task": "vmas/navigation", **point} for point in points))]


def written(sweep: SweepDir, *survey: Any) -> tuple[dict[str, Any], Sequence[str]]:
    export = write(collect([sweep], *survey), sweep)
    return json.loads(sweep.marl_eval.read_text()), export.notes


def evaluable(results: Path, seeds: int = 1, episodes: int = 1) -> tuple[SweepDir, list[Evaluation]]:
    """A sweep whose results tell how it was evaluated and name their checkpoints, and what fits each run."""
    sweep = finished_sweep(
        results, "speed", {**NAVIGATION, "algorithm": ["mappo"], "seed": range(seeds)}, iterations=4
    )
    usual = {"task": "vmas/navigation", "episodes": episodes, "deterministic": True}
    fitting = []
    for row in sweep.read_index():
        run = sweep.run(row.run_id)
        files = [run.attempt(1).metrics]
        for frames, digest in ((24_000, "f" * 16), (12_000, "e" * 16)):
            files.append(run.attempt(1).checkpoint_name(frames, digest))
            files[-1].parent.mkdir(exist_ok=True)
            files[-1].write_text("weights")
        publish(run, {**published(run).fields, "evaluation": usual}, files)
        returns = tuple(float(number) for number in range(10 * episodes))
        told = ("vmas/navigation", len(returns), 0, True, returns, (9,) * len(returns))
        # By another machine's clock than the one that trained.
        fitting.append(Evaluation(row.run_id, 18_000, True, "f" * 16, *told, EPOCH - 90))
    return sweep, fitting


def of_episodes(one: Evaluation, number: int, **changes: Any) -> Evaluation:
    changed = {"returns": (70.0,) * number, "lengths": (9,) * number, "time": EPOCH + 99}
    return replace(one, episodes=number, **{**changed, **changes})


# Names

KEYS = st.sampled_from(["algorithm", "lr", "x.lr", "Lr", "n,1", "task"])
TEXTS = st.sampled_from(["a", "A", "a,b", "a;b", "ß", "SS", "extra", "Extra", "", "1", "null", "ı", "I"])
NUMBERS = st.sampled_from([0, 1, 1.0, 5e-05, 0.1])
VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.lists(TEXTS))
POINTS = st.dictionaries(KEYS, VALUES, max_size=5)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), POINTS, st.integers(0, 2)), max_size=8))
def test_no_two_points_share_a_place_in_the_file_however_marl_eval_reads_it(
    drawn: list[tuple[str, dict[str, Any], int]],
) -> None:
    points = [{SWEEP: sweep, **point, "seed": seed} for sweep, point, seed in drawn]
    points = list({json.dumps(point, sort_keys=True): point for point in points}.values())
    places = names_of(points)
    # It lowers names as it reads, and raises those of variants again for its pictures.
    read = {
        (one.environment.lower(), one.task.lower(), one.variant.lower().upper(), one.seed.lower())
        for one in places
    }
    assert len(read) == len(points)
    assert not any("," in one.variant for one in places)
    assert "extra" not in {one.environment.lower() for one in places} | {
        one.variant.lower() for one in places
    }


def test_a_variant_is_named_by_what_varies() -> None:
    lr = "experiment.lr"
    assert variants({"algorithm": "mappo", lr: 5e-05}, {"algorithm": "mappo", lr: 1e-3}) == [
        "mappo lr=5e-05",
        "mappo lr=0.001",
    ]
    assert variants({"algorithm": "mappo", "seed": 0}, {"algorithm": "iql", "seed": 1}) == ["mappo", "iql"]
    assert variants({"algorithm": "mappo", "target": "a"}, {"algorithm": "mappo", "target": "b"}) == [
        "mappo a",
        "mappo b",
    ]
    assert variants({"model.num_cells": [64, 64]}, {"model.num_cells": [32]}) == [
        "num_cells=[64; 64]",
        "num_cells=[32]",
    ]
    assert variants({"seed": 0}, {"seed": 1}) == ["speed", "speed"]


def test_what_a_task_decides_alone_is_no_variant() -> None:
    points = [
        {"task": task, "algorithm": algorithm, "environments": number}
        for task, number in (("vmas/balance", 60), ("vmas/navigation", 600))
        for algorithm in ("mappo", "iql")
    ]
    assert [name.variant for name in names(*points)] == ["mappo", "iql"] * 2


def test_settings_that_marl_eval_would_take_for_one_are_told_apart() -> None:
    found = variants({"algorithm": "mappo", "x": "Tanh"}, {"algorithm": "mappo", "x": "tanh"})
    assert [name.partition(" #")[0] for name in found] == ["mappo Tanh", "mappo tanh"]
    assert len({name.lower() for name in found}) == 2
    missing = variants({"algorithm": "mappo", "x": None}, {"algorithm": "mappo"})
    assert len(set(missing)) == 2


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("vmas/navigation", ("vmas", "navigation")),
        ("smacv2/a/b", ("smacv2", "a/b")),
        ("ant", ("ant", "ant")),
        (7, ("7", "7")),
    ],
)
def test_a_task_is_split_as_benchmarl_does_it(task: Any, expected: tuple[str, str]) -> None:
    (name,) = names({"task": task, "seed": 3})
    assert (name.environment, name.task, name.seed) == (*expected, "seed_3")


def test_the_sweep_is_the_task_of_runs_that_name_none() -> None:
    (name,) = names({"algorithm": "mine"})
    assert (name.environment, name.task, name.variant) == ("speed", "speed", "mine")


# What is written


def test_two_settings_of_one_algorithm_keep_their_own_values(results: Path) -> None:
    sweep = finished_sweep(results, "speed", {**NAVIGATION, "experiment.lr": [5e-5, 1e-3]}, iterations=4)
    data, _ = written(sweep)
    navigation = data["vmas"]["navigation"]
    assert list(navigation) == ["mappo lr=5e-05", "mappo lr=0.001", "iql lr=5e-05", "iql lr=0.001"]
    for row in sweep.read_index():
        run = sweep.run(row.run_id).description()
        name = f"{row.point['algorithm']} lr={json.dumps(row.point['experiment.lr'])}"
        steps = navigation[name][f"seed_{row.point['seed']}"]
        expected = [one for one in training_rows(run, 4) if EVAL in one.metrics]
        assert [step for step in steps if step != "absolute_metrics"] == ["step_0", "step_1"]
        assert [steps[f"step_{number}"] for number in range(2)] == [
            {"step_count": one.frames, "return": [one.metrics[EVAL]], "elapsed_time": one.wall_time}
            for one in expected
        ]


def test_steps_come_in_their_order_beyond_the_tenth(results: Path) -> None:
    sweep = finished_sweep(results, "speed", NAVIGATION, iterations=24)
    data, _ = written(sweep)
    for seeds in data["vmas"]["navigation"].values():
        for steps in seeds.values():
            assert list(steps) == [*(f"step_{number}" for number in range(12)), "absolute_metrics"]
            counts = [steps[f"step_{number}"]["step_count"] for number in range(12)]
            assert counts == sorted(counts)


def test_without_an_evaluation_anew_the_best_in_training_stands_in_and_a_note_says_so(results: Path) -> None:
    sweep = create_sweep(results, "speed", runs := matrix_runs({**NAVIGATION, "seed": [0]}))
    curve = [0.5, 3.0, math.nan, 2.0]
    rows = [Row(n, 100 * (n + 1), float(n), {EVAL: value}) for n, value in enumerate(curve)]
    for run in runs:
        finish(sweep.run(run.run_id), run, rows)
    data, notes = written(sweep)
    steps = data["vmas"]["navigation"]["mappo"]["seed_0"]
    assert steps["absolute_metrics"] == {"return": [3.0], "elapsed_time": 1.0}
    assert [step["step_count"] for name, step in steps.items() if name != "absolute_metrics"] == [
        100,
        200,
        400,
    ]
    (note,) = notes
    assert "2 of 2 runs" in note
    assert "orchestrate evaluate speed --best" in note


def test_the_best_policy_evaluated_anew_is_the_absolute_metric(results: Path) -> None:
    sweep, (one, second) = evaluable(results, seeds=2, episodes=3)
    others = [
        of_episodes(one, 40, best=False),
        of_episodes(one, 40, task="vmas/navigation task.n_agents=8"),
        of_episodes(one, 40, returns=(*(74.0,) * 39, math.inf)),
        of_episodes(second, 40, best=False),
    ]
    for evaluation in (one, *others):
        sweep.evaluations.add(evaluation)
    data, notes = written(sweep)
    seeds = data["vmas"]["navigation"]["mappo"]
    assert seeds["seed_0"]["absolute_metrics"]["return"] == list(one.returns)
    assert len(seeds["seed_1"]["absolute_metrics"]["return"]) == 1
    assert "1 of 2 runs" in notes[0]
    sweep.evaluations.add(second)
    assert written(sweep)[1] == ()
    sweep.evaluations.add(of_episodes(one, 40))
    data, _ = written(sweep)
    assert data["vmas"]["navigation"]["mappo"]["seed_0"]["absolute_metrics"]["return"] == [70.0] * 40


def test_an_absolute_metric_has_ten_times_the_episodes_that_training_evaluated(results: Path) -> None:
    """By the result: that number is no key of this grid."""
    sweep, (one,) = evaluable(results, episodes=3)
    sweep.evaluations.add(of_episodes(one, 29))
    assert "1 of 1 run" in written(sweep)[1][0]
    sweep.evaluations.add(of_episodes(one, 30))
    assert written(sweep)[1] == ()


def test_an_absolute_metric_has_actions_chosen_as_in_training(results: Path) -> None:
    sweep, (one,) = evaluable(results)
    sweep.evaluations.add(replace(one, deterministic=False))
    assert "1 of 1 run" in written(sweep)[1][0]


@pytest.mark.parametrize("digest", ["e" * 16, "0" * 16])
def test_an_absolute_metric_is_of_the_final_checkpoint_whatever_the_clocks_say(
    results: Path, digest: str
) -> None:
    """Of the best policy so far, or of an earlier training, it is none, however late."""
    sweep, (one,) = evaluable(results)
    sweep.evaluations.add(replace(one, checkpoint=digest, time=EPOCH + 1e6))
    assert "1 of 1 run" in written(sweep)[1][0]
    sweep.evaluations.add(one)
    assert written(sweep)[1] == ()


@pytest.mark.parametrize("episodes", ["x", None, math.inf])
def test_a_result_that_does_not_tell_how_it_was_evaluated_has_no_absolute_metric(
    results: Path, episodes: Any
) -> None:
    sweep, (one,) = evaluable(results)
    sweep.evaluations.add(one)
    run = sweep.run(one.run_id)
    fields = published(run).fields
    fields["evaluation"]["episodes"] = episodes
    run.result_path.write_text(json.dumps(fields))
    assert "1 of 1 run" in written(sweep)[1][0]


def test_only_results_that_count_are_in_the_file(results: Path) -> None:
    sweep = finished_sweep(results, "speed", {**NAVIGATION, "seed": range(3)}, iterations=2)
    rows = sweep.read_index()
    stale = {row.run_id: RunState.STALE for row in rows if row.point["seed"] == 0}
    pending = next(row for row in rows if row.point == {**rows[0].point, "seed": 2})
    sweep.run(pending.run_id).result_path.unlink()
    data, notes = written(sweep, surveyed(stale))
    assert {name: list(seeds) for name, seeds in data["vmas"]["navigation"].items()} == {
        "mappo": ["seed_1"],
        "iql": ["seed_1", "seed_2"],
    }
    assert "missing in vmas: mappo on navigation seed_2" in notes[-1]


def test_evaluations_that_cannot_be_laid_side_by_side_are_said(results: Path) -> None:
    sweep = create_sweep(results, "speed", runs := matrix_runs(NAVIGATION))
    for number, run in enumerate(runs):
        finish(sweep.run(run.run_id), run, training_rows(run, 4 if number else 8))
    assert "other numbers of evaluations in vmas: mappo on navigation seed_0" in written(sweep)[1][-1]


def test_what_was_collected_with_exploration_is_no_evaluation(results: Path) -> None:
    sweep = finished_sweep(results, "speed", NAVIGATION, iterations=4, evaluation=False)
    data, notes = written(sweep)
    assert data == {}
    assert notes == ("marl_eval.json: 4 finished runs were never evaluated in training, and left out",)


def test_returns_of_training_of_ppo_are_no_evaluations(results: Path) -> None:
    runs = matrix_runs({"task": ["gymnasium/CartPole-v1"], "seed": range(2)}, trainer="ppo")
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        finish(sweep.run(run.run_id), run, [Row(0, 10, 1.0, {"episode/reward": 1.0})])
    data, notes = written(sweep)
    assert data == {}
    assert notes == ("marl_eval.json: 2 finished runs were never evaluated in training, and left out",)


def test_a_program_of_ones_own_has_its_return_read(results: Path) -> None:
    runs = matrix_runs({"argv": [["train"]], "lr": [0.1, 0.2], "seed": range(2)}, trainer="command")
    sweep = create_sweep(results, "mine", runs)
    for run in runs:
        finish(sweep.run(run.run_id), run, [Row(0, 10, 1.0, {"return": run.overrides["lr"]})])
    data, notes = written(sweep)
    assert {name: seeds["seed_1"]["step_0"]["return"] for name, seeds in data["mine"]["mine"].items()} == {
        "lr=0.1": [0.1],
        "lr=0.2": [0.2],
    }
    assert any("absolute metric of 4 of 4 runs is the highest return" in note for note in notes)
    # Neither is anything to such runs.
    assert not any("episodes" in note or "orchestrate evaluate" in note for note in notes)

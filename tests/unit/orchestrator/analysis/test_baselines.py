"""Policies beside scripted players: which evaluations count, verdicts, frames to thresholds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic import EVAL, create_sweep, finish, matrix_runs
from orchestrator.analysis.cells import Table
from orchestrator.analysis.collect import Collected, collect
from orchestrator.analysis.evaluations.baselines import (
    BaselineVerdict,
    EvaluatedGroup,
    EvaluatedSweep,
    Ranking,
    evaluated_sweep,
    frames_to_best,
    frames_to_half,
    gap_of,
    rankings,
)
from orchestrator.analysis.groups.curves import FramesToThreshold
from orchestrator.analysis.groups.grouping import groups
from orchestrator.analysis.report.blocks import Text
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.sections.runs import baselines
from orchestrator.analysis.report.sections.runs.baselines import (
    behaviour_table,
    frames_table,
    players_table,
    ranking_table,
    verdicts,
)
from orchestrator.core.types import Run
from orchestrator.rundir import Evaluation, Row, SweepDir

SCORE, GAP, WORK = "team/score", "team/gap_closed", "behaviour/work"
PLAYERS = {
    "random": {SCORE: 10.0, GAP: 0.0, WORK: 0.5},
    "hero": {SCORE: 30.0, GAP: 2.0, WORK: 1.0},
    "expert": {SCORE: 20.0, GAP: 1.0, WORK: 0.75},
}


def evaluation(run: Run, score: float, **changes: Any) -> Evaluation:
    return replace(
        Evaluation(
            run_id=run.run_id,
            frames=400,
            best=False,
            checkpoint=run.run_id,
            task=str(run.overrides.get("task", "game")),
            episodes=2,
            seed=0,
            deterministic=True,
            returns=(score, score),
            lengths=(5, 5),
            time=1.0,
            figures={SCORE: score, GAP: (score - 10) / 10, WORK: 0.25},
            baselines=PLAYERS,
        ),
        **changes,
    )


def curve(run: Run, scores: list[float]) -> list[Row]:
    """An evaluation in training every 100 frames."""
    return [
        Row(number, 100 * number, float(number), {f"eval/{SCORE}": score, f"eval/{GAP}": (score - 10) / 10})
        for number, score in enumerate(scores, 1)
    ]


def sweep_of(results: Path, scores: dict[str, list[float]], name: str = "told") -> tuple[SweepDir, list[Run]]:
    """A finished sweep with an evaluated run for each final score of a task; it is reached in four steps."""
    runs = [
        run
        for task, own in scores.items()
        for run in matrix_runs({"task": [task], "seed": range(len(own))}, "ppo")
    ]
    sweep = create_sweep(results, name, runs)
    for run in runs:
        final = scores[str(run.overrides["task"])][run.seed]
        rows = curve(run, [final * part / 4 for part in range(1, 5)])
        finish(sweep.run(run.run_id), run, rows, checkpoint=run.run_id)
        sweep.evaluations.add(evaluation(run, final))
    return sweep, runs


def evaluated(sweep: SweepDir) -> tuple[EvaluatedSweep | None, Collected]:
    collected = collect([sweep])
    return evaluated_sweep(sweep, collected, groups(collected)), collected


def found(sweep: SweepDir) -> EvaluatedSweep:
    seen, _ = evaluated(sweep)
    assert seen is not None
    return seen


def cells(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[cell.text for cell in row] for row in table.rows]


# Which evaluations count


def test_final_policies_on_their_own_task_count_and_the_setting_of_most_runs(results: Path) -> None:
    sweep, runs = sweep_of(results, {"game/a": [1.0, 2.0], "game/b": [3.0]})
    first, second, third = runs
    for other in (
        evaluation(first, 99, task="game/b"),
        evaluation(first, 99, task='game/a task.players=["x"]', time=5.0),
        evaluation(first, 99, checkpoint="f" * 16, frames=300, time=5.0),
        evaluation(first, 99, episodes=1, returns=(0.0,), lengths=(1,), time=9.0),  # of one run only
        evaluation(second, 99, seed=1, baselines={}, time=9.0),
        evaluation(third, 99, seed=1, baselines={}, time=9.0),
        replace(evaluation(third, 99, time=9.0), run_id="e" * 16),
    ):
        sweep.evaluations.add(other)
    seen = found(sweep)
    assert [one.values(SCORE) for one in seen.groups] == [[1.0, 2.0], [3.0]]
    assert seen.setting == "2 episodes, deterministic actions, seed 0"
    assert (seen.missing, seen.ranked, seen.behaviour) == (0, [SCORE], [WORK])


def test_newer_evaluations_of_as_many_runs_count_and_the_best_policies_are_named(results: Path) -> None:
    sweep, runs = sweep_of(results, {"game/a": [1.0, 2.0]})
    for run in runs:
        sweep.evaluations.add(evaluation(run, 7.0, best=True, time=2.0))
    seen = found(sweep)
    assert seen.groups[0].values(SCORE) == [7.0, 7.0]
    assert seen.setting == "2 episodes, deterministic actions, seed 0, best policies of training"


def test_parts_of_several_sweeps_have_their_names(results: Path) -> None:
    sweeps = [sweep_of(results / name, {"game/a": [1.0]}, name)[0] for name in ("one", "two")]
    collected = collect(sweeps)
    section = baselines.section(report_data(sweeps, collected))
    assert section is not None
    assert [picture.name for picture in section.pictures] == ["gap-1", "gap-2"]
    titles = [block.text for block in section.blocks if isinstance(block, Text) and block.title]
    assert titles == ["one: team/score", "one: behaviour", "two: team/score", "two: behaviour"]


def test_a_run_without_an_evaluation_is_counted(results: Path) -> None:
    sweep, runs = sweep_of(results, {"game/a": [1.0, 2.0]})
    (sweep.evaluations.path / evaluation(runs[0], 1.0).name).unlink()
    seen = found(sweep)
    assert (seen.missing, seen.groups[0].values(SCORE)) == (1, [2.0])
    assert seen.command.endswith(" --episodes 2 --deterministic"), "as the others: usual ones are a setting"


def test_a_figure_that_only_some_seeds_have_is_shown(results: Path) -> None:
    sweep, runs = sweep_of(results, {"game/a": [1.0, 2.0]})
    bare = evaluation(runs[1], 2.0)
    sweep.evaluations.add(replace(bare, figures={SCORE: 2.0}))
    assert found(sweep).behaviour == [WORK]


def test_without_baselines_there_is_no_section(results: Path) -> None:
    sweep, runs = sweep_of(results, {"game/a": [1.0]})
    sweep.evaluations.add(evaluation(runs[0], 1.0, baselines={}))
    seen, collected = evaluated(sweep)
    assert seen is None
    assert baselines.section(report_data([sweep], collected)) is None


def test_a_trainer_whose_players_have_returns_only_and_a_grid_without_a_task(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], "seed": range(5)})
    sweep = create_sweep(results, "other", runs)
    for run in runs:
        rows = [Row(1, 100, 1.0, {EVAL: 4.0}), Row(2, 200, 2.0, {EVAL: 6.0})]
        finish(sweep.run(run.run_id), run, rows, checkpoint=run.run_id)
        told = {"still": {"return": 6.0}, "broken": {"return": math.nan}}
        sweep.evaluations.add(evaluation(run, 7.0 + run.seed, figures={"extra": 1.0}, baselines=told))
    seen, collected = evaluated(sweep)
    assert seen is not None
    assert (seen.ranked, seen.behaviour) == (["return"], [])
    (row,) = rankings(seen, "return")
    assert (row.estimate.value, row.best, row.best_players) == (9.0, 6.0, ("still",))
    assert (row.verdict, row.gap) == (BaselineVerdict.ABOVE, None)
    (frames,) = frames_to_best([row], collected)
    assert frames is not None
    assert (frames.frames, frames.spacing) == ((200.0,) * 5, 100.0)
    assert frames_to_half([row], collected) == [None]
    section = baselines.section(report_data([sweep], collected))
    assert section is not None
    assert section.pictures == ()


# Verdicts


def beside(scores: dict[str, list[float]], best: float = 20.0) -> list[Ranking]:
    """Groups with these scores beside one player, without their folders."""
    runs = matrix_runs({"task": list(scores), "seed": [0]}, "ppo")
    of = [
        EvaluatedGroup(
            None,  # type: ignore[arg-type]
            tuple(evaluation(run, score) for score in scores[str(run.overrides["task"])]),
            {"hero": {SCORE: best}},
        )
        for run in runs
    ]
    return rankings(EvaluatedSweep("s", "", tuple(of), 0, ""), SCORE)


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([21.0, 22.0, 23.0, 24.0, 25.0], BaselineVerdict.ABOVE),
        ([15.0, 16.0, 17.0, 18.0, 19.0], BaselineVerdict.BELOW),
        ([19.0, 20.0, 21.0, 22.0, 23.0], BaselineVerdict.ALIKE),
        ([20.000001] * 5, BaselineVerdict.ALIKE),  # rounding
        ([21.0] * 5, BaselineVerdict.ABOVE),
        ([30.0, 40.0, 50.0, 60.0], BaselineVerdict.FEW),
        ([30.0], BaselineVerdict.FEW),
    ],
)
def test_the_test_decides(scores: list[float], verdict: BaselineVerdict) -> None:
    assert [one.verdict for one in beside({"game/a": scores})] == [verdict]


def test_policies_as_good_as_the_baseline_seldom_have_a_verdict() -> None:
    """Of a family with four groups at most one in twenty has a false verdict; by chance up to 17 of 200."""
    generator = np.random.default_rng(1)
    false = 0
    for _ in range(200):
        scores = {f"game/{name}": generator.normal(20.0, 3.0, 5).tolist() for name in "abcd"}
        false += any(one.verdict is not BaselineVerdict.ALIKE for one in beside(scores))
    assert false <= 17


def test_the_best_of_several_players_by_name_and_ties(results: Path) -> None:
    sweep, runs = sweep_of(results, {"game/a": [1.0]})
    (row,) = rankings(found(sweep), SCORE)
    assert (row.best, row.best_players) == (30.0, ("hero",))
    tied = {**PLAYERS, "expert": {SCORE: 29.999999, GAP: 2.0}}
    sweep.evaluations.add(evaluation(runs[0], 1.0, baselines=tied))
    (row,) = rankings(found(sweep), SCORE)
    assert row.best_players == ("expert", "hero")


def test_tables_say_where_policies_stand_and_in_how_many_tasks(results: Path) -> None:
    tasks = {
        "game/a": [40.0] * 5,
        "game/b": [20.0, 25.0, 30.0, 35.0, 40.0],
        "game/c": [5.0] * 5,
        "game/d": [50.0],
    }
    sweep, _ = sweep_of(results, tasks)
    rows = rankings(found(sweep), SCORE)
    a, b, c, d = cells(ranking_table(rows))
    assert a == ["a", "5", "40 [40, 40]", "30, hero", "above", "3.00 [3.00, 3.00]"]
    assert (b[0], b[2][:3], b[4], b[5][:2]) == ("b", "30 ", "not told apart", "2.")
    assert c == ["c", "5", "5 [5, 5]", "30, hero", "below", "-0.50 [-0.50, -0.50]"]
    assert d == ["d", "1", "50", "30, hero", "too few seeds", "4.00"]
    assert list(verdicts(rows)) == [
        "At least the best baseline in 2 of 4 tasks "
        "(above in 1, not told apart in 1, below in 1; 1 with fewer than 5 seeds)."
    ]
    assert list(verdicts(rows[3:])) == ["No verdict: fewer than 5 seeds."]
    table = players_table(rows)
    assert [column.name for column in table.columns[1:]] == ["expert", "hero", "random"]
    assert cells(table)[0] == ["a", "20 (1.00)", "30 (2.00)", "10 (0.00)"]
    assert cells(behaviour_table(found(sweep)))[3:] == [
        ["d", "0.25"],
        ["scripted: expert", "0.75"],
        ["scripted: hero", "1.00"],
        ["scripted: random", "0.50"],
    ]


def test_each_variant_has_its_own_count(results: Path) -> None:
    runs = matrix_runs({"task": ["game/a"], "lr": [0.1, 0.2], "seed": range(5)}, "ppo")
    sweep = create_sweep(results, "told", runs)
    for run in runs:
        finish(sweep.run(run.run_id), run, curve(run, [1.0]), checkpoint=run.run_id)
        sweep.evaluations.add(evaluation(run, 300 * float(str(run.overrides["lr"])) - 10))
    rows = rankings(found(sweep), SCORE)
    assert [row[0] for row in cells(ranking_table(rows))] == ["a lr=0.1", "a lr=0.2"]
    assert [row[0] for row in cells(players_table(rows))] == ["a"]
    other = EvaluatedGroup(rows[1].of.group, rows[1].of.evaluations, {"random": {SCORE: 1.0}})
    apart = players_table([rows[0], replace(rows[1], of=other)])
    assert [row[0] for row in cells(apart)] == ["a lr=0.1", "a lr=0.2"]
    assert list(verdicts(rows)) == [
        "lr=0.1: at least the best baseline in 0 of 1 task (below in 1).",
        "lr=0.2: at least the best baseline in 1 of 1 task (above in 1).",
    ]


# Frames to thresholds


def test_the_first_evaluation_that_reaches_the_threshold_counts(results: Path) -> None:
    """Half of the gap is a score of 15, the best baseline 30."""
    sweep, _ = sweep_of(results, {"game/a": [40.0, 40.0, 29.999999, 60.0, 24.0], "game/b": [8.0]})
    seen, collected = evaluated(sweep)
    assert seen is not None
    rows = rankings(seen, SCORE)
    best, never = frames_to_best(rows, collected)
    assert best is not None
    assert never is not None
    assert best.frames == (300.0, 300.0, 400.0, 200.0, math.inf)
    assert (best.reached, best.median, best.trained, best.spacing) == (4, 300.0, 400.0, 100.0)
    assert best.interval == (200.0, math.inf)
    assert (never.frames, never.median, never.interval) == ((math.inf,), math.inf, None)
    half, _ = frames_to_half(rows, collected)
    assert half is not None
    assert half.frames == (200.0, 200.0, 200.0, 100.0, 300.0)
    assert cells(frames_table(rows, [best, never], [half, None])) == [
        ["a", "300 [200, > 400]", "4 of 5 seeds", "200 [100, 300]", "5 of 5 seeds", "100 frames"],
        ["b", "> 400", "0 of 1 seed", "–", "–", "100 frames"],
    ]


@pytest.mark.parametrize(
    ("frames", "median"),
    [
        ((1.0, 2.0, 2.0, math.inf), 2.0),
        ((1.0, math.inf, math.inf, math.inf), math.inf),
        ((1.0, 2.0, 1.0, 2.0), 1.5),
        ((math.inf,) * 4, math.inf),
    ],
)
def test_seeds_that_never_reach_it_are_later_than_all(frames: tuple[float, ...], median: float) -> None:
    found = FramesToThreshold(frames, 9.0, None)
    assert found.median == median
    low, high = found.interval or (0.0, 0.0)
    assert (low, high) == (min(frames), max(frames))


def test_no_curve_makes_no_table(results: Path) -> None:
    runs = matrix_runs({"task": ["game/a"]}, "ppo")
    sweep = create_sweep(results, "told", runs)
    finish(sweep.run(runs[0].run_id), runs[0], [Row(1, 100, 1.0, {"loss": 1.0})], checkpoint=runs[0].run_id)
    sweep.evaluations.add(evaluation(runs[0], 1.0))
    seen, collected = evaluated(sweep)
    assert seen is not None
    rows = rankings(seen, SCORE)
    assert frames_table(rows, frames_to_best(rows, collected), frames_to_half(rows, collected)) is None


def test_the_gap_of_a_figure_stands_beside_it() -> None:
    assert gap_of("team/score") == "team/gap_closed"
    assert gap_of("score") == "gap_closed"

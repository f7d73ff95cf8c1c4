"""Matrices of evaluations: rows of training, columns of test, and their tables and heatmaps."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from orchestrator.analysis.evaluations.matrix import RETURN, as_csv, as_rows, latest_matrices, matrices, shown
from orchestrator.analysis.report import write_matrices
from orchestrator.config.trainers import get_trainer
from orchestrator.rundir import Evaluation
from orchestrator.ui.cli.results.evaluation_matrix import print_matrices
from tests.helpers import make_sweep

EASY, HARD = "game/easy", 'game/hard task.players=["a", "b"]'
POINTS = {
    "a": {"task": "game/easy", "lr": 0.1, "seed": 0},
    "b": {"task": "game/easy", "lr": 0.1, "seed": 1},
    "c": {"task": "game/hard", "lr": 0.1, "task.players": ["a", "b"], "seed": 0},
}
SCRIPTED = {"random": {"reward": -1.0}, "best": {"reward": 9.0}}


def evaluation(run_id: str, task: str, value: float, time: float = 0.0) -> Evaluation:
    return Evaluation(
        run_id=run_id,
        frames=10,
        best=False,
        checkpoint="c",
        task=task,
        episodes=2,
        seed=0,
        deterministic=True,
        returns=(value - 1, value + 1),
        lengths=(5, 5),
        time=time,
        figures={"reward": 10 * value},
        baselines=SCRIPTED,
    )


FOUND = [
    evaluation("a", EASY, 1.0),
    evaluation("a", HARD, 5.0),
    evaluation("b", EASY, 2.0),
    evaluation("b", HARD, float("inf")),
    evaluation("c", EASY, 99.0),
    evaluation("c", EASY, 4.0),
    evaluation("elsewhere", EASY, 4.0),
]


def test_rows_are_what_was_trained_and_columns_what_was_tested() -> None:
    returns, reward = matrices(FOUND, POINTS)
    assert (returns.metric, reward.metric) == (RETURN, "reward")
    assert returns.setting == "2 episodes, deterministic actions, seed 0"
    assert returns.columns == ("easy", 'hard players=["a", "b"]')
    easy, hard = returns.rows
    assert (easy.label, hard.label) == ("easy", 'hard players=["a", "b"]')
    assert (easy.trained, hard.trained) == ({0}, {1})
    one, other = easy.cells
    assert one is not None
    assert (one.value, one.n) == (1.5, 2)
    assert one.low is None  # of two seeds
    assert other is not None  # of the seed whose return is finite
    assert (other.value, other.low, other.n) == (5.0, None, 1)
    assert [cell and cell.value for cell in hard.cells] == [4.0, None]  # the last one counts
    assert [(row.label, row.scripted) for row in reward.rows[2:]] == [("best", True), ("random", True)]
    assert [cell and cell.value for cell in reward.rows[2].cells] == [9.0, 9.0]


def test_tasks_without_a_figure_have_no_column_in_its_matrix() -> None:
    found = [
        replace(one, figures={"gap": 1.0} if one.task == HARD else {}, baselines={}) for one in FOUND[:4]
    ]
    returns, gap = matrices(found, POINTS)
    assert returns.columns == ("easy", 'hard players=["a", "b"]')
    assert gap.columns == ('hard players=["a", "b"]',)
    assert [len(row.cells) for row in gap.rows] == [1]
    assert gap.rows[0].trained == frozenset()


def test_cells_as_plain_rows() -> None:
    rows = as_rows(matrices(FOUND, POINTS))
    assert len(rows) == 3 + 3 + 2 * 2
    assert {row["metric"]: row["value"] for row in rows if row["trained_on"] == "best"} == {"reward": 9.0}
    parsed = list(csv.DictReader(as_csv(matrices(FOUND, POINTS)).splitlines()))
    assert [row["tested_on"] for row in parsed] == [row["tested_on"] for row in rows]


def test_a_scripted_player_that_met_different_opponents_has_no_one_value() -> None:
    other = replace(FOUND[3], baselines={"random": {"reward": -2.0}, "best": {"reward": 9.0}})
    _, reward = matrices([*FOUND[:3], other], POINTS)
    cells = {row.label: [cell and cell.value for cell in row.cells] for row in reward.rows if row.scripted}
    assert cells == {"best": [9.0, 9.0], "random": [-1.0, None]}


def test_figures_of_behaviour_are_in_the_file_only(tmp_path: Path) -> None:
    found = matrices([replace(FOUND[0], figures={"reward": 1.0, "behaviour/work_rate": 0.5})], POINTS)
    assert [matrix.metric for matrix in shown(found)] == [RETURN, "reward"]
    paths = write_matrices(found, tmp_path)
    assert [path.name for path in paths] == ["matrix.csv", "matrix-1.png", "matrix-2.png"]
    assert "behaviour/work_rate" in paths[0].read_text()


def test_nothing_evaluated_makes_no_matrix() -> None:
    assert matrices([], POINTS) == []
    assert as_rows([]) == []


def test_the_report_takes_the_newest_evaluations_of_one_setting(tmp_path: Path) -> None:
    trainer = get_trainer("ppo")
    runs = [trainer.identify({"task": "game/easy"}, seed, 1) for seed in (0, 1)]
    sweep = make_sweep(tmp_path, runs)
    assert latest_matrices(sweep) == []
    for run in runs:
        sweep.evaluations.add(evaluation(run.run_id, EASY, 1.0, 1.0))
        sweep.evaluations.add(evaluation(run.run_id, HARD, 2.0, 2.0))
        sweep.evaluations.add(replace(evaluation(run.run_id, EASY, 3.0, 3.0), seed=1))  # one task
        sweep.evaluations.add(evaluation("f" * 16, HARD, 4.0, 4.0))
    returns, _ = latest_matrices(sweep)
    assert [row.label for row in returns.rows] == ["easy"]
    assert [cell and (cell.value, cell.n) for cell in returns.rows[0].cells] == [(1.0, 2), (2.0, 2)]


def test_files_in_a_folder_replace_those_of_before(tmp_path: Path) -> None:
    paths = write_matrices(matrices(FOUND, POINTS), tmp_path)
    assert [path.name for path in paths] == ["matrix.csv", "matrix-1.png", "matrix-2.png"]
    with Image.open(paths[1]) as image:
        assert image.width > 1000
    write_matrices(matrices(FOUND, POINTS)[:1], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["matrix-1.png", "matrix.csv"]


@pytest.mark.parametrize(("width", "tables", "intervals"), [(120, 2, True), (40, 4, False)])
def test_a_narrow_terminal_gets_several_tables(
    width: int,
    tables: int,
    intervals: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    points = {**POINTS, **{f"a{seed}": {**POINTS["a"], "seed": seed} for seed in (2, 3)}}
    more = [evaluation(run_id, task, 3.0) for run_id in ("a2", "a3") for task in (EASY, HARD)]
    print_matrices(matrices([*FOUND, *more], points))
    said = capsys.readouterr().out
    assert said.count("return") + said.count("reward") == tables
    assert ("…" in said) == intervals
    assert "best" in said

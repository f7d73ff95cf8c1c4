"""A point that an earlier version of the grid has under another id is that run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.synthetic import finish, training_rows
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import load_sweep, runs_of
from orchestrator.control.flow.leaving_runs import leaving_runs
from orchestrator.control.submit import record
from orchestrator.core.errors import GridError
from orchestrator.rundir import SweepDir

HEAD = "name: lab\ntrainer: ppo\n"
GRID = HEAD + "base: {task: gymnasium/CartPole-v1, steps: 1000MORE}\nmatrix: {seed: [0, 1]}\n"


def trained(tmp_path: Path, text: str, done: int = 2, discounts: Sequence[float] = ()) -> SweepDir:
    """A sweep of which so many runs are done, with a discount of 0.99 by default."""
    sweep = runs_of(parse_grid(text, "grid.yaml"))
    sweep_dir = SweepDir(tmp_path / "results", "lab")
    record(sweep, sweep_dir)
    for number, run in enumerate(sweep.runs[:done]):
        sweep_dir.run(run.run_id).describe(run)
        config = {"discount": discounts[number] if discounts else 0.99, "network": {"hidden": [64, 64]}}
        finish(sweep_dir.run(run.run_id), run, training_rows(run, 2), config=config)
    return sweep_dir


@pytest.mark.parametrize(
    ("more", "same"),
    [
        (", discount: 0.99", 2),
        (", discount: 0.98", 0),
        (", network.hidden: [64, 64]", 2),
        (", +discount: 0.990, network.hidden: [64, 32]", 0),
        (", unknown: null", 0),
    ],
)
def test_a_key_with_the_value_that_a_run_was_trained_with_keeps_the_run(
    tmp_path: Path, more: str, same: int
) -> None:
    before = trained(tmp_path, GRID.replace("MORE", ""))
    grid = tmp_path / "grid.yaml"
    grid.write_text(GRID.replace("MORE", more))
    sweep = load_sweep(grid, tmp_path / "results")
    assert len(sweep.points.keys() & {row.run_id for row in before.read_index()}) == same
    gone = leaving_runs(sweep, before)
    assert (gone is None) == (same == 2)


def test_a_run_that_is_not_done_is_another_one_with_a_default(tmp_path: Path) -> None:
    before = trained(tmp_path, GRID.replace("MORE", ""), done=1)
    (tmp_path / "grid.yaml").write_text(GRID.replace("MORE", ", discount: 0.99"))
    sweep = load_sweep(tmp_path / "grid.yaml", tmp_path / "results")
    known = [row.run_id in sweep.points for row in before.read_index()]
    assert known == [True, False]


def test_what_leaves_is_told_by_the_keys_that_differ(tmp_path: Path) -> None:
    text = HEAD + "base: {task: gymnasium/CartPole-v1}\nmatrix: {lr: [1e-3, 2e-3], seed: [0, 1]}\n"
    before = trained(tmp_path, text, done=4)

    def told(old: str, new: str) -> str:
        found = leaving_runs(runs_of(parse_grid(text.replace(old, new), "grid.yaml")), before)
        return "" if found is None else f"{found}; {found.hint}"

    assert told("[0, 1]", "[0, 1, 2]") == ""
    assert told("2e-3]", "3e-3]").startswith(
        "2 finished runs leave the grid: only `lr` differs (matrix); lr was"
    )
    assert "only `task` differs (base)" in told("CartPole-v1", "Acrobot-v1")
    assert "a note that changes no result belongs under labels:" in told("CartPole-v1", "Acrobot-v1")
    assert told("[0, 1]", "[1]").startswith("2 finished runs leave the grid: only `seed` differs")


def test_labels_are_names_with_one_value_that_no_run_has(tmp_path: Path) -> None:
    sweep = runs_of(parse_grid(GRID.replace("MORE", "") + "labels: {note: a, frames: 7}\n", "g.yaml"))
    assert (sweep.labels, len(sweep.runs)) == ({"note": "a", "frames": 7}, 2)
    assert sweep.points == runs_of(parse_grid(GRID.replace("MORE", ""), "g.yaml")).points
    for labels, found in (
        ("[a]", "expected names with values"),
        ("{steps: 3}", "which is a key of the runs"),
    ):
        with pytest.raises(GridError, match=found):
            parse_grid(GRID.replace("MORE", "") + f"labels: {labels}\n", "g.yaml")


def test_each_seed_is_compared_with_its_own_result(tmp_path: Path) -> None:
    before = trained(tmp_path, GRID.replace("MORE", ""), discounts=(0.99, 0.5))
    (tmp_path / "grid.yaml").write_text(GRID.replace("MORE", ", discount: 0.99"))
    sweep = load_sweep(tmp_path / "grid.yaml", tmp_path / "results")
    assert [row.run_id in sweep.points for row in before.read_index()] == [True, False]


def test_two_points_never_become_the_same_former_run(tmp_path: Path) -> None:
    before = trained(tmp_path, GRID.replace("MORE", ""))
    grid = GRID.replace("MORE", "").partition("matrix")[0]
    more = "include: [{seed: 0, discount: 0.99}, {seed: 0, network.hidden: [64, 64]}]\n"
    (tmp_path / "grid.yaml").write_text(grid + more)
    sweep = load_sweep(tmp_path / "grid.yaml", tmp_path / "results")
    assert len(sweep.runs) == 2
    assert len(sweep.points.keys() & {row.run_id for row in before.read_index()}) == 1


def test_the_section_of_a_key_is_that_of_the_grid(tmp_path: Path) -> None:
    text = HEAD + "base: {task: gymnasium/CartPole-v1}\nmatrix: {lr: [1e-3], seed: [0, 1]}\n"
    before = trained(tmp_path, text)
    for old, new, section in (
        ("[1e-3]", "[2e-3]", " (matrix)"),
        ("matrix: {lr: [1e-3], seed: [0, 1]}", "zip: {lr: [2e-3, 3e-3], seed: [0, 1]}", " (matrix)"),
        ("CartPole-v1}\nmatrix: {lr: [1e-3], ", "CartPole-v1, lr: 2e-3}\nmatrix: {", " (base)"),
    ):
        found = leaving_runs(runs_of(parse_grid(text.replace(old, new), "grid.yaml")), before)
        assert str(found) == f"2 finished runs leave the grid: only `lr` differs{section}"
        assert found is not None
        assert ("labels" in found.hint) == (section == " (base)")

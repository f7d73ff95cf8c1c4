"""`--set`: the same runs as the edited file, kept with the sweep, or one error that names the change."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import load_sweep, runs_of
from orchestrator.core.errors import GridError
from orchestrator.core.types import Sweep
from orchestrator.ui.cli import app

HEAD = "name: own\ntrainer: command\n"
BASE = {"command": ["true"], "lr": 1, "layers": [8, 8]}


def grid(base: dict[str, Any] = BASE, more: str = "", **matrix: list[Any]) -> str:
    return f"{HEAD}base: {json.dumps(base)}\nmatrix: {json.dumps(matrix)}\n{more}"


def sweep_of(text: str, *changes: str) -> Sweep:
    return runs_of(parse_grid(text, "grid.yaml", changes))


def ids(sweep: Sweep) -> list[str]:
    return [run.run_id for run in sweep.runs]


values = st.one_of(st.integers(0, 9), st.text("abz -'\"{}[]:#", min_size=1), st.booleans(), st.none())


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["lr", "depth", "layers", "algo"]),
    st.one_of(values, st.lists(values, min_size=1, max_size=3, unique_by=repr)),
)
def test_a_change_equals_an_edit_of_the_file(key: str, value: Any) -> None:
    base, matrix = dict(BASE), {"algo": ["x", "y"], "seed": [0, 1]}
    if isinstance(value, list) and key != "layers":
        base.pop(key, None)
        matrix[key] = value
    elif key == "algo":
        matrix[key] = [value]
    else:
        base[key] = value
    edited = sweep_of(grid(base, **matrix))
    changed = sweep_of(grid(algo=["x", "y"], seed=[0, 1]), f"{key}={json.dumps(value)}")
    assert ids(changed) == ids(edited)
    assert ids(sweep_of(changed.grid_text)) == ids(edited)  # what is kept with the sweep says the same


@pytest.mark.parametrize(
    ("changes", "edited"),
    [
        (["seed=range(3)"], grid(algo=["x", "y"], seed=[0, 1, 2])),
        (["seed=3,4", "algo=x"], grid(algo=["x"], seed=[3, 4])),
        (["algo=x", "algo=[x, z]"], grid(algo=["x", "z"], seed=[0])),
        (["base.layers=[4, 4]"], grid({**BASE, "layers": [4, 4]}, algo=["x", "y"], seed=[0])),
        (
            ["matrix.layers=[[4, 4], [2]]"],
            grid({"command": ["true"], "lr": 1}, algo=["x", "y"], seed=[0], layers=[[4, 4], [2]]),
        ),
        (["lr=6e4"], grid({**BASE, "lr": 60000}, algo=["x", "y"], seed=[0])),
        (["tag='a,b'"], grid({**BASE, "tag": "a,b"}, algo=["x", "y"], seed=[0])),
    ],
)
def test_values_are_written_as_in_a_grid(changes: list[str], edited: str) -> None:
    text = grid(algo=["x", "y"], seed=[0])
    assert {run.run_id for run in sweep_of(text, *changes).runs} == {*ids(sweep_of(edited))}


def test_sections_and_resources_can_be_changed() -> None:
    sweep = sweep_of(
        grid(more="resources: {mem: 1G}", seed=[0]),
        *("name=try", "targets=[cpu, gpu]", "resources.cpus_per_task=2", "labels={note: first}"),
    )
    assert (sweep.name, sweep.targets, sweep.labels) == ("try", ("cpu", "gpu"), {"note": "first"})
    assert (sweep.resources.cpus_per_task, sweep.resources.mem) == (2, "1G")


def test_a_change_comes_before_rules_and_drops_conditions_that_fit_no_point() -> None:
    rest = "for: [{algo: x, set: {lr: 5}}]\nexclude: [{algo: y, seed: 1}]"
    sweep = sweep_of(grid(more=rest, algo=["x", "y"], seed=[0, 1]), "lr=2", "algo=x")
    assert [(run.point["algo"], run.point["lr"], run.seed) for run in sweep.runs] == [
        ("x", 2, 0),
        ("x", 2, 1),
    ]


def test_a_column_of_zip_keeps_its_partners_and_a_key_its_spelling() -> None:
    text = grid({"command": ["true"], "++lr": 1}, more="zip: {a: [1, 2], b: [3, 4]}")
    points = [run.point for run in sweep_of(text, "a=[5, 6]", "lr=9").runs]
    assert [(point["a"], point["b"], point["++lr"]) for point in points] == [(5, 3, 9), (6, 4, 9)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("lr", "expected key=value"),
        ("lr=", "expected key=value"),
        ("seed=rnage(3)", "did you mean range?"),
        ("seed=-1", "expected a whole number from 0"),
        ("lr=[1, 2", "a bracket"),
        ("resources.cpu=2", "did you mean cpus_per_task?"),
        ("trainer=commnad", "did you mean command?"),
        ("target=gpu", "write targets"),
        ("lr: 1=2", "no blanks"),
        ("extends=other.yaml", "cannot extend a grid"),
    ],
)
def test_errors_name_the_change(change: str, named: str) -> None:
    with pytest.raises(GridError) as caught:
        sweep_of(grid(seed=[0, 1]), change)
    assert str(caught.value).startswith(f"--set {change}:")
    assert named in f"{caught.value} {caught.value.hint}"


def test_commands_take_changes_and_name_them_in_what_comes_next(tmp_path: Path) -> None:
    file, results = tmp_path / "grid.yaml", str(tmp_path / "results")
    file.write_text(grid(seed=[0, 1]))
    change = ["--set", "seed=range(3)", "--set", "name=try", "--results", results]
    for command in ("check", "estimate"):
        answer = CliRunner().invoke(app, [command, str(file), *change])
        assert "3 " in answer.output, answer.output
        assert answer.exit_code == 0
    assert f"--grid {file} {shlex.join(change[:4])}" in answer.output
    planned = CliRunner().invoke(app, ["sweep", str(file), "--dry-run", "--json", *change]).output
    assert json.loads(planned)["sweep"] == "try"
    assert load_sweep(file).name == "own"

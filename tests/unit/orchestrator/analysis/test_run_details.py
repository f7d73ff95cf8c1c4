"""The command that trains a run of the page again: it names the same run, whatever its values are."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.synthetic import create_sweep, finish, matrix_runs
from jobs.hydra.overrides import runs_of
from jobs.train import _parser as train_parser
from orchestrator.analysis.report.sections.runs.run_details import run_details
from orchestrator.config.trainers import get_trainer
from orchestrator.config.trainers.command import COMMAND

ALGORITHM = get_trainer("benchmarl")
numbers = st.one_of(st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False))
# Texts that read as secrets, or as something to compute, are refused when a sweep is made.
texts = st.text(
    st.characters(exclude_categories=("Cs", "Lu", "Lt", "Nd"), exclude_characters="${"), max_size=12
)
values = st.recursive(
    st.one_of(numbers, st.booleans(), texts), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


def command(trainer: str, point: dict[str, Any]) -> list[str]:
    row = {"sweep": "s", "run_id": "r", "trainer": trainer, "state": "done"}
    [told] = json.loads(run_details([], [row], {("s", "r"): point}))
    return shlex.split(told["again"])


@given(values, st.integers(0, 99))
@example("\\", 0)
@example("a\\b 'quoted' \"twice\" \\'", 1)
@example("a=b,c", 2)
@example("choice(1,2)", 2)
@example("null", 2)
@example(["a b", [1e-05, True]], 3)
@example(1e-07, 4)
def test_the_command_names_the_same_run(value: Any, seed: int) -> None:
    point = {"algorithm": "mappo", "+experiment.x": value, "seed": seed, "target": "slurm"}
    program, overrides = command("benchmarl", point)[:6], command("benchmarl", point)[6:]
    assert program == ["python", "-m", "jobs.train", "--sweep", "again", "benchmarl"]
    [run] = runs_of(ALGORITHM, overrides)
    assert run == ALGORITHM.identify({"algorithm": "mappo", "+experiment.x": value}, seed, 1)


@pytest.mark.parametrize("key", ["größe", "ключ", "net.größe", "a'b\"c", "-x", "3d", "a(b)", "--lr", "a:b@c"])
@pytest.mark.parametrize("value", [1.5, "☃ ключ", "x=1,y=2", 'it\'s "so"', ["ä,b", None], {"a": {"b": 1}}])
def test_any_key_of_a_program_can_be_typed(key: str, value: Any) -> None:
    """A grid takes keys that Hydra's grammar does not have."""
    words = command("command", {"command": ["sh", "{seed}"], key: value, "seed": 7})
    asked = train_parser().parse_args(words[3:])
    assert (asked.trainer, asked.sweep) == ("command", "again")
    [run] = runs_of(COMMAND, asked.overrides)
    assert run == COMMAND.identify({"command": ["sh", "{seed}"], key: value}, 7, 1)


@pytest.mark.parametrize("value", ["${oc.env:HOME}", {"null": 1}])
def test_a_value_that_hydra_cannot_read_has_no_command(value: Any) -> None:
    assert command("benchmarl", {"experiment.x": value, "seed": 0}) == []


def test_a_deleted_key_stays_deleted() -> None:
    assert command("benchmarl", {"~experiment.x": None, "seed": 0})[6:] == ["~experiment.x", "seed=0"]


def test_a_run_without_a_result_differs_in_its_keys_of_the_grid(tmp_path: Path) -> None:
    runs = matrix_runs({"algorithm": ["iql", "mappo"], "experiment": [{"lr": 0.5}], "seed": range(3)})
    sweep = create_sweep(tmp_path, "s", runs)
    for run in runs[:3]:
        finish(sweep.run(run.run_id), run, [])
    rows = [{"sweep": "s", "run_id": run.run_id, "trainer": "benchmarl", "state": "failed"} for run in runs]
    told = json.loads(run_details([sweep], rows, {("s", run.run_id): run.point for run in runs}))
    assert [one["composed"] for one in told] == [True] * 3 + [False] * 3
    assert [one["differs"] for one in told] == [[]] * 3 + [[["algorithm", "mappo", "iql"]]] * 3


def test_runs_for_which_there_is_no_room_keep_their_name_and_failed_ones_come_first() -> None:
    rows = [
        {"sweep": "s", "run_id": f"{at}", "trainer": "benchmarl", "state": "failed" if at > 900 else "done"}
        for at in range(1000)
    ]
    points = {("s", row["run_id"]): {"experiment.x": "y" * 2000, "seed": at} for at, row in enumerate(rows)}
    told = run_details([], rows, points)
    assert len(told) < 450_000
    found = json.loads(told)
    assert [one["name"] for one in found] == [f"s {at}" for at in range(1000)]
    assert not any("left_out" in one for one in found[901:])
    assert found[0]["again"]
    assert found[900] == {"name": "s 900", "left_out": True}

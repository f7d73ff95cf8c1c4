"""Overrides typed by hand: the same points, with the same ids, as a grid's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.hydra.override_text import override_text
from jobs.hydra.overrides import runs_of
from orchestrator.config import sweep
from orchestrator.config.grid import parse_grid
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run

BENCHMARL = get_trainer("benchmarl")


def by_grid(text: str) -> list[Run]:
    return list(sweep.runs_of(parse_grid("name: a\ntrainer: benchmarl\n" + text, "grid.yaml")).runs)


@pytest.mark.parametrize(
    ("overrides", "grid"),
    [
        (["algorithm=ippo", "seed=1"], "base: {algorithm: ippo, seed: 1}"),
        (["experiment.lr=0.00005"], "base: {experiment.lr: 5.0e-5}"),
        (["experiment.max_n_frames=6e4"], "base: {experiment.max_n_frames: 60_000}"),
        (["experiment.max_n_frames=3_000_000"], "base: {experiment.max_n_frames: 3.0e6}"),
        (["model.num_cells=[64,6e1]", "threads=2"], "base: {model.num_cells: [64, 60], threads: 2}"),
        (["experiment.lr=1e-3,2.0"], "matrix: {experiment.lr: [1.0e-3, 2.0]}"),
        (["experiment.lr=choice(1e-3, 2.0)"], "matrix: {experiment.lr: 'choice(1e-3, 2.0)'}"),
        (["experiment.max_n_frames=choice(6.0e4, 12e4)"],
         "matrix: {experiment.max_n_frames: 'choice(6.0e4, 12e4)'}"),
        (["experiment.max_n_frames=6.0e4,1e300"], "matrix: {experiment.max_n_frames: [6.0e4, 1e300]}"),
        (["experiment.max_n_iters=null", "experiment.evaluation=false"],
         "base: {experiment.max_n_iters: null, experiment.evaluation: false}"),
        (["model@critic_model=layers/gnn", "task=vmas/navigation"],
         "base: {task: vmas/navigation, model@critic_model: layers/gnn}"),
        (["+experiment.wandb_extra_kwargs.notes='a, b=c'"],
         "base: {+experiment.wandb_extra_kwargs.notes: 'a, b=c'}"),
        (["+experiment.wandb_extra_kwargs={notes: x, tags: [a, 'b c']}"],
         "base: {+experiment.wandb_extra_kwargs: {notes: x, tags: [a, 'b c']}}"),
        (["algorithm=iql", "experiment.lr=1.0", "algorithm=ippo"],
         "base: {algorithm: ippo, experiment.lr: 1.0}"),
        (["seed=range(3)", "algorithm=ippo,mappo"], "matrix: {seed: range(3), algorithm: [ippo, mappo]}"),
        (["experiment.lr=choice(1e-3, 1e-4)", "seed=range(4, 8, 2)"],
         "matrix: {experiment.lr: [1.0e-3, 1.0e-4], seed: [4, 6]}"),
    ],
)  # fmt: skip
def test_what_is_typed_means_what_it_means_in_a_grid(overrides: list[str], grid: str) -> None:
    typed, written = runs_of(BENCHMARL, overrides), by_grid(grid)
    assert [run.run_id for run in typed] == [run.run_id for run in written]
    assert [repr(run.point) for run in typed] == [repr(run.point) for run in written]  # 6e4 is no float


TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=12).filter(
    lambda text: "${" not in text and text != "???"
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(value=VALUES)
def test_any_value_is_read_as_what_it_was_written_for(value: Any) -> None:
    [run] = runs_of(BENCHMARL, [override_text("experiment.x", value)])
    assert run.run_id == BENCHMARL.identify({"experiment.x": value}, seed=0, threads=1).run_id
    assert json.dumps(run.overrides["experiment.x"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm", "found 'algorithm', expected key=value"),
        ("=ippo", "found '=ippo', expected key=value"),
        ("seed=one", "seed: found 'one', expected a whole number from 0"),
        ("seed=0,-1", "seed: found -1"),
        ("threads=0", "threads: found 0"),
        ("+seed=1", "found +seed, expected seed"),
        ("experiment.save_folder=x", "found experiment.save_folder, which cannot be set"),
        ("++experiment.restore_file=x", "which cannot be set: the program resumes runs by itself"),
        ("model.x=[1", "Hydra cannot read 'model.x=[1'"),
        ("experiment.lr=interval(0, 1)", "expected one value, or several as in"),
        ("algorithm=glob(*)", "expected one value, or several as in"),
        ("seed=shuffle(range(3))", "expected one value, or several as in"),
        ("seed=range(3, 3)", "which has no values"),
        ("seed=range(20000)", "expected at most 10,000 values"),
        ("seed=range(0, nan)", "expected numbers in range"),
        ("seed=range(1e300)", "expected at most 10,000 values"),
        ("seed=" + "9" * 4400, "Hydra cannot read"),
        ("experiment.x=1,99999999999999999999", "with an integer beyond 64 bits"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_run_is_refused(override: str, message: str) -> None:
    with pytest.raises(OrchestrateError) as refused:
        runs_of(BENCHMARL, ["algorithm=ippo", override])
    assert message in str(refused.value)


def test_a_run_that_is_named_twice_is_one() -> None:
    assert len(runs_of(BENCHMARL, ["seed=0,1,0", "experiment.loggers=[csv],[]"])) == 2

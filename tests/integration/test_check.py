"""`check` with the real BenchMARL: what it finds, how quickly, and that it composes what BenchMARL does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from orchestrator.config.check import CheckReport, check_sweep
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import load_sweep, runs_of
from tests import warm

ROOT = Path(__file__).parents[2]
HEAD = "name: speed\ntrainer: benchmarl\n"


def check(text: str) -> CheckReport:
    return check_sweep(runs_of(parse_grid(HEAD + text, "grid.yaml")))


def assert_golden(report: CheckReport, name: str, update: bool) -> None:
    """Compare what a person would read with the file of that name."""
    golden = ROOT / "tests" / "golden" / name
    told = "".join(f"{problem}\n" for problem in report.problems)
    if update:
        golden.write_text(told)
    assert told == golden.read_text()


def test_the_demo_grid_is_right() -> None:
    report = check_sweep(load_sweep(ROOT / "sweeps" / "speed.yaml"), python=warm.FRESH)
    assert report.problems == ()
    assert (report.points, report.structures) == (16, 2)


def test_ten_thousand_points_take_seconds() -> None:
    report = check(
        "base: {task: vmas/navigation}\n"
        "matrix: {algorithm: [mappo, iql], experiment.lr: 'range(0.001,0.051,0.001)', seed: range(100)}\n"
    )
    assert report.problems == ()
    assert (report.points, report.structures) == (10_000, 2)
    assert report.seconds < 60  # 4.8 s on two idle cores, most of it importing torch


def test_every_typing_error_is_told_at_once_and_soon() -> None:
    report = check(
        "base: {experiment.loggers: [csv, tensorbord]}\n"
        "matrix:\n"
        "  task: [vmas/navigation, vmas/navigaton]\n"
        "  algorithm: [mappo, iql]\n"
        "  experiment.train_device: [cpu, cudda]\n"
        "  experiment.lr: [fast, 1e-4]\n"
        "  experiment.gama: [0.9]\n"
        "  experiment.evaluation_episodes: [0, 5]\n"
        "  seed: range(3)\n"
    )
    assert report.early
    assert [problem.line for problem in report.problems] == [3, 5, 7, 8, 9, 10]


def test_every_kind_of_fault_is_found_in_one_go_and_told_once_with_its_line(update_golden: bool) -> None:
    report = check(
        "base: {experiment.checkpoint_interval: 7000}\n"
        "matrix:\n"
        "  task: [vmas/navigation, meltingpot/coins, smacv2/protoss_5_vs_5]\n"
        "  algorithm: [mappo, iql]\n"
        "  experiment.on_policy_minibatch_size: [200, 400]\n"
        "  seed: range(3)\n"
    )
    assert not report.early
    assert_golden(report, "check_faults.txt", update_golden)


def test_faults_between_values_name_the_way_out(update_golden: bool) -> None:
    report = check(
        "base: {task: vmas/navigation, algorithm: mappo, experiment.on_policy_minibatch_size: 100}\n"
        "matrix:\n"
        "  experiment.evaluation_interval: [10_000, 0, 12_000]\n"
        "  experiment.off_policy_train_batch_size: [64, 128]\n"
    )
    assert_golden(report, "check_combinations.txt", update_golden)


def test_what_no_run_reads_is_told_of_a_whole_grid_only() -> None:
    """Were the runs of mappo done, those of iql that are left would not read it either."""
    frames = "experiment.on_policy_collected_frames_per_batch"
    sweep = runs_of(
        parse_grid(
            f"{HEAD}base: {{task: vmas/navigation, {frames}: 6_000}}\nmatrix: {{algorithm: [mappo, iql]}}\n",
            "g.yaml",
        )
    )
    assert check_sweep(sweep).problems == ()
    left = replace(sweep, runs=tuple(run for run in sweep.runs if run.point["algorithm"] == "iql"))
    assert check_sweep(left, partial=True).problems == ()
    [problem] = check_sweep(left).problems
    assert (problem.key, problem.hint) == (frames, f"write {frames.replace('on_policy', 'off_policy')}")


def test_pairs_that_cannot_be_built_are_found(update_golden: bool) -> None:
    report = check(
        "base: {task: pettingzoo/multiwalker}\n"
        "matrix: {algorithm: [mappo, iql], model: [layers/mlp, layers/gnn]}\n"
        "include: [{algorithm: ippo, model: layers/mlp, model.num_cells: [x]}]\n"
    )
    assert_golden(report, "check_builds.txt", update_golden)


@pytest.mark.nightly
def test_models_made_of_layers_are_right_once_the_run_says_how() -> None:
    layers = "model/layers@model.layers.l1: mlp, model/layers@model.layers.l2: mlp"
    sequence = f"{{task: vmas/navigation, algorithm: mappo, model: sequence, {layers}"
    report = check(f"base: {sequence}}}\nmatrix: {{model.intermediate_sizes: [[8], [16]], seed: range(3)}}\n")
    assert report.problems == ()
    assert (report.points, report.structures) == (6, 1)
    [problem] = check(f"base: {sequence}}}\n").problems
    assert problem.message == "model.intermediate_sizes has no value"
    [problem] = check(f"base: {sequence}, model.intermediate_sizes: wide}}\n").problems
    assert (problem.line, problem.key) == (3, "model.intermediate_sizes")
    [problem] = check(f"base: {sequence}, model.intermediate_sizes: [8, 8]}}\n").problems
    assert "intermediate_sizes len should be 1, got 2" in problem.message


@pytest.mark.nightly
def test_tasks_that_left_pettingzoo_say_where_they_are(update_golden: bool) -> None:
    tasks = "simple_adversary, simple_crypto, simple_push, simple_reference, simple_speaker_listener"
    more = "simple_spread, simple_tag, simple_world_comm, waterworld, multiwalker"
    names = ", ".join(f"pettingzoo/{name}" for name in f"{tasks}, {more}".split(", "))
    assert_golden(
        check(f"matrix: {{algorithm: [mappo], task: [{names}]}}\n"), "check_pettingzoo.txt", update_golden
    )


@pytest.mark.nightly
def test_prioritized_replay_needs_the_compiled_part_of_torchrl() -> None:
    code = (
        "from torchrl.data.replay_buffers import samplers\n"
        "raise SystemExit(samplers.SumSegmentTreeFp32 is not None)"
    )
    loads = subprocess.run([sys.executable, "-c", code], capture_output=True).returncode
    key = "experiment.off_policy_use_prioritized_replay_buffer"
    report = check(
        f"base: {{task: vmas/navigation, {key}: true}}\nmatrix: {{algorithm: [iql], seed: range(2)}}\n"
    )
    if loads:
        assert report.problems == ()
        return
    [problem] = report.problems
    assert problem.key == key
    assert "SumSegmentTreeFp32 is not available" in problem.message


def test_a_gpu_that_this_pytorch_cannot_use_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA L4 (UUID: GPU-0)'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    grid = "base: {task: vmas/navigation, algorithm: mappo}\nmatrix:\n"
    [own] = check(f"{grid}  experiment.train_device: [cpu, 'cuda:99']\n").problems
    assert (own.line, own.key) == (5, "experiment.train_device")
    assert "found cuda:99, but" in own.message
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert check(f"{grid}  experiment: [gpu, base_experiment]\n").problems == ()


def test_what_is_composed_is_what_benchmarl_composes() -> None:
    """Against the configuration that BenchMARL's own program prints for the same command line."""
    code = (
        "import json, sys\n"
        "from jobs.trainers.benchmarl.configuration.config import compose, override_lines\n"
        "from orchestrator.config.trainers.benchmarl import BENCHMARL\n"
        "run = BENCHMARL.identify(json.load(sys.stdin), 3, 1)\n"
        "json.dump([compose(run).plain, override_lines(run)], sys.stdout)\n"
    )
    overrides = {
        "algorithm": "iql",
        "task": "vmas/navigation",
        "model@critic_model": "layers/deepsets",
        "experiment": "gpu_offline",
        "experiment.lr": 1e-05,
        "experiment.project_name": "it's, \\'hostile\\' ☃\nx=[1]",
        "experiment.max_n_iters": None,
        "+experiment.adam_extra_kwargs.betas": [0.9, {"deep": "a,b"}],
        "experiment.evaluation_interval": "${experiment.off_policy_collected_frames_per_batch}",
        "task.max_steps": 50,
        "model.num_cells": [64, 64],
    }
    ours = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(overrides),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    plain, lines = json.loads(ours.stdout)
    theirs = subprocess.run(
        [sys.executable, "-m", "benchmarl.run", "--cfg", "job", "--resolve", *lines],
        capture_output=True,
        text=True,
        check=True,
    )
    assert plain.pop("choices")["experiment"] == "gpu_offline"
    assert plain == yaml.safe_load(theirs.stdout)

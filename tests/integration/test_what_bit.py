"""Make each mistake that docs/lab.md names, and check that it is caught with a message that helps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from orchestrator.analysis.groups.crossover import CPU, GPU, SpeedLine, SpeedPoint, contest_of
from orchestrator.rundir import SweepDir
from orchestrator.ui.doctor import training
from orchestrator.ui.doctor.wandb_login import wandb
from tests import warm
from tests.helpers import (
    ROOT,
    command_run,
    count_runs,
    finish,
    make_sweep,
    start_worker,
    submit,
    wait_for,
    work,
)
from tests.libraries import well, without_glu

LAB = """name: lab
trainer: benchmarl
base:
  experiment.checkpoint_interval: 10_000
matrix:
  algorithm: [mappo, IqlConfig]
  task: [vmas/navigation, VmasTask.NAVIGATION, smacv2/protoss_5_vs_5]
include:
  - {algorithm: mappo, task: vmas/navigation, on_policy: true}
"""
DRAWN = """name: drawn
trainer: benchmarl
base:
  task: vmas/navigation
  experiment.on_policy_collected_frames_per_batch: 6_000
  experiment.render: true
matrix: {algorithm: [iql]}
"""


# What each message says, word for word, by the test that makes the mistake.
WORDS = {
    "checkpoint_interval": [
        "experiment.checkpoint_interval: found 10_000, expected a multiple of the 6_000 frames",
        "write 6_000 or 12_000",
    ],
    "class_of_an_algorithm": [
        "algorithm: found 'IqlConfig', expected one of: iddpg, ippo, iql, isac, maddpg, mappo",
        "did you mean iql? A grid has the names of Hydra, not of Python classes",
    ],
    "class_of_a_task": [
        "task: found 'VmasTask.NAVIGATION', expected one of:",
        "did you mean vmas/navigation? A grid has the names of Hydra, not of Python classes",
    ],
    "on_policy": [
        "on_policy: an algorithm is on-policy or off-policy by itself, there is nothing to set",
        "leave it out: mappo and ippo are on-policy, iql and qmix off-policy",
    ],
    "frames_of_the_other_kind": [
        "experiment.on_policy_collected_frames_per_batch is for on-policy algorithms, and",
        "the grid's algorithm is iql: nothing reads it",
        "write experiment.off_policy_collected_frames_per_batch",
    ],
    "rendering": [
        "experiment.render: found true, but this machine cannot draw: no library libGL",
        "leave it out, or: on Debian and Ubuntu apt-get install libgl",
    ],
    "rendering_by_the_doctor": [
        "evaluations cannot be rendered here: no library libGL",
    ],
    "starcraft": [
        "task: smacv2/protoss_5_vs_5 needs StarCraft II: no SC2PATH, and no ~/StarCraftII",
        "install StarCraft II for Linux and set SC2PATH to its folder",
    ],
    "starcraft_by_the_doctor": [
        "without the game: no SC2PATH, and no ~/StarCraftII",
    ],
    "wandb_login": [
        "no login for api.wandb.ai: runs log offline, complete, and cannot be sent from here",
    ],
    "gpu_slower_than_cpu": [
        "Run mappo on the CPU (1 thread, 600 environments): 174 frames/s of training;",
        "the GPU is slower with 600 environments, at best 0.67 times as fast",
    ],
}
# The tests of each mistake of the page.
MISTAKES = {
    "`checkpoint_interval` is no multiple of the frames of an iteration": ["checkpoint_interval"],
    "an algorithm or a task is named like its Python class": ["class_of_an_algorithm", "class_of_a_task"],
    "`on_policy` is set against the algorithm": ["on_policy"],
    "on-policy frames are set for off-policy algorithms": ["frames_of_the_other_kind"],
    "evaluations are rendered on a node without OpenGL or GLU": ["rendering", "rendering_by_the_doctor"],
    "SMACv2 without StarCraft II": ["starcraft", "starcraft_by_the_doctor"],
    "W&B without a login": ["wandb_login"],
    "a GPU is slower than the CPU": ["gpu_slower_than_cpu"],
}


def words_of(request: pytest.FixtureRequest) -> list[str]:
    """Return what the message of the test says."""
    return WORDS[request.node.name.removeprefix("test_")]


def check(folder: Path, grid: str, prefix: Sequence[str] = (), **environment: str) -> str:
    """What `orchestrate check` complains of."""
    (folder / "lab.yaml").write_text(grid)
    command = [*prefix, str(Path(sys.executable).with_name("orchestrate")), "check", "lab.yaml"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> str:
    """About the grid LAB, where the package of SMACv2 is there and the game is not.

    Misspelt names are told first and alone; the rest is told once they are mended.
    """
    folder = tmp_path_factory.mktemp("lab")
    (folder / "packages" / "smacv2").mkdir(parents=True)
    (folder / "packages" / "smacv2" / "__init__.py").touch()
    mended = LAB.partition("include:")[0].replace("IqlConfig", "iql").replace("VmasTask.NAVIGATION, ", "")
    environment = {"PYTHONPATH": str(folder / "packages"), "SC2PATH": "", "HOME": str(folder)}
    return "".join(check(folder, grid, **environment) for grid in (LAB, mended))


@pytest.fixture(scope="module")
def undrawn(tmp_path_factory: pytest.TempPathFactory) -> str:
    """About the grid DRAWN, where GLU is missing."""
    scratch = tmp_path_factory.mktemp("scratch")
    return check(tmp_path_factory.mktemp("drawn"), DRAWN, without_glu(scratch))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SweepDir:
    """Two runs of one worker, one after the other."""
    folder = tmp_path_factory.mktemp("trained")
    sweep = make_sweep(folder / "results", count_runs(folder / "audit", 2, steps=2, seconds=0))
    assert work(sweep) == 0
    return sweep


def test_every_mistake_of_the_page_has_a_test() -> None:
    page = (ROOT / "docs" / "lab.md").read_text().partition("## Mistakes that are caught")[2]
    rows = [line.strip("|\n ").split(" | ")[0] for line in page.splitlines() if line.startswith("| ")]
    assert rows[2:] == [*MISTAKES]
    tests = [test for tests in MISTAKES.values() for test in tests]
    assert {*tests} == {*WORDS}
    assert [test for test in tests if f"test_{test}" not in globals()] == []


def assert_said(words: Sequence[str], text: str) -> None:
    assert [word for word in words if word not in text] == [], text


def test_checkpoint_interval(complaints: str, request: pytest.FixtureRequest) -> None:
    assert_said(words_of(request), complaints)


def test_class_of_an_algorithm(complaints: str, request: pytest.FixtureRequest) -> None:
    assert_said(words_of(request), complaints)


def test_class_of_a_task(complaints: str, request: pytest.FixtureRequest) -> None:
    assert_said(words_of(request), complaints)


def test_on_policy(complaints: str, request: pytest.FixtureRequest) -> None:
    assert_said(words_of(request), complaints)


def test_starcraft(complaints: str, request: pytest.FixtureRequest) -> None:
    assert_said(words_of(request), complaints)


def test_frames_of_the_other_kind(undrawn: str, request: pytest.FixtureRequest) -> None:
    assert_said(words_of(request), undrawn)


def test_rendering(undrawn: str, request: pytest.FixtureRequest) -> None:
    assert_said(words_of(request), undrawn)


def test_rendering_by_the_doctor(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    probe = [*without_glu(tmp_path), sys.executable, "-P", "-m", "jobs.probe"]
    told = subprocess.run(probe, capture_output=True, text=True, timeout=600, check=True).stdout
    facts = {line.pop("probe"): line for line in map(json.loads, told.splitlines())}
    finding = training.drawing(lambda name: facts[name])
    assert_said(words_of(request), finding.found)
    assert finding.fix


def test_starcraft_by_the_doctor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "installed_version", lambda _: "1.0")
    monkeypatch.delenv("SC2PATH", raising=False)
    assert_said(words_of(request), training.starcraft(well).found)


def test_wandb_login(request: pytest.FixtureRequest) -> None:
    assert_said(words_of(request), wandb(Path()).found)


def test_several_runs_in_one_process(trained: SweepDir) -> None:
    claims = [attempt.claim() for run_id in trained.run_ids() for attempt in trained.run(run_id).attempts()]
    processes = {claim.holder.pid for claim in claims if claim is not None}
    assert len(processes) == len(claims) == 2
    assert len({claim.worker for claim in claims if claim is not None}) == 1


def test_logs_by_hand(tmp_path: Path) -> None:
    run = command_run(["-c", "print('said by the run')"])
    sweep = make_sweep(tmp_path / "results", [run])
    work(sweep)
    assert "said by the run" in orchestrate(sweep, "logs", sweep.name, run.run_id[:8])


def test_pids_in_text_files(tmp_path: Path) -> None:
    """A shell that did not start the worker sees it and ends it."""
    pace = tmp_path / "pace"
    pace.write_text("0 2")  # it waits after its second step
    sweep = make_sweep(tmp_path / "results", count_runs(tmp_path / "audit", 1, steps=9, seconds=pace))
    process = start_worker(sweep, submit(sweep))

    def states() -> list[str]:
        [told] = json.loads(orchestrate(sweep, "status", sweep.name, "--json"))
        return [run["state"] for run in told["runs"]]

    wait_for(lambda: states() == ["running"], timeout=600, what="the run")
    assert "1 run cancelled" in orchestrate(sweep, "cancel", sweep.name)
    finish(process)
    assert states() == ["cancelled"]


def test_gpu_slower_than_cpu(request: pytest.FixtureRequest) -> None:
    """With their figures, of five runs each: 34.5 s and 51.6 s for an iteration of 6,000 frames."""
    iterations: Mapping[str, float] = {CPU: 34.5, GPU: 51.6}
    lines = [
        SpeedLine(kind, "theirs", 1, "lab", (SpeedPoint(600, (6000 / seconds,) * 5),))
        for kind, seconds in iterations.items()
    ]
    assert_said(words_of(request), contest_of("mappo", lines).advice)


def orchestrate(sweep: SweepDir, *arguments: str) -> str:
    command = [sys.executable, "-m", "orchestrator.ui.cli", *arguments, "--results", str(sweep.results)]
    env = {**os.environ, **warm.COMMANDS}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""docs/lab-troubles.md, row by row: each trouble is made, and caught in the words that the page promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

FOLDER = Path(__file__).parent
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


@dataclass(frozen=True)
class Row:
    trouble: str
    caught_by: str
    seen: str
    test: str

    @property
    def words(self) -> list[str]:
        """What is seen, word for word."""
        return re.findall(r"`([^`]+)`", self.seen)


def rows() -> list[Row]:
    page = (ROOT / "docs" / "lab-troubles.md").read_text()
    table = [line.strip("|\n ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [Row(*cells[:3], cells[3].replace(" ", "_")) for cells in table[2:]]


def words_of(request: pytest.FixtureRequest) -> list[str]:
    """What the row of the test that asks promises."""
    [row] = [row for row in rows() if f"test_{row.test}" == request.node.name]
    assert row.words
    return row.words


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


def test_every_row_has_a_test_and_every_test_a_row() -> None:
    own = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    own.discard("every_row_has_a_test_and_every_test_a_row")
    named = [row.test for row in rows()]
    assert len(named) == len(set(named)) > 12
    elsewhere = [name for name in named if ".py:" in name]
    assert {*named} - {*elsewhere} == own
    for name in elsewhere:
        file, _, function = name.partition(":_")
        assert f"\ndef test_{function}(" in (FOLDER / file).read_text()
    caught = {re.split(r"[;,:]", row.caught_by)[0] for row in rows()}
    assert caught == {"check", "doctor", "cannot happen", "[the lab](lab.md)"}


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


def test_logs_by_hand(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run = command_run(["-c", "print('said by the run')"])
    sweep = make_sweep(tmp_path / "results", [run])
    work(sweep)
    assert "said by the run" in orchestrate(sweep, "logs", sweep.name, run.run_id[:8])
    assert words_of(request) == ["orchestrate logs SWEEP RUN"]


def test_pids_in_text_files(tmp_path: Path, request: pytest.FixtureRequest) -> None:
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
    asked = [word.split()[1] for word in words_of(request)]
    assert asked == ["status", "cancel"]


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

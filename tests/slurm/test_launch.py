"""launch/bench_multiwalker.sh as a Slurm user types it: all in one job, a job array, a chain of jobs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.hydra.override_text import override_text
from orchestrator.rundir import RunDir, SweepDir, depends_on_time
from tests import warm
from tests.helpers import PATIENCE_S, ROOT, wait_for
from tests.slurm.cluster import Cluster
from tests.tiny_benchmarl import MULTIWALKER_MAPPO

SCRIPT = "launch/bench_multiwalker.sh"
# One iteration of a step or two.
_TINIEST = {
    "experiment.max_n_iters": 2,
    "experiment.evaluation": False,
    "experiment.on_policy_collected_frames_per_batch": 40,
    "experiment.on_policy_n_envs_per_worker": 2,
    "experiment.on_policy_minibatch_size": 20,
    "experiment.checkpoint_interval": 40,
}


def overrides(point: Mapping[str, Any]) -> list[str]:
    return [override_text(key, value) for key, value in point.items()]


BENCHMARK = overrides(
    {
        key: value
        for key, value in (MULTIWALKER_MAPPO | _TINIEST).items()
        if key not in ("algorithm", "task", "experiment.evaluation_interval")
    }
)
GAME = ["steps=64", "envs=4", "batch_size=16", "evaluation_interval=0"]
TASKS = ("bucket_brigade/trivial_cooperation", "bucket_brigade/early_containment")
ONE_RUN = [*overrides({**MULTIWALKER_MAPPO, "experiment.max_n_iters": 6}), "seed=0"]


class Project:
    """The project's folder as a fresh clone has it, with its environment."""

    def __init__(self, folder: Path, name: str = "multiwalker") -> None:
        self.folder, self.name, self.logs = folder, name, folder / "results" / "slurm"
        for name in ("launch", "results/slurm"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.out"))
        (folder / ".venv").symlink_to(warm.FRESH_PREFIX)

    def run(self, *argv: str) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.said()
        return done.stdout

    def submit(self, *argv: str) -> str:
        return self.run("sbatch", "--parsable", *argv).strip()

    def wait(self, slurm: Cluster, job: str) -> None:
        """Wait until no job is left, which `sbatch --wait` learns up to half a minute later."""
        wait_for(lambda: not slurm.queue(), what="the end of all jobs")
        ends = re.findall(r"ExitCode=(\S+)", slurm.run("scontrol", "show", "job", job))
        assert set(ends) == {"0:0"}, self.said()

    def said(self) -> str:
        return "\n".join(f"{path.name}\n{path.read_text()}" for path in sorted(self.logs.glob("*.out")))

    def sweep(self) -> SweepDir:
        return SweepDir.existing(self.folder / "results", self.name)

    def run_dirs(self) -> list[RunDir]:
        sweep = self.sweep()
        return [sweep.run(run_id) for run_id in sweep.run_ids()]

    def checkpoints(self) -> list[Path]:
        return list(self.folder.glob("results/multiwalker/runs/*/attempts/*/checkpoints/*.pt"))

    def histories(self) -> dict[str, list[str]]:
        """What each run came to, a result and all that it measured, time apart; every run has one result."""
        found = {}
        for run in self.run_dirs():
            result = run.result()
            assert result is not None, self.said()
            run.verify(result, checksums=True)
            assert [path.name for path in run.path.glob("re*.json")] == ["result.json"]
            found[run.run_id] = [
                f"{row.iteration} {row.frames} {name} {value!r}"
                for row in run.history()
                for name, value in row.metrics.items()
                if not depends_on_time(name)
            ]
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def end_of(slurm: Cluster, job: str) -> str:
    """How the job ended, by accounting, which hears of it a moment later."""
    return wait_for(
        lambda: "; ".join(
            " ".join(start)
            for start in slurm.accounted(job, "state", "exitcode")
            if start[0] not in ("PENDING", "RUNNING")
        )
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("script", "nodes", "more"),
    [
        ("bucket_brigade", 1, ["task=bucket_brigade/hard"]),
        ("procgen", 2, ["task=procgen/coinrun", "rollout_steps=16", "mode=parallel", "actors=2"]),
    ],
)
def test_one_job_of_a_game(
    script: str, nodes: int, more: list[str], project: Project, slurm: Cluster
) -> None:
    options = ["--cpus-per-task=1", f"--nodes={nodes}", f"--ntasks={nodes}", "--mem=3G"]
    project.wait(slurm, project.submit(*options, f"launch/{script}.sh", *GAME, "seed=0,1", *more))
    sweep = SweepDir.existing(project.folder / "results", script)
    found = [sweep.run(run_id).result() for run_id in sweep.run_ids()]
    assert [result and result.frames for result in found] == [64, 64], project.said()


@pytest.mark.nightly(but=["bucket_brigade"])
@pytest.mark.parametrize(
    ("script", "small", "elements", "runs"),
    [
        ("bench_multiwalker", BENCHMARK, (5, 6), (4, 12)),
        ("bucket_brigade", [*GAME, f"task={','.join(TASKS)}"], (2, 3), (2, 10)),
    ],
    ids=["multiwalker", "bucket_brigade"],
)
def test_one_job_and_a_job_array(
    script: str,
    small: list[str],
    elements: tuple[int, int],
    runs: tuple[int, int],
    slurm: Cluster,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The job trains one seed, and the two elements runs of that seed which differ in all else."""
    name = request.node.callspec.id
    project, array = Project(tmp_path / "project", name), Project(tmp_path / "array", name)
    command = (f"launch/{script}.sh", *small)
    numbers = f"--array={','.join(map(str, elements))}"
    jobs = {
        project: project.submit("--cpus-per-task=2", "--mem=4G", *command, "seed=1"),
        array: array.submit(numbers, "--cpus-per-task=1", "--mem=1500M", *command),
    }
    for submitter, job in jobs.items():
        submitter.wait(slurm, job)
    together, alone = project.histories(), array.histories()
    in_turn = [row.run_id for row in array.sweep().read_index()]
    assert (len(together), len(in_turn)) == runs
    assert alone == {in_turn[element]: together[in_turn[element]] for element in elements}
    assert all(alone.values())
    assert len(list(array.logs.glob(f"{script}-*.out"))) == len(elements)
    for run in [*project.run_dirs(), *array.run_dirs()]:
        assert len(run.attempts()) == 1
    assert f"2/{len(in_turn)} done  {len(in_turn) - 2} pending" in array.run("orchestrate", "status", name)


@pytest.mark.nightly
def test_a_chain_goes_on_from_checkpoints(project: Project, slurm: Cluster, tmp_path: Path) -> None:
    said = project.run(SCRIPT, "chain", "3", "--mem=4G", *ONE_RUN)
    jobs = [line.removeprefix("Submitted batch job ") for line in said.splitlines()]
    wait_for(project.checkpoints, what="a checkpoint")
    slurm.run("scancel", "--batch", "--signal=USR1", jobs[0])
    wait_for(lambda: not slurm.queue(), what="the end of the chain")
    undisturbed = Project(tmp_path / "undisturbed")
    undisturbed.run(
        "python",
        "-P",
        "-m",
        "jobs.train",
        "--sweep",
        "multiwalker",
        "benchmarl",
        "experiment.lr=0.00005",
        *ONE_RUN,
    )
    [run] = project.run_dirs()
    assert [end_of(slurm, job) for job in jobs] == ["COMPLETED 0:0"] * 3, project.said()
    assert [piece.attempt for piece in run.chain()] == [1, 2], "the second attempt began anew"
    assert len(run.attempts()) == 2, "the third job found something to do"
    assert project.histories() == undisturbed.histories()


def test_a_run_that_fails_ends_the_chain(project: Project, slurm: Cluster) -> None:
    wrong = ["seed=0", "task=bucket_brigade/hard", "mode=nonsense"]
    said = project.run("launch/bucket_brigade.sh", "chain", "2", "--cpus-per-task=1", *wrong)
    first, second = (line.removeprefix("Submitted batch job ") for line in said.splitlines())
    wait_for(lambda: not slurm.queue(), what="the end of the chain")
    assert end_of(slurm, first) == "FAILED 1:0"
    assert end_of(slurm, second).startswith("CANCELLED")
    assert "failed: " in project.said()
    assert "nonsense" in project.said()

"""Sweeps on instances of a cloud, which SkyPilot borrows from a real Slurm cluster, by public commands."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import helpers, warm
from tests.audit import check_finished
from tests.sky.bed import Bed
from tests.slurm.lab import STEPS, Lab

CLOUD = {"backend": "skypilot", "infra": "slurm/test", "cpus_per_task": 2, "python": sys.executable}


class CloudLab(Lab):
    """A folder from which sweeps go to instances."""

    def profile(self, **keys: Any) -> None:
        (self.folder / "profile.yaml").write_text(json.dumps({**CLOUD, **keys}))

    def instances(self) -> list[str]:
        """The names of all instances that the sweep `tiny` ever had."""
        return [job_id.split("/")[0].removeprefix("skypilot:") for job_id in self.job_ids().values()]

    def is_submitted(self) -> bool:
        return (self.results / "tiny" / "grids").is_dir() and bool(self.job_ids())

    def done(self, process: subprocess.Popen[str], code: int = 0) -> str:
        output, errors = process.communicate(timeout=helpers.PATIENCE_S)
        assert process.returncode == code, f"{process.returncode}\n{output}\n{errors}"
        assert "Traceback" not in output + errors
        return output + errors


@pytest.fixture
def labs(tmp_path: Path) -> Iterator[list[CloudLab]]:
    """As many as a test makes; their commands end with it."""
    made: list[CloudLab] = []
    yield made
    for lab in made:
        for process in lab.started:
            process.kill()
            process.communicate()


def lab_in(folder: Path, labs: list[CloudLab], **profile: Any) -> CloudLab:
    lab = CloudLab(folder)
    lab.profile(**profile)
    labs.append(lab)
    return lab


def lose(bed: Bed) -> None:
    """Take every instance away, as a cloud does with spot machines: without a word."""
    jobs = list(bed.slurm.queue())
    assert jobs
    bed.slurm.run("scancel", *jobs)


def nothing_is_left(bed: Bed) -> bool:
    """Whether no instance is known; the job that stood for one ends a moment after it was taken down."""
    known = "No existing clusters" not in bed.sky("status", "--refresh")
    return not known and helpers.wait_for(lambda: not bed.slurm.queue(), what="an empty queue")


def count_grid(lab: CloudLab) -> None:
    argv = [sys.executable, str(helpers.COMMANDS / "count.py"), str(lab.folder / "audit"), str(STEPS), "0.05"]
    lab.write_grid("tiny", "command", {"command": argv}, {"seed": [0, 1]})


def test_a_program_runs_on_an_instance_that_goes_when_all_is_done(
    bed: Bed, tmp_path: Path, labs: list[CloudLab]
) -> None:
    lab = lab_in(tmp_path, labs)
    count_grid(lab)
    said = lab.done(lab.start("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml"))
    assert "2/2 done" in said
    assert len(lab.instances()) == 1
    check_finished(lab.dir(), lab.descriptions(), lab.folder / "audit", STEPS)
    assert nothing_is_left(bed)


@pytest.mark.nightly
def test_training_outlives_its_instance_and_ends_as_at_home(
    bed: Bed, tmp_path: Path, labs: list[CloudLab]
) -> None:
    """Two trainings on an instance that is taken away: another one goes on from what came home."""
    lab = lab_in(tmp_path / "cloud", labs)
    lab.train_grid(40)
    training = lab.start("sweep", "--grid", "real.yaml", "--on", "profile.yaml")
    at_home = Lab(tmp_path / "home")
    at_home.train_grid(40)
    at_home.run("sweep", "--grid", "real.yaml", "--on", "local", env=warm.WORKERS)
    at_home.run("collect", "real")

    def came_home() -> bool:
        sweep = lab.dir("real")
        return any(sweep.run(run_id).checkpoints() for run_id in sweep.run_ids())

    helpers.wait_for(came_home, what="a checkpoint")
    assert lab.results_of("real") < 2
    lose(bed)
    said = lab.done(training)
    assert "2/2 done" in said
    sweep = lab.dir("real")
    assert max(len(sweep.run(run_id).attempts()) for run_id in sweep.run_ids()) == 2
    lab.run("collect", "real")
    assert lab.metrics("real").equals(at_home.metrics("real"))
    assert nothing_is_left(bed)


@pytest.mark.nightly
def test_whatever_becomes_of_the_command_instances_go(bed: Bed, tmp_path: Path, labs: list[CloudLab]) -> None:
    """The command is killed. One sweep is taken up again; the other's instance waits in vain, and goes."""
    adopted = lab_in(tmp_path / "adopted", labs)
    left = lab_in(tmp_path / "left", labs, hold="0:05", idle_minutes=1)
    for lab in (adopted, left):
        count_grid(lab)
        command = lab.start("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml")
        helpers.wait_for(lab.is_submitted, what="the submission")
        command.send_signal(signal.SIGKILL)
        command.wait()
    said = adopted.done(adopted.start("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml"))
    assert "2/2 done" in said
    assert len(adopted.instances()) == 1
    check_finished(adopted.dir(), adopted.descriptions(), adopted.folder / "audit", STEPS)
    assert not (adopted.results / "tiny" / "parcels").exists() or not any(
        (adopted.results / "tiny" / "parcels").iterdir()
    )
    (instance,) = left.instances()
    said = left.run("status", "tiny")
    if instance in bed.sky("status"):
        assert re.search(rf"instance {instance} is up since [0-9:]+", said)
    # SkyPilot takes seconds of the processor to answer, squeue none.
    helpers.wait_for(lambda: not bed.slurm.queue(), what="the end of the instance, without an exchange")
    helpers.wait_for(lambda: nothing_is_left(bed), what="SkyPilot to know of it")


def command_lines() -> Iterator[bytes]:
    """The arguments of all processes, as every user can read them."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


@pytest.mark.nightly
def test_a_run_on_two_machines(bed: Bed, tmp_path: Path, labs: list[CloudLab]) -> None:
    """The agent on the second one meets the worker by the secret that both were given, and no other user."""
    lab = lab_in(tmp_path / "cloud", labs, cpus_per_task=1)
    base = {"task": "bucket_brigade/hard", "mode": "parallel", "actors": 2, "envs": 4, "rollout_steps": 8}
    base |= {"steps": 256, "hidden": [8], "evaluation_interval": 0, "loggers": ["csv"]}
    grid = {"name": "tiny", "trainer": "a2c", "base": base, "resources": {"nodes": 2}}
    (lab.folder / "tiny.yaml").write_text(json.dumps(grid))
    key = lab.start("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml", env={"WANDB_API_KEY": "sesame"})
    assert "every user of a node of slurm/test could read it" in lab.done(key, code=2)
    sweep = lab.start("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml")
    (file,) = helpers.wait_for(lambda: list(lab.results.glob("tiny/parcels/*/.agents-secret")), what="it")
    secret, shown = file.read_bytes(), 0
    while sweep.poll() is None:
        shown += any(secret in line for line in command_lines())
        time.sleep(0.1)
    lab.done(sweep)
    assert (len(secret), shown) == (64, 0)
    (run_id,) = lab.dir("tiny").run_ids()
    result = lab.dir("tiny").run(run_id).result()
    assert result is not None
    assert (result.frames, result.fields["exactness"]) == (256, "exact")
    assert helpers.wait_for(lambda: nothing_is_left(bed), what="the end of the machines")

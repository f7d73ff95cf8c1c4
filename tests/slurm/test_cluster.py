"""The cluster that the other tests stand on does what a site's Slurm does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import PATIENCE_S, running, wait_for
from tests.slurm.cluster import Cluster
from tests.slurm.config import CGROUP, KERNEL_MEMORY
from tests.slurm.daemons import ClusterError, require_parts

# Tells when it starts, and that it was asked to end.
WITNESS = """
trap 'echo TERM >> $SLURM_JOB_NAME.log; exit' TERM
echo start ${SLURM_RESTART_COUNT:-0} $(hostname) >> $SLURM_JOB_NAME.log
while :; do sleep 0.1; done
"""


def submit(slurm: Cluster, folder: Path, script: str, *options: str) -> str:
    """The id of a job made of ``script`` that runs in ``folder``."""
    path = folder / "job.sh"
    path.write_text(f"#!/bin/bash\n{script}\n")
    return slurm.run("sbatch", "--parsable", *options, path, cwd=folder).strip()


def told(path: Path, *lines: str, timeout: float = PATIENCE_S) -> list[str]:
    """What a witness wrote, once all of ``lines`` are in it."""

    def read() -> list[str]:
        found = path.read_text().splitlines() if path.exists() else []
        return found if set(lines) <= set(found) else []

    return wait_for(read, timeout, f"{lines} in {path}")


def ends(slurm: Cluster, job_id: str, timeout: float = PATIENCE_S) -> dict[str, str]:
    """What Slurm says of the job when it has ended."""
    wait_for(lambda: job_id not in slurm.queue(), timeout, f"the end of {job_id}")
    return slurm.job(job_id)


def test_nodes_are_hosts_of_their_own(slurm: Cluster, tmp_path: Path) -> None:
    script = """
        cat /proc/sys/kernel/random/boot_id > $(hostname).boot
        ps -e -o args > $(hostname).processes
        sleep 1"""
    submit(slurm, tmp_path, script, "--array=0-1", "--cpus-per-task=2")
    wait_for(lambda: not slurm.queue(), what="the end of the array")
    boots = {path.stem: path.read_text() for path in tmp_path.glob("*.boot")}
    assert set(boots) == {"cpu1", "cpu2"}
    assert len(set(boots.values())) == 2
    seen = (tmp_path / "cpu1.processes").read_text()
    assert "slurmd -D -N cpu1" in seen
    assert "slurmd -D -N cpu2" not in seen


def test_preemption_requeues_and_is_accounted(slurm: Cluster, tmp_path: Path) -> None:
    low = submit(slurm, tmp_path, WITNESS, "--job-name=low", "--nodelist=cpu1")
    told(tmp_path / "low.log", "start 0 cpu1")
    submit(slurm, tmp_path, "true", "--partition=urgent", "--nodelist=cpu1", "--cpus-per-task=2")
    assert told(tmp_path / "low.log", "start 1 cpu1") == ["start 0 cpu1", "TERM", "start 1 cpu1"]
    assert slurm.job(low)["Restarts"] == "1"
    accounts = [("PREEMPTED",), ("RUNNING",)]
    wait_for(lambda: slurm.accounted(low, "state") == accounts, what="accounting of both starts")


def test_a_power_cut_requeues_and_the_node_comes_back_as_another(slurm: Cluster, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, WITNESS, "--job-name=lost", "--nodelist=cpu1")
    stays = submit(slurm, tmp_path, WITNESS, "--job-name=stays", "--nodelist=cpu1", "--no-requeue")
    told(tmp_path / "lost.log", "start 0 cpu1")
    told(tmp_path / "stays.log", "start 0 cpu1")
    boot = (slurm.folder / "cpu1.boot_id").read_text()
    slurm.slurmd_kill("cpu1")
    slurm.node_down("cpu1")
    wait_for(lambda: slurm.job(job)["JobState"] == "PENDING", what="requeueing")
    assert ends(slurm, stays)["JobState"] == "NODE_FAIL"
    slurm.slurmd_start("cpu1")
    told(tmp_path / "lost.log", "start 1 cpu1")
    assert (slurm.folder / "cpu1.boot_id").read_text() != boot


def test_jobs_outlive_slurmd_slurmstepd_and_slurmctld(slurm: Cluster, tmp_path: Path) -> None:
    submit(slurm, tmp_path, WITNESS, "--job-name=job", "--nodelist=cpu1")
    told(tmp_path / "job.log", "start 0 cpu1")
    script = min(pid for pid, name in slurm.nodes["cpu1"].processes().items() if name == "slurm_script")
    slurm.slurmctld_restart()
    slurm.slurmd_kill("cpu1", "daemons")
    assert running(script)
    slurm.clean()
    assert not running(script)


def test_memory_by_polling_and_by_the_kernel(slurm: Cluster, tmp_path: Path) -> None:
    greedy = f"{sys.executable} -c 'import time; held = bytearray(300 << 20); time.sleep(20)'\nexit 0"
    polled = submit(slurm, tmp_path, greedy, "--mem=100")
    assert ends(slurm, polled)["JobState"] == "FAILED"
    assert slurm.job(polled)["ExitCode"] == "0:9"
    if os.access(CGROUP / "cgroup.procs", os.W_OK):
        slurm.set_config(**KERNEL_MEMORY)
        watched = submit(slurm, tmp_path, greedy, "--mem=100")
        assert ends(slurm, watched)["JobState"] == "OUT_OF_MEMORY"


def test_gpus_are_given_out(slurm: Cluster, tmp_path: Path) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES > $SLURM_ARRAY_TASK_ID.gpu; sleep 1"
    job = submit(slurm, tmp_path, script, "--partition=gpu", "--gpus=l4:1", "--array=0-1")
    wait_for(lambda: not slurm.queue(), what="the end of the array")
    assert {path.read_text() for path in tmp_path.glob("*.gpu")} == {"0\n", "1\n"}, job


def test_limits_and_options_hold_until_the_test_ends(slurm: Cluster, tmp_path: Path) -> None:
    slurm.set_config(MaxArraySize=10)
    slurm.set_limits(MaxSubmitJobs=5)
    submit(slurm, tmp_path, "sleep 60", "--array=0-4")
    with pytest.raises(ClusterError, match="AssocMaxSubmitJobLimit"):
        submit(slurm, tmp_path, "true")
    with pytest.raises(ClusterError, match="Invalid job array"):
        submit(slurm, tmp_path, "true", "--array=0-10")
    slurm.clean()
    submit(slurm, tmp_path, "true", "--array=0-10")


def test_messages_are_counted(slurm: Cluster) -> None:
    slurm.sdiag_reset()
    slurm.run("scontrol", "ping")
    slurm.queue()
    slurm.queue()
    counted = slurm.sdiag()
    assert counted["types"]["REQUEST_JOB_INFO"] == 2
    assert counted["users"]["root"] >= 3


def test_missing_parts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path: program if "slurm" in program else None)
    with pytest.raises(ClusterError, match=r"needs munged, mariadbd.*tests/packages.sh install"):
        require_parts()


def test_nothing_outlives_a_killed_owner(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.slurm.cluster", "--no-accounting"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path([owner.stdout.readline() for _ in range(2)][1].split("=")[1].strip()).parent

        def living() -> list[Path]:
            return [
                entry
                for entry in Path("/proc").iterdir()
                if entry.name.isdigit() and str(folder) in environment(entry)
            ]

        assert len(living()) > 8
        owner.kill()
    wait_for(lambda: not living(), what="the end of the cluster's processes")
    subprocess.run(["rm", "-r", folder], check=True)


def environment(process: Path) -> str:
    try:
        return (process / "environ").read_text(errors="replace")
    except OSError:
        return ""

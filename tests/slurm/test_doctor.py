"""What `orchestrate doctor` says of a real cluster, well and unwell, and of profiles that ask in vain."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.config.profiles import parse_profile
from orchestrator.core import findings as core_findings
from orchestrator.ui.doctor import Finding, Verdict, diagnose
from tests.helpers import PATIENCE_S, ROOT
from tests.libraries import well
from tests.slurm.cluster import Cluster

ORCHESTRATE = Path(sys.executable).with_name("orchestrate")


def findings(folder: Path, profile: str) -> dict[str, Finding]:
    """By name; ``profile`` is the text of one, in lab.yaml."""
    parsed = parse_profile(profile, "lab.yaml", "lab")
    return {finding.name: finding for finding in diagnose(folder / "results", parsed, probe=well)}


def problems(found: dict[str, Finding]) -> dict[str, str]:
    return {one.name: one.fix or "" for one in found.values() if one.verdict is Verdict.PROBLEM}


PROOF = "orchestrate sweep --grid sweeps/validate.yaml --on test-cluster"


def orchestrate(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [ORCHESTRATE, *arguments],
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_cluster_is_well(slurm: Cluster, tmp_path: Path) -> None:
    lines = orchestrate(tmp_path, "doctor", "--on", "test-cluster").splitlines()
    cluster = lines[next(number for number, line in enumerate(lines) if "Slurm commands" in line) :]
    other = [line for line in cluster if not line.startswith("ok ")]
    assert [line.split("  ")[0] for line in other[:-1]] == ["not here"]
    assert other[-1].strip() == f"fix: {PROOF}"
    assert "ok        Nodes             2 of 2 can run such a job now or later" in lines


@pytest.mark.nightly
def test_a_sweep_proves_it(slurm: Cluster, tmp_path: Path) -> None:
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    orchestrate(tmp_path, *PROOF.split()[1:], "--follow")
    told = orchestrate(tmp_path, "doctor", "--on", "test-cluster")
    assert "ok        Training in jobs  2 runs of sweep validate" in told
    assert slurm.queue() == []


@pytest.mark.parametrize(
    ("profile", "name", "fix"),
    [
        ("partition: nope", "Partition", "set `partition:` in lab.yaml to one of cpu, urgent, gpu"),
        ("account: nope", "Account", "set `account:` in lab.yaml to one of lab, root"),
        ("qos: nope", "Account", "set `qos:` in lab.yaml to one of normal"),
        ("constraint: zen", "Nodes", "leave `constraint` out of lab.yaml: these nodes have no features"),
        ("gpus: l4:1", "Nodes", "set `partition:` in lab.yaml to one with GPUs"),
        ("partition: gpu\ngpus: h100:1\ngpu_option: gres", "Nodes", "set `gpus:` in lab.yaml to l4:1"),
    ],
)
def test_what_is_asked_for_in_vain_is_named_and_sbatch_agrees(
    slurm: Cluster, tmp_path: Path, profile: str, name: str, fix: str
) -> None:
    found = problems(findings(tmp_path, profile))
    assert found.pop("Script") == "solve the problems above first"
    assert list(found) == [name]
    assert found[name].startswith(fix)


def test_what_only_sbatch_knows_has_a_fix_too(slurm: Cluster, tmp_path: Path) -> None:
    found = problems(findings(tmp_path, "reservation: nope"))
    assert list(found) == ["Script"]
    assert "`reservation:`" in found["Script"]
    found = problems(findings(tmp_path, "options: {nope: 1}"))
    assert "`options:`" in found["Script"]


def test_time_limits_and_closed_partitions(slurm: Cluster, tmp_path: Path) -> None:
    """sbatch takes such jobs, and they wait for ever."""
    try:
        slurm.run("scontrol", "update", "PartitionName=cpu", "MaxTime=30")
        found = problems(findings(tmp_path, 'partition: cpu\ntime: "1:00:00"'))
        assert found == {"Partition": 'set `time:` in lab.yaml to "00:30:00" or less'}
        slurm.run("scontrol", "update", "PartitionName=cpu", "State=DOWN")
        assert findings(tmp_path, "partition: cpu")["Partition"].found == "cpu is down"
    finally:
        slurm.run("scontrol", "update", "PartitionName=cpu", "MaxTime=UNLIMITED", "State=UP")


def test_limits_of_the_user_and_the_site(slurm: Cluster, tmp_path: Path) -> None:
    slurm.set_limits(MaxSubmitJobs=20, MaxJobs=4)
    found = findings(tmp_path, "pack: 1")["Limits"].found
    assert "20 of yours, 4 of yours run at once. With pack: 1 a job that ends submits the next" in found


@pytest.mark.nightly
def test_accounting_down_is_a_warning_and_a_controller_down_ends_the_rest(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.slurmdbd_stop()
    found = findings(tmp_path, "partition: cpu")
    assert found["Accounting"].verdict is Verdict.WARNING
    assert found["Account"].verdict is Verdict.NOT_HERE
    assert problems(found) == {}
    slurm.slurmctld_stop()
    monkeypatch.setattr(core_findings, "PATIENCE_S", 3.0)
    found = findings(tmp_path, "partition: cpu")
    assert list(problems(found)) == ["Slurm controller"]
    assert list(found)[-1] == "All other checks"

"""What `orchestrate init` writes: grids and profiles that the program itself takes, nothing overwritten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.config.grid import parse_grid
from orchestrator.config.profiles import find_profile, parse_profile
from orchestrator.config.profiles.model import READERS
from orchestrator.config.sweep import load_sweep, runs_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import CommandAnswer
from orchestrator.ui.doctor.past_sweep import SWEEP
from orchestrator.ui.scaffold import begin
from tests.helpers import ROOT

PARTITIONS = (
    "PartitionName=debug State=UP Default=NO\nPartitionName=cpu State=UP Default=YES\n"
    "PartitionName=gpu\x1b[31m State=UP Default=NO\n"
)
ACCOUNTS = "lab|lab|lab||normal||||\nlab|lab|poor||normal||||\n"


def cluster(argv: Sequence[str]) -> CommandAnswer:
    answers = {
        "scontrol --oneliner": PARTITIONS,
        "sacctmgr": ACCOUNTS,
        "scontrol show": "ClusterName = lab\n",
    }
    return next(
        CommandAnswer(0, said) for begins, said in answers.items() if " ".join(argv).startswith(begins)
    )


def uncommented(text: str) -> str:
    """With every line in force that is there as an example."""
    return re.sub(r"^( *)# (?=[\w.]+: )", r"\1", text, flags=re.MULTILINE)


@pytest.mark.parametrize("kind", ["slurm", "skypilot", "local"])
def test_what_is_written_is_right_as_it_is_and_with_its_examples(kind: str, tmp_path: Path) -> None:
    begun = begin(tmp_path / "new" / "project", kind)
    assert [path.is_file() for path in begun.written] == [True] * (1 if kind == "local" else 3)
    grid = load_sweep(begun.written[0])
    assert len(grid.runs) == 4
    text = begun.written[0].read_text()
    examples = [line for line in text.splitlines() if uncommented(line) != line]
    assert len(examples) == 8
    for line in examples:  # each by itself: an entry of include must know all keys of matrix
        assert runs_of(parse_grid(text.replace(line, uncommented(line)), "first.yaml")).runs != grid.runs
    if kind != "local":
        assert find_profile(str(begun.written[1])).backend == kind
        full = uncommented(begun.written[1].read_text())
        given = set(re.findall(r"^(\w+):", full, re.MULTILINE))
        assert given <= set(READERS)
        assert len(given) > 12
        parse_profile(full, "full.yaml", "full")


def test_a_login_node_fills_in_what_the_cluster_has(tmp_path: Path) -> None:
    profile = begin(tmp_path, "slurm", cluster).written[1]
    assert "# there are: cpu (the default), debug, gpu[31m\n" in profile.read_text()
    assert "# there are: lab, poor\n" in profile.read_text()
    assert find_profile(str(profile)).partition is None


def test_a_cluster_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    with_answer = begin(
        tmp_path / "a", "slurm", lambda _: CommandAnswer(None, "", "no answer within 15 s")
    ).written[1]
    assert "`sinfo -s` lists them" in with_answer.read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "profiles").mkdir()
    (tmp_path / "sweeps" / "first.yaml").write_text("mine")
    (tmp_path / "profiles" / "cluster.yaml").symlink_to("nowhere")
    begun = begin(tmp_path)
    assert begun.kept == (tmp_path / "sweeps" / "first.yaml", tmp_path / "profiles" / "cluster.yaml")
    assert begun.written == (tmp_path / "sweeps" / "validate.yaml",)
    assert (tmp_path / "sweeps" / "first.yaml").read_text() == "mine"
    assert os.readlink(tmp_path / "profiles" / "cluster.yaml") == "nowhere"


def test_the_sweep_that_validates_is_the_one_that_the_doctor_names(tmp_path: Path) -> None:
    file = begin(tmp_path, "skypilot").written[2]
    assert f"sweeps/{SWEEP}.yaml" == file.relative_to(tmp_path).as_posix()
    assert file.read_text() == (ROOT / "sweeps" / f"{SWEEP}.yaml").read_text()


def test_a_kind_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(OrchestrateError, match="found 'pbs', expected one of: local, skypilot, slurm"):
        begin(tmp_path / "new", "pbs")
    assert not (tmp_path / "new").exists()


def test_as_it_is_typed(tmp_path: Path) -> None:
    def orchestrate(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("orchestrate"), "init", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)

    told = orchestrate("my project; echo", "--on", "local").stdout
    assert told.splitlines()[:3] == [
        "wrote my project; echo/sweeps/first.yaml",
        "next:",
        "  cd 'my project; echo'",
    ]
    again = orchestrate("my project; echo", "--on", "local", "--resume")
    first, second, *_ = again.stdout.splitlines()
    assert (again.returncode, first, second[:6]) == (0, "wrote my project; echo/orchestrate_run.py", "kept  ")
    (tmp_path / "file").touch()
    refused = orchestrate("file")
    assert (refused.returncode, refused.stderr) == (3, "error: file/sweeps: Not a directory\n")

"""What a result says about the machine it was made on."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.training.records import provenance
from orchestrator.config.trainers.actor_critic import PPO
from orchestrator.config.trainers.command import COMMAND
from orchestrator.rundir.copies.prefix import Prefix
from tests.helpers import command_run


def torch_where_cuda(*, used: bool) -> SimpleNamespace:
    """A torch on a machine with a GPU, which this process has used or not."""
    cuda = SimpleNamespace(
        is_initialized=lambda: used,
        get_device_name=lambda: "Some GPU",
        get_device_capability=lambda: (9, 0),
    )
    return SimpleNamespace(cuda=cuda)


@pytest.mark.parametrize(("used", "expected"), [(True, ("Some GPU", "9.0")), (False, (None, None))])
def test_a_gpu_is_named_only_if_it_was_used(
    monkeypatch: pytest.MonkeyPatch, used: bool, expected: tuple[str | None, str | None]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_where_cuda(used=used))
    host = provenance.host()
    assert (host["gpu_model"], host["gpu_capability"]) == expected


def test_what_may_change_the_bits_of_a_longer_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = PPO.identify({"task": "gymnasium/CartPole-v1"}, 0, 1)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    prefix = Prefix(run.run_id, "a", "results", 10, "", None, provenance.versions(PPO, run), "DEFAULT")
    assert provenance.other_bits(prefix, PPO, run) == ""
    elsewhere = replace(prefix, cpu_capability="AVX2")
    assert provenance.other_bits(elsewhere, PPO, run) == "CPU capability AVX2, here DEFAULT"
    older = replace(prefix, versions={**(prefix.versions or {}), "numpy": "1.0"})
    assert provenance.other_bits(older, PPO, run).startswith("numpy 1.0, here ")
    assert provenance.other_bits(older, COMMAND, command_run([])) == ""


def test_without_torch_nothing_is_said_about_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    host = provenance.host()
    assert (host["gpu_model"], host["gpu_capability"]) == (None, None)


@pytest.mark.parametrize(
    ("project", "commit"),
    [
        (None, None),
        ({"commit": None, "changed": True}, None),
        ({"commit": "c0ffee", "changed": False}, "c0ffee"),
        ({"commit": "c0ffee", "changed": True}, "c0ffee+changes-0123456789abcdef"),
    ],
)
def test_kept_code_is_of_the_commit_it_was_kept_at(
    project: dict[str, Any] | None, commit: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code" / "0123456789abcdef"
    code.mkdir(parents=True)
    (code / "code.json").write_text(json.dumps({"project": project}))
    monkeypatch.setattr(provenance, "__file__", str(code / "ours" / "jobs" / "training" / "provenance.py"))
    assert provenance.commit() == commit


def test_copies_of_code_among_results_are_no_new_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where git does not ignore results."""
    monkeypatch.chdir(tmp_path)
    for arguments in ("init --quiet", "commit --quiet --allow-empty -m m"):
        argv = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments.split()]
        subprocess.run(argv, check=True)
    for name in ("index.tsv", "ledger/0001.json", "code/1/tree/train.py"):
        (path := tmp_path / "out" / "speed" / name).parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    commit = provenance.commit() or ""
    assert len(commit) == 40
    (tmp_path / "odd \udcff.py").touch()
    assert provenance.commit() == f"{commit}+changes"
    (tmp_path / ".git" / "index").write_bytes(b"DIRCnonsense" * 10)
    assert provenance.commit() is None


def test_on_an_instance_files_are_known_only_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    run = command_run(["train.py"])
    assert provenance.code_of(COMMAND, run, tmp_path / "results").to_json().keys() == {
        "code_id",
        "code_files",
    }
    monkeypatch.setenv(provenance.ON_INSTANCE, "1")
    code = provenance.code_of(COMMAND, run, tmp_path / "results")
    assert code.id is None
    assert "no copy of the project was kept" in (code.unknown or "")


@pytest.mark.parametrize(
    ("task", "packages"),
    [
        ("procgen/coinrun", {"envpool", "envpool-assets", "PyQt5-Qt5"}),
        ("gymnasium/ALE/Pong-v5", {"ale-py"}),
        ("gymnasium/ale_py:ALE/Pong-v5", {"ale_py"}),
        ("gymnasium/minigrid.envs:MiniGrid-Empty-5x5-v0", {"minigrid"}),
        ("gymnasium/HalfCheetah-v5", {"mujoco"}),
        ("gymnasium/LunarLander-v3", {"Box2D"}),
        ("gymnasium/CartPole-v1", set()),
        ("bucket_brigade/hard", set()),
    ],
)
def test_a_result_names_the_versions_of_its_tasks_packages(
    monkeypatch: pytest.MonkeyPatch, task: str, packages: set[str]
) -> None:
    monkeypatch.setattr(provenance, "_version", lambda name: None if name == "box2d-py" else f"1.0 of {name}")
    own, found = provenance.versions(PPO), provenance.versions(PPO, PPO.identify({"task": task}, 0, 1))
    assert found == own | {package: f"1.0 of {package}" for package in packages}

"""Variables of the environment that a user sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.core import environment
from orchestrator.core.errors import OrchestrateError
from tests.helpers import ROOT


@pytest.mark.parametrize("name", [environment.LEASE, environment.GRACE])
@pytest.mark.parametrize("text", ["abc", "0", "-1", "nan", "inf", "1e400", "5 min"])
def test_an_impossible_value_is_named(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(OrchestrateError, match=f"{name} is '{text}'; expected seconds above 0"):
        environment.require_usable()


def test_a_value_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.LEASE, " 2.5 ")
    monkeypatch.setenv(environment.GRACE, "")
    environment.require_usable()
    assert environment.seconds(environment.LEASE) == 2.5
    assert environment.seconds(environment.GRACE) is None


@pytest.mark.parametrize("level", ["1", "2"])
def test_grids_are_parsed_without_assertions_in_python(tmp_path: Path, level: str) -> None:
    """Hydra's parser reads `range(2)`, and needs its assertions."""
    grid = "name: o\ntrainer: command\nbase: {command: [sh, -c, ':']}\nmatrix: {seed: range(2)}\n"
    (tmp_path / "o.yaml").write_text(grid)
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "check", "o.yaml"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONOPTIMIZE": level}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2 runs" in done.stdout

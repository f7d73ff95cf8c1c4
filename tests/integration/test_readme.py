"""What the README tells people to type works, typed in its order into one shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.helpers import PATIENCE_S

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The contents of the README's fenced blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """The lines of all `console` blocks. With make, which trains and tests it all, only what it would do."""
    lines = [line for block in blocks("console") for line in block.splitlines() if line.strip()]
    return [re.sub(r"^make ", "make --dry-run ", line) for line in lines]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh clone as far as the README's commands see it, with the environment that runs this test."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "sweeps", folder / "sweeps")
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    (grid,) = blocks("yaml")
    (folder / "first.yaml").write_text(grid)
    return folder


def test_a_fresh_machine_needs_two_commands_and_nothing_before_them() -> None:
    assert blocks("console")[:2] == ["make demo\n", "make test\n"]


def test_every_command_of_the_readme_works(clone: Path) -> None:
    script = "set -ex\n" + "\n".join(commands())
    environment = {**os.environ, **warm.WORKERS, "CUDA_VISIBLE_DEVICES": ""}
    typed = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert typed.returncode == 0, typed.stdout[-3000:] + typed.stderr[-3000:]
    made = clone / "results" / "first"
    assert [path for path in ("results.parquet", "report/index.html") if not (made / path).is_file()] == []


def test_the_demo_grid_is_valid(clone: Path) -> None:
    checked = subprocess.run(
        [clone / ".venv/bin/orchestrate", "check", "sweeps/speed.yaml"],
        cwd=clone,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []

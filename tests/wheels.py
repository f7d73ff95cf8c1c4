"""A wheel of this project, built as anybody would, without the network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build_wheel(folder: Path) -> Path:
    """Build it from a copy of the sources, in ``folder``: nothing is left among them."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, source)
    for name in ("orchestrator", "jobs", "templates"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    options = ["--no-index", "--wheel-dir", folder]
    subprocess.run([*command, *options, source], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel

"""File systems without locks, or without hard links: commands go on where that is safe, or say why not."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import helpers, warm
from tests.lagfs import view_of

PROGRAM = (
    "import json, os\n"
    "row = {'iteration': 1, 'frames': 1, 'total': 1, 'metrics': {'return': 1.0}}\n"
    "open(os.environ['ORCHESTRATE_METRICS'], 'a').write(json.dumps(row) + '\\n')\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a grid of two short runs."""
    (tmp_path / "program.py").write_text(PROGRAM)
    argv = json.dumps([sys.executable, str(tmp_path / "program.py")])
    matrix = "matrix: {seed: range(2)}\n"
    (tmp_path / "two.yaml").write_text(f"name: two\ntrainer: command\nbase: {{command: {argv}}}\n{matrix}")
    return tmp_path


def orchestrate(folder: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    """A command's exit code, and what it says, as one line."""
    python = warm.FRESH if prefix else sys.executable  # strace sees no fork of another process
    argv = [*prefix, python, "-m", "orchestrator.ui.cli", *arguments]
    env = {**os.environ, "PYTHONPATH": str(helpers.ROOT), "COLUMNS": "200"}
    answer = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    return answer.returncode, " ".join((answer.stdout + answer.stderr).split())


@pytest.mark.strace
def test_without_locks_commands_go_on_and_say_so_once(folder: Path) -> None:
    strace = ("strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=flock")
    without_locks = (*strace, "-e", "inject=flock:error=ENOLCK")
    for arguments in (("sweep", "two.yaml"), ("collect", "two")):
        code, said = orchestrate(folder, *arguments, prefix=without_locks)
        assert code == 0, said
        assert said.count("has no locks") == 1, said
        assert "one command on it at a time" in said
        assert ".py:" not in said
    _, said = orchestrate(folder, "doctor", prefix=without_locks)
    assert "has no file locks" in said


@pytest.mark.fuse
@pytest.mark.nightly(but=["95"])
@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_hard_links_nothing_begins_and_the_words_say_why(folder: Path, error: int) -> None:
    (folder / "backing").mkdir()
    with view_of(folder / "backing", folder / "view") as view:
        view.fail("link", ".", error, count=-1)
        for arguments in (("sweep", "two.yaml", "--results", "view"), ("doctor", "--results", "view")):
            code, said = orchestrate(folder, *arguments)
            assert code in (1, 3), said
            assert "has no hard links" in said
            assert "another file system with --results DIR" in said

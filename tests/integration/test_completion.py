"""The tab key in real shells: words of this project, and nothing else on the screen."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.rundir import SweepDir
from orchestrator.rundir.index import IndexRow

PROMPT = "ready> "
PATIENCE_S = 60
# Lines of a start file: a plain prompt, no bell.
BASH = f"PS1='{PROMPT}'\nbind 'set bell-style none'\nbind 'set enable-bracketed-paste off'\n"
ZSH = f"PS1='{PROMPT}'\nunsetopt PROMPT_SP ZLE_BRACKETED_PASTE 2>/dev/null\nunset zle_bracketed_paste\n"
START = {"bash": (".bashrc", BASH), "zsh": (".zshrc", ZSH)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    sweep = SweepDir(folder / "results", "speedy")
    sweep.create()
    points = [{"algorithm": name, "seed": 0} for name in ("mappo", "iql")]
    sweep.write_index([IndexRow(f"{number:016x}", True, point) for number, point in enumerate(points, 10)])
    (folder / "sweeps").mkdir()
    grid = "name: speedy\ntrainer: ppo\nbase: {task: chase, learning_rate: 1e-3}\nmatrix: {seed: range(2)}\n"
    (folder / "sweeps" / "fast.yaml").write_text(grid)
    (folder / "sweeps" / "broken.yaml").write_text("{[")
    return folder


class Shell:
    """An interactive shell at a terminal."""

    def __init__(self, name: str, project: Path, home: Path) -> None:
        file, text = START[name]
        home.mkdir(exist_ok=True)
        rest = (home / file).read_text().removeprefix(text) if (home / file).exists() else ""
        (home / file).write_text(text + rest)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(home), "TERM": "dumb", "LC_ALL": "C.UTF-8", "COLUMNS": "400"}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(project)
            os.execvpe(name, [name, "-i"], own)
        self.seen = ""
        self.read(PROMPT)

    def read(self, wanted: str) -> str:
        """Return what appears up to a match of a pattern."""
        until = time.monotonic() + PATIENCE_S
        while (match := re.search(wanted, self.seen)) is None:
            assert time.monotonic() < until, f"no {wanted!r} in {self.seen!r}"
            if select.select([self.terminal], [], [], 1)[0]:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")
        seen, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return seen

    def type(self, keys: str, wanted: str) -> str:
        os.write(self.terminal, keys.encode())
        return self.read(wanted)

    def tab(self, typed: str, wanted: str, tabs: int = 1) -> None:
        """Type a line and the tab key; require a match, and after it nothing but the next command."""
        seen = self.type(typed + "\t" * tabs, wanted)
        seen += self.type("\x15echo e''nd\n", "\nend\r?\n(.|\n)*" + PROMPT)
        assert not re.search("Traceback|rror|not found", seen), seen

    def close(self) -> None:
        os.write(self.terminal, b"\x15exit\n")
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def installed(name: str, project: Path, home: Path) -> Shell:
    """Return a shell after the documented command in one before it."""
    first = Shell(name, project, home)
    first.type("orchestrate --install-completion\n", f"{name} completion installed")
    first.close()
    return Shell(name, project, home)


def test_bash_completes_every_kind_of_word(project: Path, tmp_path: Path) -> None:
    shell = installed("bash", project, tmp_path / "home")
    for typed, wanted in {
        "orchestrate rep": "ort ",
        "orchestrate sweep --dry": "-run ",
        "orchestrate report ": "speedy ",
        "orchestrate sweep sweeps/f": "ast.yaml ",
        "orchestrate sweep sweeps/fast.yaml --on local,jean-zay-v": "100 ",
        "orchestrate sweep sweeps/fast.yaml --set lea": "rning_rate=",
        "orchestrate sweep sweeps/fast.yaml --set resources.cp": "us_per_task= ",
        "orchestrate cancel speedy algorithm=m": "appo ",
        "orchestrate cancel speedy algorithm=mappo,algorithm=i": "ql ",
        "orchestrate logs speedy algorithm=m": "appo ",
        "orchestrate status speedy --why 000000000000000a": " ",
        "orchestrate compare speedy --by alg": "orithm ",
        "orchestrate report --results=results sp": "eedy ",
    }.items():
        shell.tab(typed, re.escape(typed) + re.escape(wanted) + "$")
    shell.tab("orchestrate cancel speedy algorithm=", "iql +mappo", tabs=2)
    # A broken grid, no results: no word, and the line stays as it was.
    shell.tab("orchestrate sweep sweeps/broken.yaml --set x", "--set x$")
    shell.tab("orchestrate report --results nowhere x", "nowhere x$")
    shell.close()


@pytest.mark.shells
def test_zsh_completes_sweeps_and_runs(project: Path, tmp_path: Path) -> None:
    shell = installed("zsh", project, tmp_path / "home")
    shell.type("orchestrate \t", "\x07")  # the first tab loads the functions
    shell.type("\x15", "")
    shell.tab("orchestrate report sp", "speedy ")
    shell.tab("orchestrate cancel speedy algorithm=m", "algorithm=mappo")
    shell.close()


@pytest.mark.shells
def test_fish_completes_sweeps_and_runs(project: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "LC_ALL": "C.UTF-8"}

    def fish(line: str) -> str:
        done = subprocess.run(["fish", "-c", line], cwd=project, env=own, capture_output=True, text=True)
        assert done.stderr == ""
        return done.stdout

    assert "completion installed" in fish("orchestrate --install-completion")
    assert fish("complete -C 'orchestrate report sp'").split() == ["speedy"]
    assert fish("complete -C 'orchestrate cancel speedy algorithm=m'").split() == ["algorithm=mappo"]
    assert "Write a report" in fish("complete -C 'orchestrate repo'")

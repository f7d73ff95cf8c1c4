"""`orchestrate top` in a real terminal, over a sweep that really runs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

from orchestrator.rundir import SweepDir
from orchestrator.status.survey import RunStatus
from orchestrator.ui.top.fleet_access import FleetTree
from tests.helpers import COMMANDS, ROOT, events, kill, wait_for

ORCHESTRATE = [sys.executable, "-m", "orchestrator.ui.cli"]
PATIENCE_S = 60.0


class Terminal:
    """A terminal of 80 × 24 with a program in it: what is on its screen, and keys for it."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._before = termios.tcgetattr(self._slave)
        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *argv],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
        )

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, *words: str, without: str = "\0") -> None:
        """Until all words are on the screen, and others are not."""
        deadline = time.monotonic() + PATIENCE_S
        while without in self.text or not all(word in self.text for word in words):
            assert time.monotonic() < deadline, f"{words} did not come:\n{self.text}"
            assert self.process.poll() is None, f"left with {self.process.returncode}:\n{self.text}"
            self._read()

    def left(self) -> int:
        """The exit code, once the program has left by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not leave:\n{self.text}"
            self._read()
        self._read()
        return self.process.returncode

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    @property
    def restored(self) -> bool:
        """Whether a shell finds the terminal as it was: its modes, its own screen, its cursor, no mouse."""
        last = {name: self.written.rfind(name) for name in (b"?1049h", b"?1049l", b"?25h", b"?25l")}
        screen = 0 <= last[b"?1049h"] < last[b"?1049l"] and last[b"?25l"] < last[b"?25h"]
        mouse = self.written.rfind(b"?1003h") < self.written.rfind(b"?1003l")
        return screen and mouse and termios.tcgetattr(self._slave) == self._before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def _read(self) -> None:
        while select.select([self._master], [], [], 0.05)[0]:
            data = os.read(self._master, 65536)
            self.written += data
            self._stream.feed(data)


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*arguments: str) -> Terminal:
        opened.append(Terminal([*ORCHESTRATE, "top", *arguments], tmp_path))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[SweepDir]:
    """A sweep of three slow runs, one of them at work; what is in `pace` sets their speed from then on."""
    (tmp_path / "pace").write_text("0.5")
    argv = [sys.executable, str(COMMANDS / "count.py"), str(tmp_path / "audit"), "99", str(tmp_path / "pace")]
    (tmp_path / "grid.yaml").write_text(
        f"name: tiny\ntrainer: command\nbase: {{command: {json.dumps(argv)}}}\nmatrix: {{seed: range(3)}}\n"
    )
    subprocess.run(
        [*ORCHESTRATE, "sweep", "--grid", "grid.yaml", "--detach", "--slots", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    sweep_dir = SweepDir(tmp_path / "results", "tiny")
    yield sweep_dir
    for log in sweep_dir.read_journals():
        if log.holder is not None:
            kill(log.holder.pid, signal.SIGTERM)


def statuses(sweep: SweepDir) -> list[RunStatus]:
    """The sweep's runs, by seed."""
    seen = FleetTree(sweep.results).present(sweep)
    return [seen.statuses[row.run_id] for row in seen.rows]


def states(sweep: SweepDir) -> list[str]:
    return [status.state.value for status in statuses(sweep)]


def test_a_run_is_watched_cancelled_and_retried(
    sweep: SweepDir, open_terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    terminal = open_terminal()
    terminal.wait_for("1 running", "2 queued", "seed=0", "e2e fps", "cost –")

    terminal.press("?")
    terminal.wait_for("a run's log; of a sweep or job, its runs")
    terminal.press("\x1b")
    terminal.wait_for(without="a run's log; of a sweep or job, its runs")

    terminal.press("c")
    terminal.wait_for("Cancel run", "seed=0", "y yes")
    terminal.press("n")
    terminal.wait_for(without="Cancel run")
    assert "cancelled" not in states(sweep)
    terminal.press("c")
    terminal.wait_for("Cancel run")
    terminal.press("y")
    terminal.wait_for("1 cancelled", "1 of 1 run cancelled")
    assert states(sweep)[0] == "cancelled"
    left = [("claimed", 1), ("ended", 1)]
    first = sweep.run(statuses(sweep)[0].run_id)
    wait_for(lambda: [event[:2] for event in events(sweep, first) if event[0] != "progress"] == left)

    (tmp_path / "pace").write_text("0.001")
    terminal.wait_for("2 done")
    terminal.press("r")
    terminal.wait_for("Retry run", "seed=0")
    terminal.press("y")
    terminal.wait_for("retry: 1 of tiny")
    terminal.press("q")
    assert terminal.left() == 0
    assert terminal.restored
    # What was asked for before leaving is done: a job was submitted for it.
    wait_for(lambda: states(sweep) == ["done"] * 3, PATIENCE_S, "the retried run's end")
    assert statuses(sweep)[0].attempt == 2
    assert sum(entry.kind == "submission" for entry in sweep.read_ledger()) == 2


def test_a_terminal_is_left_as_it_was_also_after_a_signal(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal("--results", "nowhere")
    terminal.wait_for("no sweep yet")
    assert not terminal.restored
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.left() == 128 + signal.SIGTERM
    assert terminal.restored


def test_without_a_terminal_it_says_what_to_type_instead(tmp_path: Path) -> None:
    told = subprocess.run(
        [*ORCHESTRATE, "top"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr == (
        "error: top needs a terminal to draw on, and this is none\n"
        "  print it instead: orchestrate status --watch\n"
    )

"""Commands in a terminal of their own: what is on its screen, and when."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

from tests.helpers import ROOT

_ERASED = re.compile(r"[^\n]*\r\x1b\[2K")
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass(frozen=True)
class Seen:
    """What a command left on its terminal, what it drew there meanwhile, without codes, and its exit code."""

    text: str
    drawn: str
    code: int

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.text.split("\n")]


def in_terminal(
    *arguments: str, cwd: Path, columns: int = 80, rows: int = 200, python: str | None = None
) -> Seen:
    """Run `orchestrate` with these arguments in a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [python or sys.executable, "-m", "orchestrator.ui.cli", *arguments],
        cwd=cwd,
        env={**environment, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the last process that had the terminal is gone
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    drawn = written.decode(errors="replace")
    return Seen(_CODES.sub("", _ERASED.sub("", drawn)), _CODES.sub("", drawn), process.wait())

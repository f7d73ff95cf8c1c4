"""The standard streams of a command: every text can be written, and none controls the terminal.

A character that the terminal's encoding lacks becomes ``?``. Control characters and marks that reorder text
are spelled out (``\\u001b``): texts of programs, grids and other machines may hold any. On a terminal the
commands' own sequences pass: colours, and those by which a line of progress is drawn anew.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from typing import Any

ERASE_LINE = "\r\x1b[2K"

# Variables by which libraries write colours into a pipe.
_COLOURS_IN_PIPES = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")
_UNSAFE = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_OWN = r"\x1b\[[0-9;]*m|\r(?=\x1b\[(?:2K|1A))|\x1b\[(?:2K|1A)|\x1b\[\?25[hl]"
_IN_PIPES, _ON_TERMINALS = re.compile(f"()({_UNSAFE})"), re.compile(f"({_OWN})|({_UNSAFE})")


def protect_streams() -> None:
    """Write through :class:`SafeStream` from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
            setattr(sys, name, SafeStream(stream))


class SafeStream:
    """A text stream that spells out what would control a terminal."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream
        coloured = stream.isatty() or any(map(os.environ.get, _COLOURS_IN_PIPES))
        self._unsafe = _ON_TERMINALS if coloured else _IN_PIPES
        # Click would write UTF-8 past a stream that says ASCII.
        self.encoding = "latin-1" if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding

    def write(self, text: str) -> int:
        self._stream.write(self._unsafe.sub(_spelled, text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _spelled(match: re.Match[str]) -> str:
    return match[1] or f"\\u{ord(match[2]):04x}"

"""What a command writes: in any encoding, and without control of the terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator.ui.cli.watch.logs import _print
from orchestrator.ui.terminal.output import SafeStream

HOSTILE = "\x1b]0;title\x07 \x1b[2J \x9b2J \u202eevil\u202c \x08 \rover \x7f \ud800 \u2028"
COMMAND = [sys.executable, "-m", "orchestrator.ui.cli"]


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def written(text: str, kind: type[io.TextIOWrapper] = Terminal) -> str:
    raw = io.BytesIO()
    stream = SafeStream(kind(raw, encoding="utf-8", newline=""))
    stream.write(text)
    stream.flush()
    return raw.getvalue().decode()


@pytest.mark.parametrize("kind", [Terminal, io.TextIOWrapper])
def test_text_of_others_controls_no_terminal(kind: type[io.TextIOWrapper]) -> None:
    found = written(HOSTILE, kind)
    assert found.isprintable()
    assert json.loads(f'"{found}"') == HOSTILE


def test_colours_and_progress_pass_on_a_terminal_only() -> None:
    own = "\x1b[1;31mred\x1b[0m\n\r\x1b[2K\tworking"
    assert written(own) == own
    assert "\x1b" not in written(own, io.TextIOWrapper)


def test_what_rich_draws_anew_passes_on_a_terminal() -> None:
    raw = io.BytesIO()
    stream = SafeStream(Terminal(raw, encoding="utf-8", newline=""))
    console = Console(file=cast("IO[str]", stream), force_terminal=True, width=60)
    with Live(Text("one\ntwo"), console=console, auto_refresh=False, transient=True) as live:
        live.update(Text("three\nfour"), refresh=True)
    stream.flush()
    assert b"three" in raw.getvalue()
    assert b"\\u" not in raw.getvalue()


def test_a_log_is_printed_as_it_is_into_a_pipe_and_safely_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = "é 10%\r20%\r\n\x1b[31mred\x1b[0m \x1b]0;title\x07".encode()
    pieces = [log[at : at + 1] for at in range(len(log))]
    for kind, expected in (
        (io.TextIOWrapper, log),
        (Terminal, "é 10%\r\x1b[2K20%\n\x1b[31mred\x1b[0m \\u001b]0;title\\u0007".encode()),
    ):
        raw = io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", SafeStream(kind(raw, encoding="utf-8", newline="")))
            _print(pieces)
            sys.stdout.flush()
            assert raw.getvalue() == expected


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_a_command_ends_as_it_should_whatever_the_terminal_can_show(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text("name: 実験…é\\ud800\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [*COMMAND, "check", "grid.yaml"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert "name: found" in done.stderr.decode(encoding)
    assert b"Traceback" not in done.stderr


def test_a_command_on_a_terminal_shows_what_a_file_holds_spelled_out(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text('name: "a\\e]0;title\\ab"\n', encoding="utf-8")
    ours, theirs = pty.openpty()
    subprocess.run([*COMMAND, "check", "grid.yaml"], cwd=tmp_path, stderr=theirs, stdout=theirs, check=False)
    os.close(theirs)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert b"name: found" in shown
    assert b"\x1b" not in shown.replace(b"\r\x1b[2K", b"")

"""A child process that exchanges lines of JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.machine.json_process import JsonProcess
from tests.helpers import wait_for

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)\n"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_replies_come_in_turn_and_a_slow_one_times_out(modules: Path) -> None:
    (modules / "echo.py").write_text(ECHO)
    child = JsonProcess("echo")
    for request in ({"one": 1}, ["ü"]):
        child.send(request)
        assert child.receive(60) == request
    with pytest.raises(TimeoutError):
        child.receive(0)
    assert child.alive
    assert child.close(60) == 0


def test_a_process_that_has_ended_shows_in_its_reply_alone(modules: Path) -> None:
    (modules / "fails.py").write_text("import sys\nsys.exit('no such thing')\n")
    child = JsonProcess("fails")
    wait_for(lambda: not child.alive)
    child.send({"large": "x" * 100_000})
    with pytest.raises(EOFError):
        child.receive()
    assert child.error_lines() == ["no such thing"]
    assert child.close() == 1


def test_closing_kills_a_process_that_does_not_end(modules: Path) -> None:
    (modules / "sleeps.py").write_text("import time\ntime.sleep(60)\n")
    assert JsonProcess("sleeps").close() == -9

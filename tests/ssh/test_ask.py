"""Questions to a tree behind ssh: whole answers, and a line where one is not to be had.

The profile's `python` is a script that stands in for the program there: it is given the question, and says
what a test wants it to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.config.profiles import Profile, parse_profile
from orchestrator.control.remote.client import ask, stream
from orchestrator.control.remote.messages import LogsRequest, StatusRequest
from orchestrator.core.errors import FormatError, HostError, OrchestrateError, UnreachableError
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.ledger_entries import TreePlace
from orchestrator.ui.cli.logs import _print
from tests.helpers import wait_for
from tests.ssh.server import ALIAS, Server

CODE = SentCode("c0de", (), None)
# What a stand-in has in its variables: the question's mark, and the line itself.
HEARD = 'read -r line; mark=$(printf %s "$line" | sed \'s/.*"mark": "\\([0-9a-f]*\\)".*/\\1/\'); '
ANSWER = 'printf "noise\\n\\n%s\\n" "$mark"; '


class There:
    """A place on the cluster whose program is a script."""

    def __init__(self, server: Server) -> None:
        self.home, self.setup = server.home, ""
        self.place = TreePlace("far", "far.yaml", ALIAS, str(server.home))
        code = server.home / "results" / "tiny" / "code" / CODE.id
        code.mkdir(parents=True)
        (code / "code.json").write_text("{}")

    def answers(self, script: str) -> None:
        program = self.home / "python"
        program.write_text(f"#!/bin/sh\n{HEARD}{script}\n")
        program.chmod(0o755)

    @property
    def profile(self) -> Profile:
        text = f"backend: slurm\nssh: {ALIAS}\npython: {self.home}/python\n{self.setup}"
        return parse_profile(text, "far.yaml", "far")

    def ask(self) -> dict[str, Any]:
        return ask(self.place, "tiny", CODE, self.profile, StatusRequest(), 60.0)

    def read(self, then: Callable[[], object] = bool) -> bytes:
        with stream(
            self.place, "tiny", CODE, self.profile, LogsRequest(run="a", attempt=None, follow=False)
        ) as pipe:
            first = pipe.read1(100)
            then()
            return first + pipe.read()


@pytest.fixture
def there(server: Server) -> There:
    return There(server)


def test_an_answer_and_what_stands_around_it(there: There) -> None:
    there.answers(ANSWER + 'echo "{\\"sweep\\": 1}"; echo more')
    assert there.ask() == {"sweep": 1}
    there.answers(ANSWER + 'echo "{\\"error\\": \\"no\\", \\"exit_code\\": 5}"')
    with pytest.raises(OrchestrateError, match="far: no") as error:
        there.ask()
    assert error.value.exit_code == 5


def test_code_of_another_version_is_asked_by_its_own_name(there: There) -> None:
    there.answers(ANSWER + 'printf \'{"asked": "%s"}\n\' "$*"')
    code = replace(CODE, entries={**CODE.entries, "answer": "moved.elsewhere"})
    answer = ask(there.place, "tiny", code, there.profile, StatusRequest(), 60.0)
    assert answer["asked"] == "-P -m moved.elsewhere"


def test_an_answer_of_a_later_version(there: There) -> None:
    there.answers(ANSWER + 'echo "{\\"format\\": 99, \\"version\\": \\"9.9\\"}"')
    with pytest.raises(FormatError, match=f"the program on {ALIAS}: found format 99") as error:
        there.ask()
    assert "use version 9.9" in str(error.value.hint)


def test_setup_does_not_read_the_question(there: There) -> None:
    there.setup = "setup: [cat >/dev/null, 'read -r x || true']\n"
    there.answers(ANSWER + 'echo "{}"')
    assert there.ask() == {}


def test_a_link_that_is_cut_during_a_question(server: Server, there: There) -> None:
    there.answers("touch asked; exec sleep 60")
    raised: list[Exception] = []

    def question() -> None:
        try:
            there.ask()
        except OrchestrateError as error:
            raised.append(error)

    thread = threading.Thread(target=question)
    thread.start()
    wait_for((there.home / "asked").exists, what="the question")
    assert server.cut()
    thread.join(30)
    (error,) = raised
    assert isinstance(error, UnreachableError), error
    assert error.begun
    assert "the connection was cut" in str(error)


def test_half_an_answer(there: There) -> None:
    there.answers(ANSWER + "printf '{\"sweep\": 1'")
    with pytest.raises(UnreachableError, match="before it had answered") as error:
        there.ask()
    assert error.value.begun


@pytest.mark.parametrize("said", ["bad \\033[31mword", "[1]", '{"a": '])
def test_what_is_no_answer(there: There, said: str) -> None:
    there.answers(ANSWER + f"printf '{said}\\n'")
    with pytest.raises(HostError, match="expected an answer") as error:
        there.ask()
    assert str(error.value).isprintable()
    assert not isinstance(error.value, UnreachableError)


def test_a_program_there_that_is_killed(there: There) -> None:
    """The login shell tells the whole command that was; it is no reason."""
    there.answers("kill -9 $$")
    with pytest.raises(HostError, match=r"signal 9 ended .* before it had answered") as error:
        there.ask()
    assert "\\0" not in str(error.value)
    with pytest.raises(HostError, match="signal 9 ended"):
        there.read()


def test_why_nothing_answers_is_one_line(there: There) -> None:
    there.answers("echo 'No module named typer' >&2; echo and more >&2; exit 1")
    with pytest.raises(HostError, match=r"on cluster: No module named typer$") as error:
        there.ask()
    assert error.value.hint is not None
    assert "install the program's packages" in error.value.hint
    there.answers("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1")
    with pytest.raises(HostError, match="xxx") as error:
        there.ask()
    assert len(str(error.value)) < 400


def test_a_log_that_ended_and_one_that_was_cut(server: Server, there: There) -> None:
    there.answers(ANSWER + 'echo "{}"; echo line; cat; exit 0')
    with pytest.raises(UnreachableError, match="not all: the connection was cut") as error:
        there.read(then=server.cut)
    assert error.value.hint == "run the same command again"
    there.answers(ANSWER + 'echo "{}"; echo line')
    assert there.read() == b"line\n"
    there.answers(ANSWER + 'echo "{}"; echo line; exit 1')
    with pytest.raises(UnreachableError, match=r"not all: it ended early \(1\)"):
        there.read()


def test_pieces_part_characters(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    text = "é€😀\n".encode()
    _print(text[at : at + 1] for at in range(len(text)))
    _print([b"\xe2\x82"])
    assert capsysbinary.readouterr().out == text + b"\xe2\x82"  # a pipe gets what the log has

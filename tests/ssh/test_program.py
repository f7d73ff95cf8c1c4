"""Commands of the program behind ssh: whole answers, and a line where one is not to be had.

The profile's `python` is a script that stands in for the program there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.config.profiles import Profile, parse_profile
from orchestrator.control.remote.program import CodeMissingError, RemoteProgram
from orchestrator.core.errors import ChecksFailedError, HostError, OrchestrateError, UnreachableError
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import TreePlace
from orchestrator.ui.cli.watch.logs import _print
from tests.helpers import wait_for
from tests.ssh.server import ALIAS, Server

CODE = SentCode("c0de", (), None)


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
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    @property
    def profile(self) -> Profile:
        text = f"backend: slurm\nssh: {ALIAS}\npython: {self.home}/python\n{self.setup}"
        return parse_profile(text, "far.yaml", "far")

    @property
    def program(self) -> RemoteProgram:
        return RemoteProgram(self.place, "tiny", CODE, self.profile)

    def run(self, input: bytes = b"") -> Any:
        return self.program.run(["status", "tiny", "--json"], input, 60.0)[0]

    def read(self, then: Callable[[], object] = bool) -> bytes:
        with self.program.stream(["logs", "tiny", "a"]) as pipe:
            first = pipe.read1(100)
            then()
            return first + pipe.read()


@pytest.fixture
def there(server: Server) -> There:
    return There(server)


def test_an_answer_and_what_stands_around_it(there: There) -> None:
    there.setup = "setup: [echo noise, 'echo \"error: noise\" >&2']\n"
    there.answers("echo '[{\"sweep\": 1}]'; echo more; echo 'warning: few cores' >&2; exit 1")
    assert there.program.run(["status"]) == ([{"sweep": 1}], ("few cores",)), "1: runs failed, or stayed"


def test_an_error_there_is_passed_on_with_its_code_and_its_next_command(there: There) -> None:
    there.answers("echo 'warning: few cores' >&2; echo 'error: no room' >&2; echo '  free some' >&2; exit 5")
    with pytest.raises(OrchestrateError, match=r"^far: no room$") as error:
        there.run()
    assert (error.value.exit_code, error.value.hint) == (5, "free some")
    there.answers("echo '{}'; echo 'error: one' >&2; echo 'error: two' >&2; exit 2")
    with pytest.raises(ChecksFailedError) as failed:
        there.run()
    assert failed.value.problems == ("far: one", "far: two")
    assert failed.value.exit_code == 2
    there.answers("echo 'error: no such attempt' >&2; exit 2")
    with pytest.raises(OrchestrateError, match="far: no such attempt"):
        there.read()


def test_code_of_another_version_is_started_by_its_own_name(there: There) -> None:
    there.answers('printf \'{"asked": "%s"}\n\' "$*"')
    code = replace(CODE, entries={**CODE.entries, "program": "moved.elsewhere"})
    answer, _ = replace(there.program, code=code).run(["status", "a b"])
    assert answer["asked"] == "-P -m moved.elsewhere status a b"


def test_code_that_is_not_there_is_missing(there: There) -> None:
    with pytest.raises(CodeMissingError):
        replace(there.program, code=replace(CODE, id="other")).run(["status"])


def test_setup_does_not_read_the_input(there: There) -> None:
    there.setup = "setup: [cat >/dev/null, 'read -r x || true']\n"
    there.answers("cat")
    assert there.run(b'{"home": "a"}') == {"home": "a"}


def test_a_link_that_is_cut_during_a_command(server: Server, there: There) -> None:
    there.answers("touch asked; exec sleep 60")
    raised: list[Exception] = []

    def command() -> None:
        try:
            there.run()
        except OrchestrateError as error:
            raised.append(error)

    thread = threading.Thread(target=command)
    thread.start()
    wait_for((there.home / "asked").exists, what="the command")
    assert server.cut()
    thread.join(30)
    (error,) = raised
    assert isinstance(error, UnreachableError), error
    assert error.begun
    assert "the connection was cut" in str(error)


@pytest.mark.parametrize("said", ["bad \\033[31mword", "1", '{"a": '])
def test_what_is_no_answer(there: There, said: str) -> None:
    there.answers(f"printf '{said}\\n'")
    with pytest.raises(HostError, match="expected JSON of the program there") as error:
        there.run()
    assert str(error.value).isprintable()


def test_a_program_there_that_is_killed(there: There) -> None:
    """The login shell tells the whole command that was; it is no reason."""
    there.answers("echo '{'; kill -9 $$")
    with pytest.raises(HostError, match="signal 9 ended ") as error:
        there.run()
    assert "\\0" not in str(error.value)
    with pytest.raises(HostError, match="signal 9 ended "):
        there.read()


def test_why_nothing_starts_is_one_line(there: There) -> None:
    there.answers("echo 'No module named typer' >&2; echo and more >&2; exit 1")
    with pytest.raises(HostError, match=r"on cluster: No module named typer$") as error:
        there.run()
    assert error.value.hint is not None
    assert "install the program's packages" in error.value.hint
    there.answers("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1")
    with pytest.raises(HostError, match="xxx") as error:
        there.run()
    assert len(str(error.value)) < 400


def test_a_line_of_the_setup_that_fails_is_the_reason(there: There) -> None:
    there.answers("echo '{}'")
    there.setup = "setup: ['echo {}; echo \"error: no such environment\" >&2; exit 1']\n"
    reason = "cannot run on cluster: error: no such environment$"
    with pytest.raises(HostError, match=reason) as error:
        there.run()
    assert error.value.hint is not None
    assert "`setup:` in far.yaml may be what fails" in error.value.hint
    with pytest.raises(HostError, match=reason):
        there.read()


def test_a_log_that_ended_and_one_that_was_cut(server: Server, there: There) -> None:
    there.answers('trap "touch ended; exit" TERM; echo $$ >pid; echo line; sleep 600 & wait')
    with pytest.raises(UnreachableError, match="not all: the connection was cut") as error:
        there.read(then=server.cut)
    assert error.value.hint == "run the same command again"
    wait_for((there.home / "ended").exists, what="the end of the program there")
    there.answers("echo line")
    assert there.read() == b"line\n"


def test_pieces_part_characters(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    text = "é€😀\n".encode()
    _print(text[at : at + 1] for at in range(len(text)))
    _print([b"\xe2\x82"])
    assert capsysbinary.readouterr().out == text + b"\xe2\x82"  # a pipe gets what the log has

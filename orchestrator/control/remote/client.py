"""Asking a results tree behind ssh: one program there per question, JSON both ways."""

from __future__ import annotations

import json
import secrets
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from typing import Any

from orchestrator.config.profiles import Profile, preparation
from orchestrator.config.profiles.remote_setup import THEIR_PYTHON
from orchestrator.control.remote.messages import A, Request, parse_answer
from orchestrator.core.errors import HostError, OrchestrateError, UnreachableError
from orchestrator.core.formats import require_known_format, stamp
from orchestrator.core.installation import install_there
from orchestrator.core.ssh import SSH_FAILED, Host, complaint, without_command
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.ledger_entries import TreePlace

# A question may wait for another command line's submission there, and for the scheduler.
PATIENCE_S = 600.0
_NO_CODE = 98
# Which of the last lines says why nothing answers; otherwise the very last.
_TAIL_LINES = 3
_TELLING = ("no module named", "not found", "unknown option")
# What a shell adds to the number of the signal that ended a program.
_KILLED = 128


class CodeMissingError(HostError):
    """The place has not, or no longer, the code that is to answer: it is to be sent again."""


def ask(
    place: TreePlace,
    sweep: str,
    code: SentCode,
    profile: Profile,
    request: Request,
    patience: float = PATIENCE_S,
) -> dict[str, Any]:
    """The answer of :mod:`orchestrator.control.remote.server` in that tree.

    Raises the error that it ended with there, :class:`CodeMissingError`, or what `Host` raises.
    """
    mark = secrets.token_hex(8)
    argv = ["bash", "-lc", _script(place, sweep, code, profile)]
    said = Host(place.ssh).run(argv, _line(request, sweep, mark), patience=patience)
    _, begun, answer = said.output.partition(f"{mark}\n")
    if not begun:
        raise _did_not_start(place, profile, said.code, said.errors)
    return _read(place, answer)


def parsed(of: type[A], place: TreePlace, answer: Mapping[str, Any]) -> A:
    """Parse the answer of a place. Raises :class:`HostError` if it is of another class."""
    try:
        return parse_answer(of, answer)
    except TypeError as error:
        raise HostError(f"{place.name}: found an answer that is no {of.__name__}: {error}") from error


@contextmanager
def stream(
    place: TreePlace, sweep: str, code: SentCode, profile: Profile, request: Request
) -> Iterator[BufferedReader]:
    """What :mod:`~orchestrator.control.remote.server` goes on saying there; the same errors as :func:`ask`.

    To be read to its end: whether it was all there is, or the link was cut, is told when the block ends.
    """
    mark = secrets.token_hex(8)
    argv = ["bash", "-lc", _script(place, sweep, code, profile)]
    with tempfile.TemporaryFile() as errors, Host(place.ssh).open(argv, errors=errors) as process:
        assert process.stdin is not None
        assert isinstance(process.stdout, BufferedReader)
        try:
            process.stdin.write(_line(request, sweep, mark))
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: below
        while (line := process.stdout.readline()) and line.rstrip(b"\n") != mark.encode():
            pass
        if not line and (exit_code := process.wait()) != SSH_FAILED:
            errors.seek(0)
            said = without_command(errors.read().decode(errors="replace"))
            raise _did_not_start(place, profile, exit_code, said)
        _read(place, process.stdout.readline().decode(errors="replace"))
        yield process.stdout
        if exit_code := process.wait():
            cut = "the connection was cut" if exit_code == SSH_FAILED else f"it ended early ({exit_code})"
            raise UnreachableError(
                f"{place.name}: this is not all: {cut}", hint="run the same command again", begun=True
            )


def _line(request: Request, sweep: str, mark: str) -> bytes:
    return json.dumps({**stamp(), **request.to_json(), "sweep": sweep, "mark": mark}).encode() + b"\n"


def _script(place: TreePlace, sweep: str, code: SentCode, profile: Profile) -> str:
    folder = f"{place.folder}/results/{sweep}/code/{code.id}"
    ours = ":".join(f"{folder}/{path}" for path in code.python_path)
    lines = (
        "exec {question}<&0 </dev/null",  # which nothing that only prepares may read
        f"cd -- {shlex.quote(place.folder)} && [ -f {shlex.quote(folder)}/code.json ] || exit {_NO_CODE}",
        *preparation(profile),
        f"export PYTHONPATH={shlex.quote(ours)}${{PYTHONPATH:+:$PYTHONPATH}}",
        f"exec {shlex.join(profile.python or THEIR_PYTHON)} -P -m {code.entries['answer']} <&$question",
    )
    return "\n".join(lines)


def _read(place: TreePlace, line: str) -> dict[str, Any]:
    """Return the answer on the first line; later lines come from other programs."""
    line, whole, _ = line.partition("\n")
    if not whole:
        raise Host(place.ssh).cut()
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise HostError(
            f"{place.name}: found {complaint(line)!r}, expected an answer of the program there",
            hint=f"something that a login on {place.ssh} starts may write in between: let it be silent",
        )
    require_known_format(answer, f"{place.name}: the answer of the program on {place.ssh}")
    if "error" in answer:
        error = OrchestrateError(f"{place.name}: {answer['error']}", hint=answer.get("hint"))
        error.exit_code = int(answer["exit_code"])
        raise error
    return answer


def _did_not_start(place: TreePlace, profile: Profile, code: int | None, errors: str) -> HostError:
    if code == _NO_CODE:
        return CodeMissingError(
            f"{place.name}: the sweep's code is not in {place.folder} on {place.ssh} any more",
            hint="`orchestrate sweep` with its grid sends it again",
        )
    python = shlex.join(profile.python or THEIR_PYTHON)
    if code is not None and code > _KILLED:
        return HostError(
            f"{place.name}: signal {code - _KILLED} ended {python} on {place.ssh} before it had answered",
            hint="try again; a login node may limit what programs take, which its administrators know",
        )
    tail = [line for line in errors.splitlines() if line.strip()][-_TAIL_LINES:]
    telling = [line for line in tail if any(words in line.lower() for words in _TELLING)]
    said = complaint("\n".join(telling or tail)) or f"exit code {code}"
    hint = f"see what `ssh {place.ssh}` does by hand; `setup:` in {profile.source} may be what fails"
    if "No module named" in said:
        hint = (
            f"install the program's packages for it ({install_there('train')}), and name that Python in "
            f"{profile.source}: `python:`, or an activation in `setup:`"
        )
    elif "not found" in said or "unknown option" in said.lower():
        hint = f"name a Python 3.11 or newer of that machine in {profile.source}: `python:` or `setup:`"
    return HostError(f"{place.name}: {python} cannot answer on {place.ssh}: {said}", hint=hint)

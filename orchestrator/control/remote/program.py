"""Run commands of the pushed program in a results tree behind ssh.

The program is the sweep's code snapshot there. A command's stdout is its answer (JSON, or a log). Of its
stderr the warnings and errors are passed on, with the exit code of an error.
"""

from __future__ import annotations

import json
import secrets
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

from orchestrator.config.profiles import Profile, preparation
from orchestrator.config.profiles.remote_setup import THEIR_PYTHON
from orchestrator.core.errors import ChecksFailedError, HostError, OrchestrateError, UnreachableError
from orchestrator.core.machine.installation import install_there
from orchestrator.core.machine.ssh import SSH_FAILED, Host, complaint, without_command
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import TreePlace

# A command may wait for another submission there, and for the scheduler.
PATIENCE_S = 600.0
# Exit code of a command whose code is missing or damaged: send it again.
NO_CODE = 98
# 0, or 1: runs failed, or stayed. The answer is whole in both cases.
_ANSWERED = (0, 1)
_ERROR, _WARNING = "error: ", "warning: "
# The last lines of stderr that are searched for the reason why no program started.
_TAIL_LINES = 3
_TELLING = ("no module named", "not found", "unknown option")
# What a shell adds to the number of the signal that ended a program.
_KILLED = 128


class CodeMissingError(HostError):
    """The place does not have the code whole: send it again."""


@dataclass(frozen=True)
class RemoteProgram:
    """The pushed program in the results tree of ``place``, as prepared by the profile."""

    place: TreePlace
    sweep: str
    code: SentCode
    profile: Profile

    def argv(self, command: Sequence[str], mark: str, *, ends_with_input: bool = False) -> list[str]:
        """Return the argv, for :class:`Host`, of a command line of this program.

        ``mark``: the line on stdout and stderr after which they are the program's own. ``ends_with_input``:
        end the program at the end of its input, as when the connection is cut.
        """
        folder = f"{self.place.folder}/results/{self.sweep}/code/{self.code.id}"
        ours = ":".join(f"{folder}/{path}" for path in self.code.python_path)
        lines = (
            "exec {input}<&0 </dev/null",  # preparations must not read the program's input
            f"cd -- {shlex.quote(self.place.folder)} && [ -f {shlex.quote(folder)}/code.json ]"
            f" || exit {NO_CODE}",
            *preparation(self.profile),
            f"export PYTHONPATH={shlex.quote(ours)}${{PYTHONPATH:+:$PYTHONPATH}}",
            f"printf '\\n%s\\n' {mark}; printf '\\n%s\\n' {mark} >&2",
            *(["{ cat >/dev/null; kill $$; } <&$input >/dev/null 2>&1 &"] if ends_with_input else []),
            f"exec {self._python} -P -m {self.code.entries['program']} {shlex.join(command)} <&$input",
        )
        return ["bash", "-lc", "\n".join(lines)]

    def run(
        self, command: Sequence[str], input: bytes = b"", patience: float = PATIENCE_S
    ) -> tuple[Any, tuple[str, ...]]:
        """Run a command that prints JSON; return that, and its warnings.

        Raises the error that the command ended with, :class:`CodeMissingError`, or what `Host` raises.
        """
        mark = secrets.token_hex(8)
        said = Host(self.place.ssh).run(self.argv(command, mark), input, patience=patience)
        _, begun, output = said.output.rpartition(f"{mark}\n")
        if said.code not in _ANSWERED or not begun or not output:
            raise self._failure(said.code, said.errors, mark)
        errors = said.errors.rpartition(f"{mark}\n")[2].splitlines()
        told = (line.removeprefix(_WARNING) for line in errors if line.startswith(_WARNING))
        return self._parsed(output), tuple(told)

    @contextmanager
    def stream(self, command: Sequence[str]) -> Iterator[BufferedReader]:
        """Yield the output of a command, to be read to its end; the same errors as :meth:`run`.

        They are raised when the block ends. The command ends with the connection.
        """
        mark = secrets.token_hex(8)
        argv = self.argv(command, mark, ends_with_input=True)
        with tempfile.TemporaryFile() as errors, Host(self.place.ssh).open(argv, errors=errors) as process:
            assert isinstance(process.stdout, BufferedReader)
            while (line := process.stdout.readline()) and line.rstrip(b"\n") != mark.encode():
                pass
            yield process.stdout
            code = process.wait()
            if code == SSH_FAILED:
                raise UnreachableError(
                    f"{self.place.name}: this is not all: the connection was cut",
                    hint="run the same command again",
                    begun=True,
                )
            if code:
                errors.seek(0)
                raise self._failure(code, without_command(errors.read().decode(errors="replace")), mark)

    @property
    def _python(self) -> str:
        return shlex.join(self.profile.python or THEIR_PYTHON)

    def _parsed(self, output: str) -> Any:
        """Parse the JSON at the beginning of the output; other programs may write after it."""
        try:
            answer, _ = json.JSONDecoder().raw_decode(output)
        except ValueError:
            answer = None
        if isinstance(answer, dict | list):
            return answer
        raise HostError(
            f"{self.place.name}: found {complaint(output)!r}, expected JSON of the program there",
            hint=f"a program that a login on {self.place.ssh} starts may write in between: silence it",
        )

    def _failure(self, code: int | None, errors: str, mark: str) -> OrchestrateError:
        """Return the error of the program there, or the reason why it did not start."""
        _, begun, own = errors.rpartition(f"{mark}\n")
        place, lines = self.place, own.splitlines()
        if code == NO_CODE:
            return CodeMissingError(
                f"{place.name}: the sweep's code is not in {place.folder} on {place.ssh} any more",
                hint="`orchestrate sweep` with its grid sends it again",
            )
        if code is not None and code > _KILLED:
            return HostError(
                f"{place.name}: signal {code - _KILLED} ended {self._python} on {place.ssh}",
                hint="try again; a login node may limit what programs take, which its administrators know",
            )
        problems = [at for at, line in enumerate(lines) if line.startswith(_ERROR)]
        if not begun or not problems:
            return self._did_not_start(code, lines)
        said = [f"{place.name}: {lines[at].removeprefix(_ERROR)}" for at in problems]
        hint = next((line.strip() for line in lines[problems[-1] + 1 :][:1] if line.startswith("  ")), None)
        error = ChecksFailedError(said) if len(said) > 1 else OrchestrateError(said[0], hint=hint)
        error.exit_code = code or OrchestrateError.exit_code
        return error

    def _did_not_start(self, code: int | None, errors: Sequence[str]) -> HostError:
        place, profile = self.place, self.profile
        tail = [line for line in errors if line.strip()][-_TAIL_LINES:]
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
        return HostError(f"{place.name}: {self._python} cannot run on {place.ssh}: {said}", hint=hint)

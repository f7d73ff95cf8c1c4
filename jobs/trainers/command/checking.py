"""Check runs of the trainer `command` before any of them starts."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from jobs.check import ELSEWHERE, Problem
from jobs.trainers.command.argparse_options import misread
from jobs.trainers.command.training import DESCRIPTION, command_line, patterns_of, require_program
from jobs.training.config_errors import RefusedKeyError
from jobs.training.context import BadConfigError
from jobs.training.time_budget import minutes_of
from orchestrator.config.command_line.command import COMMAND_KEY, code_of, is_shell, module_of, program_file
from orchestrator.config.command_line.placeholders import arguments, keys_asked_for
from orchestrator.config.program.identity import CODE_KEY, project_files
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run

_LONGEST_LINE = 4096


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return the faults that keep programs from starting, each with the first run that has it."""
    problems: dict[str, Problem] = {}
    for run in runs:
        try:
            argv = command_line(run)
            if ELSEWHERE not in os.environ:
                require_program(argv)
                _require_module(argv)
            elif not os.path.isabs(program_file(argv) or ""):
                require_program(argv)  # relative to the copy of this folder that runs start in
            _require_interpreter(argv[0])
            _require_line_ends(argv)
            minutes_of(run)
        except BadConfigError as error:
            key = (isinstance(error, RefusedKeyError) and error.key) or COMMAND_KEY
            problems.setdefault(str(error), Problem(run.run_id, key, str(error), error.hint))
        for key, message in COMMAND.impossible_lengths(run).items():
            problems.setdefault(message, Problem(run.run_id, key, message))
        try:
            _require_code(run)
        except OrchestrateError as error:
            problems.setdefault(str(error), Problem(run.run_id, CODE_KEY, str(error), error.hint))
    misread_ones = () if problems else _misread_arguments(runs)
    return [*problems.values(), *_unused_keys(runs), *misread_ones]


def _misread_arguments(runs: Sequence[Run]) -> Iterator[Problem]:
    """Warn of arguments that a Python program does not read as the grid means them, each kind once."""
    seen = set()
    for run in runs:
        with contextlib.suppress(OrchestrateError):
            for fault in misread(run, arguments(run.overrides[COMMAND_KEY], run.point)):
                if fault.text not in seen:
                    seen.add(fault.text)
                    message = f"`command` gives the program {fault.text}"
                    yield Problem(run.run_id, COMMAND_KEY, message, fault.hint, blocks=False)


def _unused_keys(runs: Sequence[Run]) -> Iterator[Problem]:
    """Warn of keys that vary between runs and do not reach their programs."""
    values: dict[str, set[str]] = {}
    commands: dict[str, Run] = {}
    for run in runs:
        for key, value in run.overrides.items():
            values.setdefault(key, set()).add(json.dumps(value))
        commands.setdefault(json.dumps(run.overrides.get(COMMAND_KEY)), run)
    asked = {key for run in commands.values() for key in keys_asked_for(run.overrides.get(COMMAND_KEY))}
    known = {*COMMAND.keys, *asked}
    unused = [key for key, found in values.items() if len(found) > 1 and key not in known]
    if not unused or any(map(_may_read_description, commands.values())):
        return
    first, keys = unused[0], ", ".join(unused)
    yield Problem(
        runs[0].run_id,
        first,
        f"`command` does not use {keys}, and no file of the program names {DESCRIPTION}: runs that differ "
        "in nothing else do the same",
        f"write {{{first}}} in an argument, such as --{first}={{{first}}}, or have the program read it from "
        f"the file that {DESCRIPTION} names",
        blocks=False,
    )


def _may_read_description(run: Run) -> bool:
    """Whether the program names its run's description, or its files are unknown here."""
    try:
        argv = command_line(run)
        program = project_files(Path.cwd(), any_owner=True).program(run.point)
    except OrchestrateError:
        return True
    if program.unknown is not None:
        return True
    files = program.files
    module = (module_of(argv) or "").partition(".")[0]
    own = module and any(name.startswith((f"{module}/", f"{module}.py")) for name in files)
    if not (own or program_file(argv) or code_of(argv) or os.path.normpath(argv[0]) in files):
        return True
    texts = (" ".join(argv).encode(), *map(_content, files))
    return any(DESCRIPTION.encode() in text for text in texts)


def _content(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError:
        return b""


def _require_code(run: Run) -> None:
    """Raise unless every entry of the key `code` fits a file."""
    value = patterns_of(run)
    if value is not None and (missing := project_files(Path.cwd(), any_owner=True).unmatched(value)):
        raise BadConfigError(
            f"`{CODE_KEY}`: found no file {missing[0]!r} in {Path.cwd()}, where runs start",
            hint="name files, folders or patterns relative to that folder",
        )


def _require_interpreter(program: str) -> None:
    """Raise :class:`BadConfigError` for a text without `#!`, which the kernel cannot start."""
    first = _first_line(os.path.abspath(shutil.which(program) or program))
    if first and not first.startswith(b"#!") and all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in first):
        raise BadConfigError(
            f"`command`: {program} is a text whose first line is not `#!` and its interpreter",
            hint=f"write [bash, {program}] in `command`, or `#!/bin/bash` as the first line of {program}",
        )


def _require_line_ends(argv: Sequence[str]) -> None:
    """Raise :class:`BadConfigError` for a script of a shell, or an executable one, with Windows line ends."""
    for name in dict.fromkeys((argv[0], program_file(argv) or argv[0])):
        first = _first_line(os.path.abspath(name))
        if first.endswith(b"\r\n") and (
            name.endswith((".sh", ".bash", ".zsh", ".ksh"))
            or any(map(is_shell, argv[: argv.index(name)] if name in argv else ()))
            or (
                first[:2] == b"#!"
                and (name == argv[0] or any(map(is_shell, first[2:].decode(errors="replace").split())))
            )
        ):
            raise BadConfigError(
                f"`command`: the lines of {name} end in CR LF: the CR becomes a part of its commands",
                hint=f"sed -i 's/\\r$//' {shlex.quote(name)}; with git: `*.sh text eol=lf` in .gitattributes",
            )


@cache
def _first_line(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.readline(_LONGEST_LINE)
    except OSError:
        return b""


def _require_module(argv: Sequence[str]) -> None:
    """Raise :class:`BadConfigError` unless the command's Python has the module that it runs."""
    name = module_of(argv)
    if name is not None and not _has_module(argv[0], name.partition(".")[0]):
        raise BadConfigError(
            f"`command`: found no module {name!r}: {argv[0]} has none, and {Path.cwd()}, where runs start, "
            "holds none",
            hint="install it in that Python's environment, or put its folder on PYTHONPATH",
        )


@cache
def _has_module(python: str, name: str) -> bool:
    code = "import importlib.util, sys; sys.exit(3 if importlib.util.find_spec(sys.argv[1]) is None else 0)"
    try:
        argv = [python, "-c", code, name]
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode != 3
    except (OSError, subprocess.SubprocessError):
        return True  # unknown: do not refuse

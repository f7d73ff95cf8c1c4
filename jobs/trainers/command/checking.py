"""Check runs of the trainer `command` before any of them starts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from jobs.check import ELSEWHERE, SEEDS, Problem
from jobs.trainers.command.argparse_options import Fault, items_for, misread
from jobs.trainers.command.interpreter import faults_of
from jobs.trainers.command.training import (
    CHECKPOINTS,
    DESCRIPTION,
    INIT,
    METRICS,
    SEED,
    command_line,
    patterns_of,
    require_executable,
    require_program,
)
from jobs.trainers.command.working_folder import MOST_AT_START, is_former_output
from jobs.training.config_errors import RefusedKeyError
from jobs.training.context import BadConfigError
from jobs.training.time_budget import minutes_of
from orchestrator.config.command_line.command import (
    COMMAND_KEY,
    code_of,
    is_shell,
    module_of,
    program_file,
    shell_code_at,
)
from orchestrator.config.command_line.placeholders import arguments, keys_asked_for
from orchestrator.config.program.identity import project_files
from orchestrator.config.program.options import sources
from orchestrator.config.program.packages import module_of_file, relative_import
from orchestrator.config.program.patterns import CODE_KEY
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run

_LONGEST_LINE = 4096
# Words in a program by which a source of metrics can be seen.
_METRIC_WORDS = (
    *(METRICS, "orchestrate_run", "tensorboard", "TensorBoard", "SummaryWriter", "tfevents", "tf.summary"),
    *("wandb", "WandB", "stable_baselines3", "Monitor", "csv", "CSV", "jsonl", "ndjson", "json.dump"),
)
# Paths in a source, and lines that write.
_PATH, _WRITES = re.compile(rb"[\w./-]+"), re.compile(rb"save|dump|write|[\"'][wax]b?[\"']")
# Words by which a shell's code reads the arguments behind it.
_READS_ARGUMENTS = re.compile(r"\$\{?[#!]?[0-9@*]|\bshift\b|\bgetopts\b")
_SEED_ARGUMENT = '"{seed}" as an argument'


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return the faults that keep programs from starting, each with the first run that has it."""
    problems: dict[str, Problem] = {}
    for run in runs:
        try:
            argv = command_line(run)
            if ELSEWHERE not in os.environ or "/" in argv[0]:
                require_executable(argv)
            if ELSEWHERE not in os.environ:
                require_program(argv)
                _require_module(argv)
                _require_package(argv)
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
    warnings = () if problems else (*_misread_arguments(runs), *_unready_programs(runs))
    problems |= {one.message: one for run in runs[:1] for one in _missing_files(run)}
    warnings = (*warnings, *_without_metrics(runs), *_without_start(runs))
    return [*problems.values(), *_unused_keys(runs), *warnings]


def _misread_arguments(runs: Sequence[Run]) -> Iterator[Problem]:
    """Warn of arguments that a Python program does not read as the grid means them, each kind once."""
    seen = set()
    for run in runs:
        with contextlib.suppress(OrchestrateError):
            argv = arguments(run.overrides[COMMAND_KEY], run.point)
            for fault in (*_lost_in_shell(argv), *misread(run, argv)):
                if fault.text not in seen:
                    seen.add(fault.text)
                    message = f"`command` gives the program {fault.text}"
                    yield Problem(run.run_id, COMMAND_KEY, message, fault.hint, blocks=False)


def _lost_in_shell(argv: Sequence[str]) -> Iterator[Fault]:
    """Yield the fault of arguments behind a shell's code that do not reach its program."""
    position = shell_code_at(argv)
    code, *following = [""] if position is None else argv[position:]
    as_name = [item for item in following[:1] if item.startswith("-")]
    if lost := as_name or ([] if _READS_ARGUMENTS.search(code) else following[1:]):
        yield Fault(
            f"no {lost[0]}: the code before it, which a shell runs, does not pass it on",
            'write "$@" in the code, and a name after it: [bash, -c, \'python train.py "$@"\', bash, '
            '--seed, "{seed}"]',
        )


def _without_metrics(runs: Sequence[Run]) -> Iterator[Problem]:
    """Warn of the first program in which no source of metrics can be seen."""
    commands = {
        json.dumps(run.overrides.get(COMMAND_KEY)): run for run in runs if not run.metrics.get("from")
    }
    for run in commands.values():
        if _names(run, *_METRIC_WORDS) is False:
            yield Problem(
                run.run_id,
                COMMAND_KEY,
                "no source of metrics can be seen in the program's files: its runs would end without metrics",
                f"log to TensorBoard, W&B, CSV or JSON lines, append to the file that {METRICS} names, or "
                "name a file that the program writes: `metrics: {from: logs/progress.csv}`",
                blocks=False,
            )
            return


def _without_start(runs: Sequence[Run]) -> Iterator[Problem]:
    """Warn of the first program that does not take what it is to start from, as far as can be seen."""
    for key, words, fault, hint in (
        (
            "fork",
            ("orchestrate_run", CHECKPOINTS),
            "no checkpoint can be seen in the program's files, and runs fork from checkpoints alone",
            f"save them by run.save of orchestrate_run, or in the folder that {CHECKPOINTS} names",
        ),
        (
            "init",
            ("run.init", INIT),
            f"no file of the program calls run.init or names {INIT}: it would begin with weights of its own",
            "call run.init(agent) before run.resume",
        ),
    ):
        starting = {json.dumps(run.overrides.get(COMMAND_KEY)): run for run in runs if key in run.start}
        lacking = next((run for run in starting.values() if _names(run, *words) is False), None)
        if lacking:
            yield Problem(lacking.run_id, key, f"{key}: {fault}", hint, blocks=False)


def _missing_files(run: Run) -> Iterator[Problem]:
    """Warn of files of the start folder that the program may need and the folder of a run lacks."""
    if (number := len(os.listdir())) > MOST_AT_START:
        message = (
            f"{Path.cwd()}, where runs start, holds {number:,} entries, more than {MOST_AT_START:,}: the "
            "folder of a run has only its folders, sources, settings and what `command` names"
        )
        hint = "move data into a folder, or start from the folder of your project"
        yield Problem(run.run_id, COMMAND_KEY, message, hint, blocks=False)
    project = project_files(Path.cwd(), any_owner=True)
    try:
        argv, names = command_line(run), set(project.program(run.point).files)
    except OrchestrateError:
        return
    if (script := program_file(argv) or "").endswith(".py"):  # without scripts that it does not import
        imported = {os.path.relpath(path) for path, _ in sources(Path(script))}
        names = {name for name in names if name in imported or not name.endswith(".py")}
    naming = {
        os.path.normpath(os.fsdecode(path)): name
        for name in sorted(names)
        for line in _content(name).splitlines()
        if not _WRITES.search(line)
        for path in _PATH.findall(line)
    }
    lacking = [path for path in naming.keys() - project.listed.keys() if is_former_output(path)]
    if lacking := sorted(path for path in lacking if path not in " ".join(argv)):
        told = ", ".join(lacking[:3])
        files = ", ".join(dict.fromkeys(naming[path] for path in lacking[:3]))
        message = f"{told} (named in {files}): outputs of earlier runs are not in a run's folder"
        hint = (
            f"if the program loads them, name them in `command`: --init={lacking[0]}, or where it has no "
            f"option for that [env, INIT={lacking[0]}, {argv[0]}, …]"
        )
        yield Problem(run.run_id, COMMAND_KEY, message, hint, blocks=False)


def _unready_programs(runs: Sequence[Run]) -> Iterator[Problem]:
    """Warn of Pythons that cannot start the program here, and of programs for another machine, each once."""
    seen = set()
    for run in runs:
        argv = command_line(run)
        for text, hint in faults_of(argv) if ELSEWHERE not in os.environ else _not_here(argv):
            if text not in seen:
                seen.add(text)
                yield Problem(run.run_id, COMMAND_KEY, f"`command`: {text}", hint, blocks=False)


def _not_here(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    if shutil.which(argv[0]) is None:
        yield (
            f"found no program {argv[0]!r} on this machine; the runs start on another one",
            "if it is not on the PATH there either, add it by `modules` or `setup` of the profile",
        )


def _unused_keys(runs: Sequence[Run]) -> Iterator[Problem]:
    """Find keys that vary between runs, and several seeds, that do not reach their programs.

    A key is a fault if the program declares an option for it, and otherwise a warning.
    """
    values: dict[str, set[str]] = {}
    commands: dict[str, Run] = {}
    for run in runs:
        for key, value in run.overrides.items():
            values.setdefault(key, set()).add(json.dumps(value))
        commands.setdefault(json.dumps(run.overrides.get(COMMAND_KEY)), run)
    asked = {key for run in commands.values() for key in keys_asked_for(run.overrides.get(COMMAND_KEY))}
    known = {*COMMAND.keys, *asked}
    unused = [key for key, found in values.items() if len(found) > 1 and key not in known]
    if unused and all(_names(run, DESCRIPTION) is False for run in commands.values()):
        yield from _unused(unused, runs[0])
    for run in commands.values() if SEEDS in os.environ else ():
        if "seed" not in keys_asked_for(run.overrides.get(COMMAND_KEY)):
            yield from _unused_seed(run)


def _unused(keys: Sequence[str], run: Run) -> Iterator[Problem]:
    lacking = [(key, how) for key in keys if (how := _argument(run, key))]
    for key, how in lacking:
        message = f"`command` does not use {key}, for which the program has an option: {key} has no effect"
        yield Problem(run.run_id, key, message, f"add {how} to `command`")
    if not lacking:
        first = keys[0]
        yield Problem(
            run.run_id,
            first,
            f"`command` does not use {', '.join(keys)}, and no file of the program names {DESCRIPTION}: runs "
            "that differ in nothing else do the same",
            f"write {{{first}}} in an argument, such as --{first}={{{first}}}, or have the program read it "
            f"from the file that {DESCRIPTION} names",
            blocks=False,
        )


def _unused_seed(run: Run) -> Iterator[Problem]:
    """Yield the fault of a command without `{seed}`, unless the program may take the seed from a variable."""
    names = _names(run, DESCRIPTION, SEED)
    if names:
        return
    message = f"`command` does not use seed, and no file of the program names {SEED} or {DESCRIPTION}"
    how = _argument(run, "seed")
    if names is None:
        message = (
            f"`command` does not use seed, and the program's files are unknown here; it has to read {SEED}"
        )
    elif how:
        message += ", though it has an option for the seed: all seeds do the same"
    else:
        message += ": runs of several seeds do the same, unless the program draws a seed itself"
    hint = f"add {how or _SEED_ARGUMENT} to `command`, or have the program read {SEED}"
    yield Problem(run.run_id, "seed", message, hint, blocks=names is False and how is not None)


def _argument(run: Run, key: str) -> str | None:
    """Return the items to add to `command` if the program declares an option for the key."""
    try:
        return items_for(command_line(run), key)
    except OrchestrateError:
        return None


def _names(run: Run, *variables: str) -> bool | None:
    """Return whether the program names one of these variables; ``None`` if its files are unknown here."""
    try:
        argv = command_line(run)
        program = project_files(Path.cwd(), any_owner=True).program(run.point)
    except OrchestrateError:
        return None
    if program.unknown is not None:
        return None
    files = program.files
    module = (module_of(argv) or "").partition(".")[0]
    own = module and any(name.startswith((f"{module}/", f"{module}.py")) for name in files)
    if not (own or program_file(argv) or code_of(argv) or os.path.normpath(argv[0]) in files):
        return None
    texts = (" ".join(argv).encode(), *map(_content, files))
    return any(name.encode() in text for text in texts for name in variables)


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


def _require_package(argv: Sequence[str]) -> None:
    """Raise :class:`BadConfigError` if a file that imports relatively is started by its path."""
    script = program_file(argv)
    if script is not None and script.endswith(".py") and (name := relative_import(Path(script))):
        raise BadConfigError(
            f"`command`: {script} imports {name}, which Python refuses in a file that is started by its path",
            hint=f"start it as a module of its package: -m {module_of_file(script) or 'PACKAGE.MODULE'}",
        )


@cache
def _has_module(python: str, name: str) -> bool:
    code = "import importlib.util, sys; sys.exit(3 if importlib.util.find_spec(sys.argv[1]) is None else 0)"
    try:
        argv = [python, "-c", code, name]
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode != 3
    except (OSError, subprocess.SubprocessError):
        return True  # unknown: do not refuse

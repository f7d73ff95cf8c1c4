"""Draft a grid from a job script: array tasks and loops become the runs, its options the resources."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orchestrator.config.backends import RESOURCE_SYNTAX
from orchestrator.config.profiles.sbatch_options import SHORT
from orchestrator.config.program.options import SEED_NAMES, Option
from orchestrator.config.yaml_files.scalars import resolve
from orchestrator.core.errors import PlacedError
from orchestrator.core.formatting import count, listed
from orchestrator.core.types import Value
from orchestrator.ui.drafts.bash_starts import MARK, Script, Start
from orchestrator.ui.drafts.text import Draft

_MOST_RUNS = 10_000
_OPTIONS = re.compile(r"^#SBATCH[ \t]([^#\n]*)", re.MULTILINE)
_OPTION = re.compile(r"(?<!\S)(?:--([\w-]+)|-([A-Za-z]))[= \t]*([^\s-]\S*)?")
_TASK_ID = re.compile(r"\b([A-Z]+_ARRAY_TASK_ID)\b")
# Its use outside of comments and without a default.
_NEEDS_ID = re.compile(rf"^[^#\n]*?{_TASK_ID.pattern}(?!:?-)", re.MULTILINE)
JOB_SCRIPTS = (".sh", ".sbatch", ".bash", ".job", f".{RESOURCE_SYNTAX.lower()}")
# Words before a program and its arguments, such as srun; and a program with its first argument.
_STARTERS = ("srun", "nice", "nohup", "time", "timeout", "stdbuf", "numactl", "taskset", "xvfb-run")
_PROGRAM = re.compile(
    r"(?:\S*/)?(?:python[\d.]* (?!-c\b|-$)\S*|bash|sh|torchrun|accelerate|mpirun|mpiexec|julia|Rscript|java"
    r"|(?:uv|conda|mamba|micromamba|poetry|pixi) run|(?:apptainer|singularity) (?:exec|run))(?!\S).*"
    r"|(?!/(?:usr/)?s?bin/)\S*/.*",
    re.DOTALL,
)
# The part of an argument that is no value of a key: its name, and what is not known.
_PREFIX = re.compile(rf"(?:[^={MARK}]*=)?(?:{MARK}.*?{MARK})?")
_SYNTAX = re.compile(r"[;&|<>$`\n]")
_Arguments = tuple[str | tuple[str, ...], ...]
# Variables that bash exports itself, and one that a job is given.
_OWN_VARIABLES = {"BASH_ENV", "CUDA_VISIBLE_DEVICES", "LC_ALL", "OLDPWD", "PATH", "PWD", "SHLVL", "_"}


def draft_of_job_script(file: Path, spelled: str) -> Draft:
    """Run a script without its programs, once for each of its array tasks. Raises :class:`PlacedError`."""
    text = file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").replace("\0", "")
    options = {
        long or SHORT.get(short, short): value.strip("\"'")
        for line in _OPTIONS.findall(text)
        for long, short, value in _OPTION.findall(line)
    }
    ids = {match[1] for match in _TASK_ID.finditer(text)} if "array" in options else set()
    if "array" not in options and (used := _NEEDS_ID.search(text)):
        raise PlacedError(
            f"found {used[1]} without #SBATCH --array",
            file=file,
            line=text.count("\n", 0, used.start()) + 1,
            hint="write the indices that sbatch is given into the script: #SBATCH --array=0-5",
        )
    starts, others = _starts(file, text, [dict.fromkeys(ids, task) for task in _tasks(options, file)])
    if not starts:
        found = f"; found {listed(others, 6)}" if others else ""
        raise PlacedError(f"found no line that starts a program{found}", file=file)
    varying = _variables(starts, ids)
    commands = {}
    for start in starts:
        variables = [f"{name}={start.exported.get(name, '')}" for name in varying]
        commands[*(["env", *variables] if varying else []), *start.argv] = start
    exported = {name for start in starts for name in start.exported} - {*_OWN_VARIABLES, *ids, *varying}
    left_out = [*others, *(f"export {name}" for name in sorted(exported))]
    return _drafted(spelled, _aligned(commands, file), options, left_out)


def _starts(file: Path, text: str, tasks: Sequence[Mapping[str, str]]) -> tuple[list[Start], list[str]]:
    """Return the starts of programs, and the names of other commands."""
    starts, others = list[Start](), dict[str, None]()
    with TemporaryDirectory() as folder:
        script = Script(file, text, Path(folder))
        for start in (start for variables in tasks for start in script.starts(variables)):
            argv = _program(start.argv)
            if argv is None:
                others[start.argv[0]] = None
                continue
            starts.append(replace(start, argv=argv))
            if len(starts) > _MOST_RUNS:
                raise PlacedError(f"found more than {_MOST_RUNS:,} runs", file=file, line=start.line)
    return starts, [*others, *(f"${name}" for name in script.lacking)]


def _program(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return a program with its arguments, without words that start it; ``None`` for any other command."""
    if argv[0] == "sbatch":
        return _submitted(argv)
    first = range(len(argv)) if argv[0] in _STARTERS else range(1)
    for position in first:
        if _PROGRAM.match(" ".join(argv[position : position + 2])):
            program = argv[position]
            named = program.rpartition("/")[2] if MARK in program else program
            return (named, *argv[position + 1 :])
    return None


def _submitted(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the command that sbatch wraps, or the start of a script with the variables that it exports."""
    for at, word in enumerate(argv):
        if re.match("--wrap(=|$)", word):
            text = word[len("--wrap=") :] or "".join(argv[at + 1 : at + 2])
            with suppress(ValueError):
                return ("bash", "-c", text) if _SYNTAX.search(text) else _program(shlex.split(text) or [text])
    script = next((at for at, word in enumerate(argv) if word.endswith(JOB_SCRIPTS)), 0)
    options = (word.removeprefix("--export=").split(",") for word in argv[:script] if "--export=" in word)
    exported = [word for words in options for word in words if "=" in word]
    return (*(["env", *exported] if exported else []), "bash", *argv[script:]) if script else None


def _variables(starts: Sequence[Start], ids: set[str]) -> list[str]:
    """Return exported variables that differ between starts: of the array, if nothing else differs."""
    names = sorted({name for start in starts for name in start.exported} - _OWN_VARIABLES)
    differ = [name for name in names if len({start.exported.get(name) for start in starts}) > 1]
    own = [name for name in differ if name not in ids]
    return own if own or len({start.argv for start in starts}) > 1 else differ


def _tasks(options: Mapping[str, str], file: Path) -> list[str]:
    """Return the indices of an array, such as ``0-8%4`` and ``1,3,5-9:2``."""
    array, found = options.get("array", ""), list[int]()
    for part in array.partition("%")[0].split(",") if array else ():
        span = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?", part.strip())
        if span is None or span[3] == "0":
            raise PlacedError(f"array: found {array!r}, expected indices such as 0-8", file=file)
        found += range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1))
    return [str(task) for task in found[: _MOST_RUNS + 1] or [0]]


def _aligned(commands: Mapping[tuple[str, ...], Start], file: Path) -> list[_Arguments]:
    """Return argument lists of one length: where their numbers differ, one item holds those that differ."""
    shortest = min(map(len, commands))
    if all(len(argv) == shortest for argv in commands):
        return list(commands)
    head, tail = (
        next((at for at, words in enumerate(zip(*lists, strict=False)) if len(set(words)) > 1), shortest)
        for lists in (commands, [argv[::-1] for argv in commands])
    )
    if head < 2:
        found = [f"{' '.join(argv)[:80]!r} (line {start.line})" for argv, start in commands.items()]
        message = f"found {' and '.join(found[:2])}, expected one program with different arguments"
        raise PlacedError(message, file=file)
    ends = ((argv, len(argv) - min(tail, shortest - head)) for argv in commands)
    return [(*argv[:head], argv[head:end], *argv[end:]) for argv, end in ends]


def _drafted(
    spelled: str, commands: Sequence[_Arguments], options: Mapping[str, str], left_out: Sequence[str]
) -> Draft:
    """Return a draft of runs with these argument lists; each argument that differs between them is a key."""
    command, unknown, keys = _keyed(spelled, commands)
    matrix = {key: list(dict.fromkeys(values)) for key, values in keys.items()}
    points = set(zip(*keys.values(), strict=True))
    is_product = prod(map(len, matrix.values())) == len(points) and points == set(product(*matrix.values()))
    asked = {name: options[name] for name in ("partition", "account", "qos", "constraint") if name in options}
    later = [f"# {name}: {value}  # belongs in a profile" for name, value in asked.items()]
    started = count(len(commands), "start")
    notes = [f"{started} of a program. Modules and exported variables belong in a profile (setup:)."]
    left_out = [name for name in left_out if name[1:] not in unknown]
    notes += [f"Left out: {listed(left_out, 12)}."] if left_out else []
    return Draft(
        spelled,
        command,
        list(unknown.values()),
        matrix=matrix if is_product else {},
        zipped={} if is_product else keys,
        resources=resources_of(options),
        notes=notes,
        later=later,
        title=options.get("job-name", ""),
    )


def _keyed(
    spelled: str, commands: Sequence[_Arguments]
) -> tuple[list[str], dict[str, Option], dict[str, list[Any]]]:
    """Return the items of `command`, keys of unknown value, and the values of keys in each argument list."""
    columns = list(zip(*commands, strict=True))
    command, unknown, keys = list[str](), dict[str, Option](), dict[str, list[Any]]()
    texts: dict[str, list[str]] = {}
    for position, column in enumerate(columns):
        fixed = column[0] if len(set(column)) == 1 else next(_PREFIX.finditer(str(column[0]))).group()
        prefix = fixed if all(str(text).startswith(fixed) for text in column) else ""
        command.append(_item(prefix, unknown))
        if len(set(column)) > 1:
            named = prefix.partition("=")[0] if "=" in prefix else str(columns[position - 1][0])
            named = named if isinstance(column[0], str) else "arguments"
            key = re.sub(r"\W+", "_", named.lstrip("-")).strip("_") or "value"
            key = "seed" if key.lower() in SEED_NAMES else key if key[:1].isalpha() else f"value_{key}"
            key = f"{key}_{position}" if key in keys else key
            keys[key] = [_value(text, prefix) for text in column]
            if isinstance(column[0], str):
                texts[key] = [str(text).removeprefix(prefix) for text in column]
            command[-1] += f"{{{key}}}"
    for key, template in _composed(texts).items():
        filled = _with_keys(template, unknown)
        command = [item.replace(f"{{{key}}}", filled) for item in command]
        del keys[key]
    if values := [value for column in keys.values() for value in column if MARK in str(value)]:
        found = re.sub(rf"{MARK}(.*?){MARK}", r"$\1", str(values[0]))
        raise PlacedError(f"found {found[:80]}, which depends on more than the script", file=spelled)
    return command, unknown, keys


def _composed(texts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return keys with values that are composed of those of others, such as ``logs/{lr}_{seed}``."""
    found: dict[str, str] = {}
    longest_first = sorted((-max(map(len, values)), name == "seed", name) for name, values in texts.items())
    for *_, key in longest_first:
        others = {name: texts[name] for name in texts if name != key and name not in found}
        if template := _template(texts[key], others):
            found[key] = template
    return found


def _template(texts: Sequence[str], others: Mapping[str, Sequence[str]]) -> str | None:
    """Return a text with ``{key}`` for values of others that gives these texts; ``None`` without one."""
    if not others or any("{" in text for text in texts):
        return None
    rows = list(zip(*others.values(), strict=True))
    clearest = max(range(len(rows)), key=lambda row: len(set(rows[row])))
    names = {value: key for value, key in zip(rows[clearest], others, strict=True) if value}
    if not names:
        return None
    words = "|".join(re.escape(value) for value in sorted(names, key=len, reverse=True))
    word = re.compile(rf"(?<![A-Za-z0-9])(?<!\d\.)(?:{words})(?![A-Za-z0-9]|\.\d)")
    template = word.sub(lambda one: f"{{{names[one[0]]}}}", texts[clearest])
    filled = (re.sub(r"\{(.*?)\}", lambda one: others[one[1]][row], template) for row in range(len(rows)))  # noqa: B023
    return template if list(filled) == list(texts) else None


def _item(text: str, unknown: dict[str, Option]) -> str:
    """Return an item of `command`, with a key for each value that is not known."""
    return _with_keys(re.sub(r"\{(\w[^{}]*)\}", r"{{\1}}", text), unknown)


def _with_keys(text: str, unknown: dict[str, Option]) -> str:
    parts = text.split(MARK)
    for position in range(1, len(parts), 2):
        key = re.sub(r"\W+", "_", parts[position]).strip("_") or "value"
        unknown[key] = Option(key, (), required=True, help=f"${parts[position]} of the script")
        parts[position] = f"{{{key}}}"
    return "".join(parts)


def _value(text: str | tuple[str, ...], prefix: str = "") -> Any:
    """Return a number if it is passed with this spelling, else the text."""
    if isinstance(text, tuple):
        return tuple(map(_value, text))
    text = text.removeprefix(prefix)
    try:
        value = resolve(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) and json.dumps(value) == text else text


def resources_of(options: Mapping[str, str]) -> dict[str, Value]:
    """Return the resources that options of sbatch ask for, by their long names."""
    gres = options.get("gres", "").rpartition("gpu:")[2]
    count = (gres or options.get("gpus") or options.get("gpus-per-node", "")).rpartition(":")[2]
    found: dict[str, Value] = {}
    if options.get("cpus-per-task", "").isdecimal():
        found["cpus_per_task"] = int(options["cpus-per-task"])
    if count.isdecimal():
        found["gpus"] = int(count)
    return found | {name: options[name] for name in ("mem", "time") if options.get(name)}

"""Interpret a `command` of a grid: find the program's file, and the code of a shell, in it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

COMMAND_KEY = "command"
# Other names for the key, and the correct spelling in a grid.
OTHER_COMMAND_KEYS = ("script", "program", "cmd", "entrypoint", "entry_point", "executable")
PROGRAM_OF_ONES_OWN = "trainer: command, and base: {command: [python, train.py]}"

_PLAIN_ITEM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./=-]*|--?[A-Za-z0-9_./=-]+")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_SHELL = re.compile(r"(ba|da|z|k|a|fi)?sh")
_OTHER = re.compile(r"perl|ruby|Rscript|julia|node|lua|php")
# Programs that start another one, named among their arguments.
_WRAPPER = re.compile(
    r"accelerate|apptainer|singularity|conda|deepspeed|env|hatch|mamba|micromamba|mpiexec|mpirun|nice|numactl|pdm|pipenv|poetry|srun|"
    r"stdbuf|taskset|time|timeout|torchrun|uvx?|xvfb-run"
)
# Of these, an absolute path may be one in the image.
_CONTAINERS = ("apptainer", "singularity")
# Options of `uv run` without a value.
_UV_FLAGS = ("--no-sync", "--frozen", "--locked", "--offline")
# Options with a separate value, and options that exclude a program file.
_VALUED_PYTHON = frozenset(("-W", "-X", "--check-hash-based-pycs"))
_VALUED_SHELL = frozenset(("-o", "-O", "--rcfile", "--init-file"))
_VALUED_OTHER = frozenset(("-r", "--require", "-t", "--threads", "-p", "--project", "-I", "-M", "-l"))
_NO_FILE_PYTHON = re.compile(r"-([A-Za-z]*[cm].*)?")
_NO_FILE_SHELL = re.compile(r"-([A-Za-z]*[cs][A-Za-z]*)?")
_NO_FILE_OTHER = re.compile(r"-([eE].*|-eval.*)?")
# The option before inline code, and options of a shell with a separate value, such as -eo pipefail.
_INLINE = re.compile(r"-[A-Zabd-hj-km-z]*c")
_INLINE_SHELL = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_SETS_OPTION = re.compile(r"[-+][A-Za-z]*[oO]")
# Not a login shell, whose profile may change the folder.
_LOGIN = re.compile(r"--login|-[A-Za-z]*l[A-Za-z]*")
_ASSIGNED = re.compile(r"\w+=")
# Characters that a shell expands.
_EXPANDED = re.compile(r"[$`*?\[{~\\]")
_SCRIPT = re.compile(r".+\.(py|sh|bash|zsh|jl|R|r|pl|rb|lua|js|mjs|php)")


def command_meant(keys: Mapping[str, Any]) -> str:
    """Suggest the `command` list that a grid without one most likely needs, in its syntax."""
    texts = [keys[name] for name in (COMMAND_KEY, *OTHER_COMMAND_KEYS) if isinstance(keys.get(name), str)]
    try:
        words = shlex.split(texts[0]) if texts else []
    except ValueError:
        words = []
    if words and words[0].endswith(".py"):
        words = ["python", *words]
    words = words or ["python", "train.py", "--seed", "{seed}"]
    items = (word if _PLAIN_ITEM.fullmatch(word) else json.dumps(word) for word in words)
    return f"{COMMAND_KEY}: [{', '.join(items)}]"


def is_shell(program: str) -> bool:
    """Return whether this is the name or path of a shell."""
    return bool(_SHELL.fullmatch(os.path.basename(program)))


def program_file(argv: Sequence[str]) -> str | None:
    """Return the file required to start the program, as :func:`script_of`; also from a shell's code."""
    code = code_of(argv) if argv and is_shell(argv[0]) else None
    script = script_of(argv) if code is None else _script_in(code)
    in_image = script and os.path.isabs(script) and os.path.basename(argv[0]) in _CONTAINERS
    return None if in_image else script


def code_of(argv: Sequence[str]) -> str | None:
    """Return the program text after ``-c`` of Python, or of a shell other than a login shell."""
    name = os.path.basename(argv[0]) if argv else ""
    if _SHELL.fullmatch(name):
        position = _after_options(argv, 1)
        login = position is None or any(_LOGIN.fullmatch(option) for option in argv[1:position])
        return None if position is None or login else argv[position]
    options = iter(argv[1:] if _PYTHON.fullmatch(name) else ())
    for item in options:
        if item in _VALUED_PYTHON:
            next(options, None)
        elif _INLINE.fullmatch(item):
            return next(options, None)
        elif not item.startswith("-"):
            return None
    return None


def shell_code_at(command: Sequence[Any]) -> int | None:
    """Return the position of the code that a shell gets after ``-c``, also behind other programs."""
    for start, item in enumerate(command):
        if isinstance(item, str) and is_shell(item):
            position = _after_options(command, start + 1)
            if position is not None:
                return position
    return None


def _after_options(command: Sequence[Any], position: int) -> int | None:
    """Return the position of the first argument after a shell's options if ``-c`` is one of them."""
    is_code = False
    while position < len(command):
        item = str(command[position])
        if item[:1] not in ("-", "+") or item in ("-", "--"):
            position += item in ("-", "--")
            return position if is_code and position < len(command) else None
        is_code |= bool(_INLINE_SHELL.fullmatch(item))
        position += 2 if item in _VALUED_SHELL or _SETS_OPTION.fullmatch(item) else 1
    return None


def _script_in(code: str) -> str | None:
    """Return the script that the first command of this shell code starts, if its words alone suffice."""
    words = shlex.shlex(code, posix=True, punctuation_chars="();<>|&\n")
    words.whitespace, words.whitespace_split, words.commenters = " \t", True, ""
    first: list[str] = []
    try:
        for word in words:
            if word and word[0] in "();<>|&\n":
                if word == "||":  # the rest handles its failure
                    return None
                break
            first.append(word)
    except ValueError:  # unbalanced quotes
        return None
    while first and (first[0] == "exec" or _ASSIGNED.match(first[0])):
        first.pop(0)
    script = script_of(first)
    return None if script is None or _EXPANDED.search(script) else script


def script_of(argv: Sequence[str]) -> str | None:
    """Return the argument that must be a file for the program to start; None if unknown."""
    for position, item in enumerate(argv):
        name = os.path.basename(item)
        if position and (item.startswith("-") or _ASSIGNED.match(item)):
            continue
        if _PYTHON.fullmatch(name) or _SHELL.fullmatch(name) or _OTHER.fullmatch(name):
            return _script_after(argv[position + 1 :], name)
        if not position and not _WRAPPER.fullmatch(name):
            return None
        before = argv[position - 1] if position else ""
        if position and _SCRIPT.fullmatch(item) and (not before.startswith("-") or before in _UV_FLAGS):
            return item
    return None


def module_of(argv: Sequence[str]) -> str | None:
    """Return the module of ``python -m``."""
    if not argv or not _PYTHON.fullmatch(os.path.basename(argv[0])):
        return None
    options = iter(argv[1:])
    for item in options:
        if item in _VALUED_PYTHON:
            next(options, None)
        elif re.fullmatch(r"-[A-Za-z]*m", item):
            return next(options, None)
        elif not item.startswith("-") or _NO_FILE_PYTHON.fullmatch(item):
            return None
    return None


def _script_after(arguments: Sequence[str], interpreter: str) -> str | None:
    if _PYTHON.fullmatch(interpreter):
        valued, no_file = _VALUED_PYTHON, _NO_FILE_PYTHON
    elif _SHELL.fullmatch(interpreter):
        valued, no_file = _VALUED_SHELL, _NO_FILE_SHELL
    else:
        valued, no_file = _VALUED_OTHER, _NO_FILE_OTHER
    options = iter(arguments)
    for item in options:
        if item in valued:
            next(options, None)
        elif item == "--":
            return next(options, None)
        elif not item.startswith("-"):
            return item
        elif not item.startswith(("-W", "-X")) and no_file.fullmatch(item):
            return None
    return None

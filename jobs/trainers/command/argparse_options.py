"""Read the options that a Python program declares, and find arguments that it misreads or lacks.

Known are calls of ``add_argument`` with constants, in the program's file and in files beside it that it
imports. An option that is declared twice in different ways is left out. Options of click and tyro are known
by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.config.command_line.command import module_of, program_file
from orchestrator.config.command_line.placeholders import flags_in
from orchestrator.config.program.options import name_of, options_of, sources
from orchestrator.core.types import Run

_FALSE = frozenset(("false", "no", "off", "0", "none", "null"))
_WITHOUT_VALUE = frozenset(("store_true", "store_false", "BooleanOptionalAction"))
_SEED_NAMES = ("seed", "random_seed", "rng_seed", "global_seed", "manual_seed")


@dataclass(frozen=True)
class Declared:
    """An option's ``action`` and ``type`` by name, empty by default, and whether its default is True."""

    action: str
    type: str
    is_on: bool


@dataclass(frozen=True)
class Fault:
    """An argument that the program misreads, with what to write instead; ``text`` names the option."""

    text: str
    hint: str


def misread(run: Run, argv: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of a run's arguments; none where its program is not Python or declares no options."""
    found = _program(argv)
    if found is None:
        return
    path, first = found
    options, has_positional = _declared(path.absolute())
    if not options:
        return
    null = None in run.overrides.values()
    previous = ""
    for position, argument in enumerate(argv[first:], first):
        name, equals, value = argument.partition("=")
        following = "" if equals else argv[position + 1] if position + 1 < len(argv) else "-"
        option = options.get(name) if name.startswith("-") else None
        if option is not None:
            yield from _misread_value(name, option, value or following, null)
        elif not argument and not has_positional and not previous.startswith("-"):
            yield Fault(
                "an empty argument, and the program takes no positional arguments",
                "{key:flag} of true and false gives --key or nothing; so does {key} of lists: [--key] and []",
            )
        previous = argument
    for key, form in flags_in(run.overrides.get("command")):
        option = options.get(f"--{key}")
        if option and option.is_on and form == "flag" and run.overrides.get(key) is False:
            yield Fault(
                f"no --{key} for {key}: false, and the program's default of --{key} is True",
                f"{{{key}:no-flag}} gives --no-{key}, which argparse.BooleanOptionalAction takes",
            )


def option_of(argv: Sequence[str], key: str) -> str | None:
    """Return the option that a Python program declares for a key or the seed; ``None`` if none is known."""
    found = _program(argv)
    if found is None:
        return None
    path = found[0].absolute()
    wanted = _SEED_NAMES if key == "seed" else (key.replace("-", "_"),)
    named = (name for name in (*_declared(path)[0], *_spelled(path)) if name.startswith("--"))
    return next((name for name in named if name[2:].replace("-", "_") in wanted), None)


def placeholder_for(argv: Sequence[str], option: str, key: str) -> str:
    """Return the items of `command` that give an option the value of a key."""
    found = _program(argv)
    declared = _declared(found[0].absolute())[0].get(option) if found else None
    if declared is None or declared.action not in _WITHOUT_VALUE:
        return f'{option}, "{{{key}}}"'
    return f'"{{{key}:{"flag" if declared.action.startswith("store") else "no-flag"}}}"'


def _misread_value(name: str, option: Declared, value: str, null: bool) -> Iterator[Fault]:
    """Yield the fault of an option with this value, or with this argument behind it."""
    key = name.lstrip("-")
    lower = value.lower()
    if option.type == "bool" and lower in _FALSE:
        yield Fault(
            f"{name} {value}, which the program reads as True: its type=bool turns every text but the empty "
            "one into True",
            f'declare {name} with action="store_true" in the program and write {{{key}:flag}}',
        )
    elif option.action in _WITHOUT_VALUE and lower in ("true", "false"):
        yield Fault(
            f"{name} {value}, and the program's {name} takes no value", f"write {{{key}:flag}} in its place"
        )
    elif null and value == "null" and option.type in ("", "str") and not option.action:
        yield Fault(
            f"{name} null, which the program reads as a text of four letters",
            f"{{{key}:flag}} leaves the option out where {key} is null",
        )


def _program(argv: Sequence[str]) -> tuple[Path, int] | None:
    """Return the Python file that a command starts and the position of its first argument."""
    script, module = program_file(argv), module_of(argv)
    if script is not None and script.endswith(".py") and script in argv:
        return Path(script), argv.index(script) + 1
    if module is not None:
        path = Path(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__main__.py"):
            if file.is_file():
                return file, argv.index(module) + 1
    return None


@cache
def _declared(path: Path) -> tuple[Mapping[str, Declared], bool]:
    """Return the options in a program's sources, and whether it has positional arguments."""
    found: dict[str, Declared | None] = {}
    has_positional = False
    for tree in sources(path):
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
                continue
            names = [one.value for one in node.args if isinstance(one, ast.Constant)]
            option = _option(node)
            for name in names:
                if not str(name).startswith("-"):
                    has_positional = True
                found[str(name)] = option if found.get(str(name), option) == option else None
            has_positional |= not names or any(word.arg is None for word in node.keywords)
    return {name: option for name, option in found.items() if option is not None}, has_positional


def _spelled(path: Path) -> Iterator[str]:
    """Yield the names of options that other libraries declare."""
    for option in options_of(path):
        if option.items[0].startswith("-") or ":" in option.items[0]:
            yield f"--{option.key}"


def _option(call: ast.Call) -> Declared:
    words = {word.arg: word.value for word in call.keywords}
    action, kind, default = (words.get(name) for name in ("action", "type", "default"))
    return Declared(
        name_of(action), name_of(kind), isinstance(default, ast.Constant) and default.value is True
    )

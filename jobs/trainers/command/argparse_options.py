"""Find arguments that a Python program misreads or lacks, by the options that it declares.

An option of argparse that is declared twice in different ways is left out. Options of click and tyro are
known by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.command_line.command import module_of, program_file
from orchestrator.config.command_line.placeholders import flags_in
from orchestrator.config.program.options import SEED_NAMES, Option, options_of
from orchestrator.core.types import Run

_FALSE = frozenset(("false", "no", "off", "0", "none", "null"))
_WITHOUT_VALUE = frozenset(("store_true", "store_false", "BooleanOptionalAction"))


@dataclass(frozen=True)
class Fault:
    """An argument that the program misreads, with what to write instead; ``text`` names the option."""

    text: str
    hint: str


def misread(run: Run, argv: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of a run's arguments; none where its program is not Python or without argparse."""
    found = _program(argv)
    if found is None:
        return
    path, first = found
    declared = options_of(path.absolute())
    options = {name: option for option in declared for name in option.names}
    has_positional = not all(map(_is_named, declared))
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
        if option and option.default is True and form == "flag" and run.overrides.get(key) is False:
            yield Fault(
                f"no --{key} for {key}: false, and the program's default of --{key} is True",
                f"{{{key}:no-flag}} gives --no-{key}, which argparse.BooleanOptionalAction takes",
            )


def items_for(argv: Sequence[str], key: str) -> str | None:
    """Return the items of `command` that pass a key or the seed; ``None`` if no option for it is found."""
    found = _program(argv)
    wanted = SEED_NAMES if key == "seed" else (key.replace("-", "_"),)
    for option in options_of(found[0].absolute()) if found else ():
        names = option.names or (f"--{option.key}",) if _is_named(option) else ()
        if any(name.startswith("--") and name[2:].replace("-", "_") in wanted for name in names):
            items = (item.replace(f"{{{option.key}", f"{{{key}") for item in option.items)
            return ", ".join(f'"{item}"' if "{" in item else item for item in items)
    return None


def _is_named(option: Option) -> bool:
    """Return whether an option is passed by a name; positional arguments are not."""
    return option.items[0].startswith("-") or ":" in option.items[0]


def _misread_value(name: str, option: Option, value: str, null: bool) -> Iterator[Fault]:
    """Yield the fault of an option with this value, or with this argument behind it."""
    key = name.lstrip("-")
    lower = value.lower()
    if option.action in _WITHOUT_VALUE and lower in ("true", "false"):
        yield Fault(
            f"{name} {value}, and the program's {name} takes no value", f"write {{{key}:flag}} in its place"
        )
    elif option.type == "bool" and not option.action and lower in _FALSE:
        yield Fault(
            f"{name} {value}, which the program reads as True: its type=bool turns every text but the empty "
            "one into True",
            f'declare {name} with action="store_true" in the program and write {{{key}:flag}}',
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

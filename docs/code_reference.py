"""Generate the reference as Markdown from the code: commands, keys of a grid, keys of a profile.

`mkdocs build` calls it each time (docs/hooks.py), so that no copy can be out of date. The meaning of a key
stands where the key is defined, the meaning of an option where the command is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

import click
import typer

from orchestrator.config.grid.parse import SECTIONS
from orchestrator.config.grid.resources import RESOURCES
from orchestrator.config.grid.values import OWN_KEYS
from orchestrator.config.profiles.model import told_keys
from orchestrator.config.trainers import TrainerSpec, get_trainer, trainer_names
from orchestrator.ui.cli import app
from orchestrator.ui.cli.results.sync import sync

_SENTENCE = "Made from the program's code when these pages are built."
_BOLD = re.compile(r"\[bold\](.*?)\[/bold\]")


def pages() -> dict[str, str]:
    """Return each page of the reference by its place below docs/."""
    return {
        "reference/commands.md": commands(),
        "reference/grid.md": grid_keys(),
        "reference/profile.md": profile_keys(),
        "reference/messages.md": messages(),
        "reference/files.md": files(),
    }


def commands() -> str:
    """List every command with its arguments and options, in the order of `orchestrate --help`."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    known = {name: command for name, command in group.commands.items() if not command.hidden}
    lines = ["# Commands", "", f"`orchestrate COMMAND --help` says the same. {_SENTENCE}", ""]
    rows = [[f"[`{name}`](#{name})", _summary(command)] for name, command in known.items()]
    lines += _table(["command", "what it does"], rows)
    for name, command in known.items():
        lines += ["", f"## {name}", "", *_command(f"orchestrate {name}", command)]
    alone = typer.Typer(add_completion=False)
    alone.command()(sync)
    shortcut = typer.main.get_command(alone)
    lines += ["", "## sync-results", "", "A program of its own, the same as [`orchestrate sync`](#sync).", ""]
    lines += ["```text", _usage("sync-results", shortcut), "```", ""]
    return "\n".join(lines)


def grid_keys() -> str:
    """List sections, the keys of every trainer, resources, and the keys reserved by each trainer."""
    lines = ["# Keys of a grid", "", f"[The grid](../grid.md) shows them at work. {_SENTENCE}", ""]
    lines += ["## Sections", "", *_table(["section", "what it is"], _rows(SECTIONS.items()))]
    lines += ["", "## Keys of every trainer", ""]
    lines += ["They stand in `base`, `matrix`, `zip` and `include`, beside the trainer's own.", ""]
    lines += _table(["key", "what it is"], _rows(OWN_KEYS.items()))
    lines += ["", "## resources", "", *_table(["key", "what it is"], _rows(RESOURCES.items()))]
    for spec in map(get_trainer, trainer_names()):
        lines += _trainer(spec)
    return "\n".join([*lines, ""])


def profile_keys() -> str:
    """List every key of a profile with its default."""
    intro = f"[Profiles](../profiles.md) shows them at work. {_SENTENCE}"
    return "\n".join(["# Keys of a profile", "", intro, "", *profile_table(), ""])


def messages() -> str:
    """List errors and findings with the next step."""
    return f"# Messages\n\nEach message names what was found, what was expected, and what to type next. {_SENTENCE}\n"


def files() -> str:
    """Describe the results tree and the tables of `collect`."""
    return f"# Files\n\nThe results tree and the tables that `orchestrate collect` writes. {_SENTENCE}\n"


def profile_table() -> list[str]:
    """List the keys of a profile in a table."""
    rows = [[f"`{name}`", _default(default), told] for name, default, told in told_keys()]
    return _table(["key", "default", "meaning"], rows)


def python(things: Sequence[type[Any] | Callable[..., Any]]) -> str:
    """List functions and classes, with their public methods and attributes, by their docstrings."""
    intro = "The commands as functions; [a notebook](../notebook.ipynb) shows them at work."
    lines = ["# Python", "", f"{intro} {_SENTENCE}", ""]
    for thing in things:
        lines += [f"## {thing.__name__}", "", *_signature(thing.__name__, thing), *_docstring(thing)]
        if isinstance(thing, type):
            for name, member in vars(thing).items():
                told = member.fget if isinstance(member, property) else member
                if not name.startswith("_") and inspect.isfunction(told):
                    call = f"{thing.__name__}.{name}"
                    lines += [f"### {call}", ""]
                    lines += [] if isinstance(member, property) else _signature(call, told)
                    lines += _docstring(told)
    return "\n".join(lines)


def _signature(name: str, thing: Callable[..., Any]) -> list[str]:
    """Return the code to import or call a thing, without annotations, which docstrings have in words."""
    if isinstance(thing, type):
        return [f"`from {thing.__module__} import {name}`", ""]
    found = inspect.signature(thing)
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in found.parameters.values()
        if parameter.name != "self"
    ]
    call = f"{name}{found.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"
    return [*([] if "." in name else [f"`from {thing.__module__} import {name}`", ""]), f"`{call}`", ""]


def _docstring(thing: Any) -> list[str]:
    """Return a docstring as Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", inspect.cleandoc(thing.__doc__ or ""))
    return [text.replace("``", "`"), ""]


def _command(path: str, command: click.Command) -> Iterator[str]:
    yield from _help(command)
    yield from ("```text", _usage(path, command), "```")
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    told = [[f"`{_name(one)}`", _help_text(one)] for one in arguments if getattr(one, "help", None)]
    if told:
        yield from ("", *_table(["argument", ""], told))
    rows = [[_spelled(one), _help_text(one), _default(_default_of(one))] for one in options]
    if rows:
        yield from ("", *_table(["option", "", "default"], rows))


def _help(command: click.Command) -> Iterator[str]:
    """Return the command's help as Markdown; indented lines are commands to type."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines = [line.rstrip() for line in paragraph.replace("\b", "").splitlines() if line.strip()]
        if not lines:
            continue
        if all(line.startswith("  ") for line in lines):
            yield from ("```console", *(line.strip() for line in lines), "```", "")
        else:
            yield from (_BOLD.sub(r"**\1**", " ".join(line.strip() for line in lines)), "")


def _summary(command: click.Command) -> str:
    first = next(iter(_help(command)), "")
    return re.split(r"(?<=[a-z])[.] ", first)[0].rstrip(".")


def _usage(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    return " ".join([path, *command.collect_usage_pieces(context)])


def _name(argument: click.Argument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _spelled(option: click.Option) -> str:
    """Format an option: ``-f`, `--follow``, or with its value ``--on PROFILE``."""
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag or option.count else f" {option.metavar or option.type.name.upper()}"
    return ", ".join(f"`{name}{value}`" for name in names)


def _help_text(parameter: click.Parameter) -> str:
    told = str(getattr(parameter, "help", None) or "")
    again = " May be repeated." if getattr(parameter, "multiple", False) and "repeated" not in told else ""
    needed = " Required." if isinstance(parameter, click.Option) and parameter.required else ""
    return f"{told}{again}{needed}"


def _default_of(option: click.Option) -> Any:
    return None if callable(option.default) or option.default in (False, ()) else option.default


def _trainer(spec: TrainerSpec) -> Iterator[str]:
    yield from ("", f"## The trainer {spec.name}", "")
    if spec.keys:
        yield from (*_table(["key", "meaning"], _rows(spec.keys.items())), "")
    if spec.owned:
        yield from ("The program sets these itself, and a grid may not:", "")
        yield from (*_table(["key", "why"], _rows(spec.owned.items())), "")
    if spec.inert:
        keys = ", ".join(f"`{key}`" for key in spec.inert)
        yield from (f"These decide nothing and are no part of what a run is: {keys}.", "")
    if not spec.owned and not spec.inert:
        yield "No key is the program's own, and each is a part of what a run is."


def _rows(items: Iterable[tuple[str, str]]) -> list[list[str]]:
    return [[f"`{name}`", told] for name, told in items]


def _default(value: Any) -> str:
    """Format a default as a person would write it; empty if there is none."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, str | int | float | PurePath) else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format a table; bars in cells are escaped, and an empty cell is one blank."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(_cell(cell) for cell in line)} |".replace("|  |", "| |") for line in lines]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

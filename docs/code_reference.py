"""Generate the reference as Markdown from the code: commands, keys of a grid, keys of a profile.

`mkdocs build` calls it each time (docs/hooks.py), so that no copy can be out of date. The meaning of a key
stands where the key is defined, the meaning of an option where the command is.
"""

from __future__ import annotations

import html
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import click
import msgspec
import typer
import yaml

from orchestrator.config.grid.parse import SECTIONS
from orchestrator.config.grid.resources import RESOURCES
from orchestrator.config.grid.values import OWN_KEYS
from orchestrator.config.profiles.model import told_keys
from orchestrator.config.trainers import TrainerSpec, get_trainer, trainer_names
from orchestrator.core import errors
from orchestrator.rundir import sweep
from orchestrator.rundir.attempts import metrics
from orchestrator.rundir.records.result import Result, Throughput
from orchestrator.ui.cli import app
from orchestrator.ui.cli.results.sync import sync

_GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
# Errors of trainers, which `check` finds before a run does.
_BY_CHECK = dict.fromkeys(("Problem", "BadConfigError", "RefusedKeyError", "NoSpellingError"), "Problem")
_SENTENCE = "Made from the program's code when these pages are built."
_BOLD = re.compile(r"\[bold\](.*?)\[/bold\]")

# The columns of the tables; those that belong together stand in one row.
RUN_COLUMNS = {
    "run_id sweep trainer": "Which run it is.",
    "in_grid": "False for runs of an earlier grid, which the latest does not contain.",
    "the keys of the grid": "A column per key. One that is named like another column becomes `grid.<key>`.",
    "state reason": "Where the run stands, and why if it is not done.",
    "target device environments": "What trained it; how many environments were stepped at once.",
    "attempts frames iterations": "Executions so far; frames and iterations that count.",
    "wall_time": "Seconds of all attempts, from claim to end. The dollars of a run are for this time.",
    "train_time": "Seconds of the iterations that count, with evaluations. Curves over time use it.",
    "training_fps end_to_end_fps": "Frames per second of collecting and learning; of all wall time.",
    "steady_iterations provisional": "Iterations behind the two; true if they lack a cycle of evaluations.",
    "seconds_per_iteration collection_seconds learning_seconds": "Means over the same iterations.",
    "training_episodes evaluation_episodes": "Episodes that ended in training; episodes of one evaluation.",
    "initial_return last_return best_return": "Of evaluations if there are any, else of collection.",
    "final_return final_measure": "The final return by `collect --final`; its measure, as `mean:5`.",
    "final_values": "How many values are in the final return.",
    "evaluation_interval": "The median of the frames from one evaluation to the next.",
    "return_metric": "The metric that the final return is a value of.",
    "training_levels_return": "Of runs evaluated on unseen levels: the last return on levels of training.",
    "generalization_gap": "By how much that is more than the return on unseen levels.",
    "chosen_metric lower_is_better": "With another metric in place of the return: its name and direction.",
    "dropped_metrics": "How many lines and values a program wrote that cannot be used.",
    "caught_error": "The exception that a program printed last before it ended with exit code 0.",
    "exactness": "`exact`, `no progress lost`, `reset` or `undeclared`: see the [glossary](../glossary.md).",
    "hostname cpu_model cpu_capability cores gpu_model gpu_capability": "The machine, with its threads.",
    "threads run_cores peak_memory_mb": "What the run took of it; memory is summed over processes and nodes.",
    "actors processes": "Of `ppo`, `impala` and `a2c`: processes that train, and all that have a core.",
    "flop_per_frame machine_flops_per_core": "Floating-point operations of a frame; of a core in a second.",
    "versions": "Versions of packages, as JSON text.",
    "code_id config_hash": "The code that trained, and the composed configuration.",
    "accepted_as": "The code that the run counts as after `orchestrate accept`.",
    "prefix adopted_from": "The shorter run that it went on from; the library that it comes from.",
    "verified": "When and where `orchestrate verify` trained it again; else empty, or what differed.",
    "metrics_hash": "Equal for runs with identical metrics; empty where no other run can have the same.",
    "commit dirty": "The git commit of the project, and whether its code differed from it.",
    "started ended": "Seconds since the epoch.",
}
METRIC_COLUMNS = {
    "sweep run_id": "The run.",
    "iteration frames": "Iterations and frames since the start of the run.",
    "name value": "The metric.",
    "wall_time": "Seconds at work, of all attempts.",
}


def pages() -> dict[str, str]:
    """Return each page of the reference by its place below docs/."""
    return {
        "reference/commands.md": commands(),
        "reference/grid.md": grid_keys(),
        "reference/profile.md": profile_keys(),
        "reference/promises.md": promises(),
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
    """List errors and findings with the next step, from the golden files of the tests."""
    intro = "Find what a message asks for. Capitals and … stand for names and values of your case."
    lines = ["# Messages", "", f"{intro} {_SENTENCE}", ""]
    for title, file in (
        ("A grid is refused", "grid_errors.md"),
        ("A profile is refused", "profile_errors.md"),
    ):
        lines += [f"## {title}", ""]
        parts = re.split(r"^## (.*)\n", (_GOLDEN / file).read_text(), flags=re.MULTILINE)
        for number, part in enumerate(parts):
            examples = "".join(re.findall(r"^```text\n(.*?)^```", part, re.MULTILINE | re.DOTALL))
            lines += [f"### {part}", ""] if number % 2 else [*_messages(_told(examples)), ""]
    kinds = _by_kind((_GOLDEN / "messages.txt").read_text())
    for golden in sorted(_GOLDEN.glob("check_*.txt")):
        kinds["Problem"] += _told(golden.read_text())
    lines += ["## `check` finds a fault", "", *_messages(kinds.pop("Problem")), ""]
    lines += ["## A command ends with an error", "", "Scripts tell the kinds apart by the exit code.", ""]
    for kind, told in kinds.items():
        error = getattr(errors, kind)
        words = inspect.cleandoc(error.__doc__).splitlines()[0].split(" ``")[0]
        lines += [f"### {kind}", "", f"{words} Exit code {error.exit_code}.", "", *_messages(told), ""]
    return "\n".join(lines)


def files() -> str:
    """Describe the results tree and the tables of `collect`."""
    intro = "Everything is a plain file, readable without this program; Polars, pandas and R read the tables."
    lines = ["# Files", "", f"{intro} {_SENTENCE}", "", "## The results tree", ""]
    lines += ["```text", *_indented(sweep.__doc__), "```", ""]
    lines += ["## metrics.jsonl", "", "The metrics of one attempt.", ""]
    lines += ["```json", *_indented(metrics.__doc__), "```", ""]
    rest = re.sub(r"::\n\n(?:    .*\n)+", ".\n", (metrics.__doc__ or "").partition("\n\n")[2])
    lines += [rest.replace("``", "`"), ""]
    lines += ["## result.json", "", *_docstring(Result), *_table(["field", "type"], _fields(Result)), ""]
    lines += ["### speed", "", *_docstring(Throughput), *_table(["field", "type"], _fields(Throughput)), ""]
    lines += ["## results.parquet and results.csv", "", "One row per run, in the order of the index.", ""]
    lines += [*_table(["columns", "what they hold"], _columns(RUN_COLUMNS)), ""]
    lines += ["In `results.csv` an apostrophe stands before text that a spreadsheet would compute.", ""]
    lines += ["## metrics.parquet", "", "One row per run, iteration and metric.", ""]
    return "\n".join([*lines, *_table(["columns", "what they hold"], _columns(METRIC_COLUMNS)), ""])


def _columns(columns: Mapping[str, str]) -> list[list[str]]:
    return [
        [names if "grid" in names.split() else ", ".join(f"`{name}`" for name in names.split()), told]
        for names, told in columns.items()
    ]


def _indented(text: str | None) -> list[str]:
    """Return the first indented block of a docstring."""
    block = re.search(r"::\n\n((?:    .*\n|\n)+)", text or "")
    assert block, "the docstring has an example"
    return textwrap.dedent(block[1]).strip("\n").splitlines()


def _fields(record: type[msgspec.Struct]) -> list[list[str]]:
    """Return the names and types of a record's fields."""
    types = inspect.get_annotations(record)
    return [[f"`{name}`", str(types[name]).replace("Int64", "int")] for name in types if name != "fields"]


def _by_kind(catalogue: str) -> dict[str, list[tuple[str, str]]]:
    """Return the messages by the class of their error; those that `check` finds are a `Problem`."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for message, hint in _told(catalogue):
        kind, _, text = message.partition(": ")
        kind = kind if hasattr(errors, kind) else _BY_CHECK.get(kind, "OrchestrateError")
        kinds.setdefault(kind, []).append((text, hint))
    return kinds


def _told(text: str) -> list[tuple[str, str]]:
    """Return messages, each with its indented hint, without places in a file."""
    found = re.findall(r"^(\S.*)\n((?:[ ]{2}.*\n)*)", text, re.MULTILINE)
    told = [(re.sub(r"^\w+[.]yaml:[\d:]* ", "", line), " ".join(hint.split())) for line, hint in found]
    return list(dict.fromkeys(told))


def _messages(told: Iterable[tuple[str, str]]) -> list[str]:
    rows = [[_plain(message), _plain(hint)] for message, hint in told]
    return _table(["message", "what to do"], rows) if rows else []


def _plain(text: str) -> str:
    """Escape what Markdown would read in a message, apart from code in backticks."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"([*_\[\]\\])", r"\\\1", html.escape(parts[at], quote=False))
    return "`".join(parts)


def promises() -> str:
    """List each promise with the tests that hold it, from tests/promises.yaml."""
    intro = "What the program promises, and tests that hold it; `make test` runs at least one of each row."
    lines = ["# Promises and their tests", "", intro, ""]
    file = Path(__file__).parents[1] / "tests" / "promises.yaml"
    for group, members in yaml.safe_load(file.read_text()).items():
        rows = [[promise, "<br>".join(f"`{test}`" for test in tests)] for promise, tests in members.items()]
        lines += [f"## {group}", "", *_table(["promise", "tests"], rows), ""]
    return "\n".join(lines)


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

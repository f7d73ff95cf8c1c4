"""Complete words in a shell: sweeps, runs, grids, profiles, keys and metrics; faults stay silent."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, add_completion_class, get_completion_class

if TYPE_CHECKING:
    from orchestrator.rundir import SweepDir

# More ids of runs would hide the keys.
_MOST_IDS = 20
# Of `compare --by`, beside the grid's keys.
_NO_KEYS = ("threads", "actors", "target", "device", "environments", "hardware", "sweep")
_Words = Iterable[str]
# What a shell would take apart or interpret.
_SPECIAL = re.compile(r"[\s'\"\\$`&|;<>*?()]")


def prepare(program: click.Command) -> None:
    """Give each parameter the words that its metavar stands for, and leave the screen to the answer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    _join_words_of_bash()
    assert isinstance(program, click.Group)
    for command in program.commands.values():
        for param in command.params:
            metavar = (getattr(param, "metavar", None) or "").rstrip(".,…")
            if (words := _WORDS.get(metavar)) is not None:
                param._custom_shell_complete = _quietly(words)


def _quietly(words: Callable[[click.Context, str], _Words]) -> Any:
    """Return click's completion by a function that may fail."""

    def complete(ctx: click.Context, _: click.Parameter, text: str) -> list[CompletionItem]:
        try:
            found = dict.fromkeys(words(ctx, text))
        except Exception:  # of any file of the user's: no words, and no traceback at the prompt
            return []
        return [CompletionItem(word) for word in found if word.startswith(text) and not _SPECIAL.search(word)]

    return complete


def _join_words_of_bash() -> None:
    """Join what bash takes apart at ``=`` and ``:``, and answer with the last part of a word."""
    if (base := get_completion_class("bash")) is None:
        return

    class Bash(base):  # type: ignore[misc,valid-type]
        before = ""

        def get_completion_args(self) -> tuple[list[str], str]:
            words, apart = list[str](), True
            for word in os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]:
                sign = bool(word) and not word.strip("=:")
                if sign or not apart:
                    words[-1] += word
                else:
                    words.append(word)
                apart = not sign
            *others, last = words
            self.before = last[: max(last.rfind("="), last.rfind(":")) + 1]
            return others[1:], last

        def format_completion(self, item: CompletionItem) -> str:
            return str(item.value).removeprefix(self.before)

    add_completion_class(Bash, "bash")


def _folders(ctx: click.Context) -> list[SweepDir]:
    from orchestrator.rundir import SweepDir, sweeps

    results = Path(ctx.params.get("results") or "results")
    # Behind an option without its value click leaves arguments unparsed.
    names = ctx.params.get("sweeps") or [ctx.params.get("sweep") or next(iter(ctx.args), "")]
    return [SweepDir(results, name) for name in names if name] or sweeps(results)


def _sweeps(ctx: click.Context, _: str) -> _Words:
    from orchestrator.rundir import sweeps

    return [sweep.name for sweep in sweeps(Path(ctx.params.get("results") or "results"))]


def _grids(_: click.Context, text: str) -> _Words:
    folder = text[: text.rfind("/") + 1]
    return sorted(f"{folder}{path.relative_to(folder or '.')}" for path in _yaml_files(Path(folder or ".")))


def _yaml_files(folder: Path) -> list[Path]:
    return [*folder.glob("*.yaml"), *folder.glob("[!.]*/*.yaml")]


def _profiles(_: click.Context, text: str) -> _Words:
    from orchestrator.config.profiles import profile_names

    before = text[: text.rfind(",") + 1]
    return [f"{before}{name}" for name in profile_names()]


def _runs(ctx: click.Context, text: str) -> _Words:
    from orchestrator.core.labels import key_columns

    rows = [row for sweep in _folders(ctx) for row in sweep.read_index() if row.in_grid]
    before = text[: text.rfind(",") + 1]
    pairs = [
        f"{before}{key.name}={value}" for key in key_columns([r.point for r in rows]) for value in key.values
    ]
    return [*pairs, *(row.run_id for row in rows if text or len(rows) <= _MOST_IDS)]


def _keys(ctx: click.Context, _: str) -> _Words:
    from orchestrator.core.labels import short_keys, varying_keys

    points = [row.point for sweep in _folders(ctx) for row in sweep.read_index() if row.in_grid]
    return [*short_keys(varying_keys(points)).values(), *_NO_KEYS]


def _changes(ctx: click.Context, _: str) -> _Words:
    """Yield ``key=`` and ``key=value`` of a grid: after the first alone, bash would write a blank."""
    from orchestrator.config.grid.extends import KEYED
    from orchestrator.config.yaml_files.nodes import Entries, Scalar, YamlFile, read_nodes
    from orchestrator.core.types import Resources

    path = ctx.params.get("grid_option") or ctx.params.get("grid") or ctx.args[0]
    root = read_nodes(Path(path).read_text(encoding="utf-8"), YamlFile(path))
    for section in root.entries if isinstance(root, Entries) else ():
        if section.key in KEYED and isinstance(section.node, Entries):
            for entry in section.node.entries:
                yield f"{entry.key}="
                yield f"{entry.key}={entry.node.text if isinstance(entry.node, Scalar) else '[]'}"
        elif section.key in ("name", "trainer"):
            yield f"{section.key}="
    yield from (f"resources.{field.name}=" for field in fields(Resources))


def _metrics(ctx: click.Context, _: str) -> _Words:
    runs = (sweep.run_to_read(row.run_id) for sweep in _folders(ctx) for row in sweep.read_index())
    rows = next((history for run in runs if (history := run.history())), [])
    return sorted({name for row in rows for name in row.metrics})


_WORDS: dict[str, Callable[[click.Context, str], _Words]] = {
    "SWEEP": _sweeps,
    "GRID": _grids,
    "RUN": _runs,
    "[RUN]": _runs,
    "TARGET": _profiles,
    "PROFILE": _profiles,
    "KEY": _keys,
    "KEY=VALUE": _changes,
    "NAME[:min|:max]": _metrics,
}

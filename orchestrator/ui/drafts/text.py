"""Write a draft of a grid as commented YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from orchestrator.config.program.options import SEED_NAMES, Option
from orchestrator.core.secret_detection import looks_secret, secret_in
from orchestrator.core.types import Value

_OUTPUTS = (
    *("log_dir", "logdir", "output_dir", "out_dir", "outdir", "save_dir", "save_path", "results_dir"),
    *("output", "log_path", "output_path", "tensorboard_log", "run_dir", "work_dir", "workdir"),
)
_OWN_KEYS = ("command", "code", "target")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./+~-]*")
_PLAIN = re.compile(
    r"(?!(?:null|true|false|yes|no|on|off|-?\.?(?:nan|inf)|-)$|[.-]*\d)[A-Za-z_./-][\w./-]*", re.IGNORECASE
)
_OFTEN_VARIED = ("lr", "learning_rate", "actor_lr", "policy_lr", "gamma", "batch_size")
_LONGEST_HELP = 90


@dataclass(frozen=True)
class Draft:
    """A grid to write. ``command``: its first items; ``options`` add theirs and their defaults in `base`.

    ``matrix`` and ``zipped``: values by key. ``notes``: comments at the top; ``later``: lines at the end.
    ``title``: what the sweep is named after, in place of its source.
    """

    source: str
    command: Sequence[str]
    options: Sequence[Option] = ()
    matrix: Mapping[str, Value] = field(default_factory=dict)
    zipped: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    resources: Mapping[str, Value] = field(default_factory=dict)
    notes: Sequence[str] = ()
    later: Sequence[str] = ()
    title: str = ""

    @property
    def name(self) -> str:
        """The sweep's name."""
        named = self.title or PurePath(self.source).stem
        return re.sub(r"[^A-Za-z0-9._-]+", "-", named).strip("-._") or "draft"

    @property
    def required(self) -> list[str]:
        """Keys without a value, to be filled in."""
        varied = {**self.matrix, **self.zipped}
        options = [_checked(option) for option in self.options]
        return [one.key for one in options if one.required and not one.left_out and one.key not in varied]


def rendered(draft: Draft) -> str:
    """Return the text of the grid."""
    options = [_checked(option) for option in draft.options]
    passed = [option for option in options if not option.left_out]
    varied = {**draft.matrix, **draft.zipped}
    lines = [f"# Drafted from {draft.source} by `orchestrate init --from`: no program was started."]
    lines += [f"# {_line(note)}" for note in draft.notes]
    lines += [f"name: {scalar(draft.name)}", "trainer: command", "base:"]
    lines += _command(draft.command, [option.items for option in passed if option.items])
    for option in passed:
        if option.key not in (*varied, "seed"):
            lines.append(_base_line(option))
    lines += [
        f"  # {option.key}: left out of command: {_line(option.left_out)}"
        for option in options
        if option.left_out
    ]
    lines += [*_matrix(draft, passed), *_section("zip", draft.zipped)]
    if draft.resources:
        lines.append(f"resources: {_flow(draft.resources)}")
    return "\n".join([*lines, *draft.later]) + "\n"


def _checked(option: Option) -> Option:
    """Rename an option for the seed to `seed`; leave out an option that a grid refuses."""
    key = option.key
    if key.replace("-", "_").rpartition(".")[2] in SEED_NAMES:
        items = tuple(item.replace(f"{{{key}}}", "{seed}") for item in option.items)
        return replace(option, key="seed", items=items, left_out="", required=False)
    if key in _OWN_KEYS or not _KEY.fullmatch(key):
        return replace(option, left_out=option.left_out or "a grid cannot have a key of this name")
    if looks_secret(key) or secret_in(key, option.default):
        return replace(option, left_out="it looks like a secret", default=None)
    if not option.left_out and "${" in json.dumps(option.default):
        return replace(option, left_out=f"its default is {option.default}")
    return option


def _command(first: Iterable[str], groups: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of `command`, with the items of one option on a line."""
    start = ", ".join(map(scalar, first))
    if not groups:
        return [f"  command: [{start}]"]
    return [f"  command: [{start},", *(f"    {', '.join(map(scalar, items))}," for items in groups), "  ]"]


def _base_line(option: Option) -> str:
    told = "; ".join(part for part in (option.type.strip("?"), option.help) if part)
    tail = option.key.replace("-", "_").rpartition(".")[2]
    if tail in _OUTPUTS:
        told = f"output folder: a relative one lies in the run's own folder; {told}".removesuffix("; ")
    if option.required:
        return f"  # {option.key}: …  # required: {_line(told)}".rstrip(": ")
    line = f"  {option.key}: {scalar(option.default)}"
    return f"{line}  # {_line(told)}" if told else line


def _matrix(draft: Draft, passed: Sequence[Option]) -> list[str]:
    matrix = dict(draft.matrix)
    if "seed" not in {*matrix, *draft.zipped} and any("{seed}" in "".join(one.items) for one in passed):
        matrix["seed"] = "range(3)"
    lines = [
        f"  {key}: {values if isinstance(values, str) else scalar(values)}" for key, values in matrix.items()
    ]
    numbers = {
        one.key: one.default
        for one in passed
        if isinstance(one.default, int | float) and not isinstance(one.default, bool) and one.key != "seed"
    }
    often = (key for key in numbers if key.replace("-", "_").rpartition(".")[2] in _OFTEN_VARIED)
    if not draft.matrix and not draft.zipped and (key := next(often, next(iter(numbers), None))) is not None:
        value = numbers[key]
        other = 1 - (1 - value) / 10 if 0.5 < value < 1 else value * 10  # a discount stays below 1
        lines.append(f"  # {key}: [{value}, {other:.6g}]  # to vary a key, move it here from base")
    return ["matrix:", *lines] if matrix else [f"#{line}" for line in ["matrix:", *lines]] if lines else []


def _section(name: str, values: Mapping[str, Sequence[Value]]) -> list[str]:
    return [f"{name}:", *(f"  {key}: {scalar(list(one))}" for key, one in values.items())] if values else []


def _flow(values: Mapping[str, Value]) -> str:
    return f"{{{', '.join(f'{key}: {scalar(value)}' for key, value in values.items())}}}"


def scalar(value: Value) -> str:
    """Return a value as YAML on one line: a text plain where it stays a text."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(scalar, value))}]"
    return json.dumps(value, ensure_ascii=True)


def _line(text: str) -> str:
    """Return a text as one line of a comment."""
    line = "".join(one if one.isprintable() else " " for one in " ".join(text.split()))
    return line if len(line) <= _LONGEST_HELP * 2 else line[: _LONGEST_HELP * 2] + "…"

"""Parse the section ``resources``, in Slurm's names and syntax, and find the resources of each run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from orchestrator.config.grid.model import Formula, ResourceRequest, bare_key
from orchestrator.config.trainers import TrainerSpec
from orchestrator.config.yaml_files.nodes import (
    Entries,
    KeyNode,
    Node,
    Position,
    Scalar,
    YamlFile,
    did_you_mean,
    shown,
)
from orchestrator.core.types import Resources, Run, Value
from orchestrator.core.units import ALL_MEMORY, MEMORY_SYNTAX, TIME_SYNTAX, megabytes, memory, seconds

# Descriptions of its keys, in Markdown, for the reference.
RESOURCES: Mapping[str, str] = {
    "cpus_per_task": (
        'cores of one run: a number, or sums and products of the run\'s keys, as in `"{actors} + 1"`. By '
        "default as many as the trainer says, one for each of the run's `threads`, and never fewer"
    ),
    "gpus": ("GPUs of one run: a number, or of its keys as above. Of which type they are is the profile's"),
    "mem": f'memory of one run: {MEMORY_SYNTAX}; a key may stand in it: `"{{actors}}G"`',
    "nodes": (
        "machines of one run, 1 by default; its cores, GPUs and memory are those of each. The trainer has to "
        "be one for several, as `command` is, and the target a cluster: see [several "
        "nodes](../run-protocol.md#several-nodes)"
    ),
    "time": f"how long one run may take: {TIME_SYNTAX}; a key may stand in it",
}
# More than any machine has; sums and products of it stay in range.
_MOST = 999_999_999
_NAMES = tuple(field.name for field in fields(Resources))
_KEY = re.compile(r"\{([^{}\s]+)\}")
_FACTOR = rf"\s*(?:{_KEY.pattern}|\d{{1,9}})\s*"
_SUM = re.compile(rf"{_FACTOR}(?:[+*]{_FACTOR})*")
_IN_QUOTES = 'keys of the run stand in braces and quotes, and + and * between them: "{actors} + 1"'


def by_other_name(called: Mapping[str, str]) -> dict[str, str]:
    """Map each other name of a key to the key; ``called`` has the other names of each, as words."""
    return {name: key for key, names in called.items() for name in names.split()}


# Other names for Slurm's keys.
OTHER_NAMES = by_other_name(
    {
        "cpus_per_task": "cpu cpus ncpus n_cpus num_cpus cores core threads workers",
        "gpus": "gpu ngpus n_gpus num_gpus gres accelerators",
        "mem": "memory mem_gb mem_per_cpu ram",
        "nodes": "node nnodes n_nodes num_nodes machines hosts",
        "time": "timeout time_limit walltime hours minutes",
    }
)


def read_resources(
    node: Node | None, max_threads: int, trainer: TrainerSpec, source: YamlFile
) -> ResourceRequest:
    """Parse the resources of one run."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return ResourceRequest({})
    if not isinstance(node, Entries):
        raise source.unexpected("resources", node, "a mapping such as {mem: 4G}")
    stated: dict[str, Value] = {}
    formulas = []
    for entry in node.entries:
        if (formula := _formula(entry, source)) is not None:
            formulas.append(formula)
        else:
            stated[entry.key] = _resource(entry, max_threads, source)
            if entry.key == "nodes":
                _require_nodes(stated["nodes"], entry.node.at, trainer, source)
    return ResourceRequest(stated, tuple(formulas))


def resources_of(run: Run, asked: ResourceRequest, trainer: TrainerSpec, source: YamlFile) -> Resources:
    """Return the resources of a run: those asked for, else the trainer's; one core per thread or more.

    Raises :class:`PlacedError` if a formula does not fit the run.
    """
    own = {formula.name: _evaluated(formula, run, source) for formula in asked.formulas}
    for formula in asked.formulas:
        if formula.name == "nodes":
            _require_nodes(own["nodes"], formula.at, trainer, source)
    named: dict[str, Any] = {**asked.stated, **own}
    occupied = replace(trainer.resources_of(run, named.get("nodes", 1)), **named)
    return replace(occupied, cpus_per_task=max(occupied.cpus_per_task, run.threads))


def _require_nodes(nodes: int, at: Position, trainer: TrainerSpec, source: YamlFile) -> None:
    """Refuse a number of nodes on which the trainer can train no run."""
    if nodes < 1:
        raise source.error(at, f"resources.nodes: found {nodes}, expected a whole number from 1")
    if nodes > 1 and not trainer.several_nodes:
        raise source.error(
            at,
            f"resources.nodes: found {nodes}, and the trainer {trainer.name} trains on one node",
            "remove nodes, or train with a program of your own for several: trainer: command",
        )


def largest(many: Iterable[Resources]) -> Resources:
    """Return the largest amount of each resource; ``None`` counts as the least."""
    needs = list(many)

    def most(amounts: Iterable[str | None], size: Callable[[str], float]) -> str | None:
        return max((amount for amount in amounts if amount is not None), key=size, default=None)

    return Resources(
        max((amounts.cpus_per_task for amounts in needs), default=1),
        max((amounts.gpus for amounts in needs), default=0),
        most((amounts.mem for amounts in needs), megabytes),
        most((amounts.time for amounts in needs), seconds),
        max((amounts.nodes for amounts in needs), default=1),
    )


def read_memory(key: str, node: Node, source: YamlFile) -> str:
    """Parse an amount of memory in Slurm's syntax; return it in capitals, without a B behind the unit."""
    text = _written(node).upper()
    try:
        amount = megabytes(text)
    except ValueError:
        raise source.unexpected(key, node, MEMORY_SYNTAX, "4G is 4 gigabytes") from None
    return memory(amount) if amount == ALL_MEMORY else text.removesuffix("B").removesuffix("I")


def read_time(key: str, node: Node, source: YamlFile) -> str:
    """Parse a time limit in Slurm's syntax; return it as written."""
    text = _written(node)
    try:
        seconds(text)
    except ValueError:
        raise source.unexpected(key, node, TIME_SYNTAX, '"2:00:00" is two hours') from None
    return text


def _written(node: Node) -> str:
    """Return a number without YAML's underscores (``24_000``), and text unchanged."""
    value = node.value if isinstance(node, Scalar) else None
    return str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""


def _formula(entry: KeyNode, source: YamlFile) -> Formula | None:
    """Return a resource with keys of the run in braces; ``None`` for all else."""
    text = entry.node.value if isinstance(entry.node, Scalar) else None
    if entry.key not in _NAMES or not isinstance(text, str) or not _KEY.search(text):
        return None
    if "${" in text:
        raise source.error(
            entry.node.at,
            f"resources.{entry.key}: found {shown(text)}, and keys of the run stand in braces without a $",
            f"write {shown(text.replace('${', '{'))}",
        )
    is_amount = entry.key in ("mem", "time") or _SUM.fullmatch(text)
    return Formula(entry.key, text, entry.node.at) if is_amount else None


def _evaluated(formula: Formula, run: Run, source: YamlFile) -> Value:
    """Return the value of a formula for a run."""
    key, values = f"resources.{formula.name}", _values(formula, run, source)
    if formula.name in ("mem", "time"):
        text = _KEY.sub(lambda match: str(values[match[1]]), formula.text)
        read = read_memory if formula.name == "mem" else read_time
        return read(key, Scalar(text, False, formula.at, text), source)
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise source.error(
                formula.at, f"{key}: found {name}: {shown(value)}, expected a whole number in every run"
            )
    sums = formula.text.split("+")
    amount = sum(math.prod(_factor(factor, values) for factor in part.split("*")) for part in sums)
    return min(amount, _MOST)


def _factor(text: str, values: Mapping[str, Value]) -> int:
    key = _KEY.search(text)
    return int(values[key[1]] if key else text)


def _values(formula: Formula, run: Run, source: YamlFile) -> dict[str, Value]:
    """Return the run's values of the keys in a formula."""
    known = {bare_key(key): value for key, value in run.overrides.items()}
    known |= {"seed": run.seed, "threads": run.threads}
    names = _KEY.findall(formula.text)
    for name in names:
        if name not in known:
            raise source.error(
                formula.at,
                f"resources.{formula.name}: found {{{name}}}, and a run without that key",
                did_you_mean(name, known, otherwise=f"give every run a value, as in base: {{{name}: 1}}"),
            )
    return {name: known[name] for name in names}


def _resource(entry: KeyNode, max_threads: int, source: YamlFile) -> Value:
    if entry.key not in _NAMES:
        raise source.error(
            entry.at,
            f"resources: found {entry.key!r}, expected one of: {', '.join(_NAMES)}",
            did_you_mean(entry.key, _NAMES, OTHER_NAMES),
        )
    key = f"resources.{entry.key}"
    if entry.key == "mem":
        return read_memory(key, entry.node, source)
    if entry.key == "time":
        return read_time(key, entry.node, source)
    hint = None if isinstance(entry.node, Scalar) and not _has_key(entry.node) else _IN_QUOTES
    if entry.key == "nodes":
        return read_count(key, entry.node, 1, source, hint)
    if entry.key == "gpus":
        return read_count(key, entry.node, 0, source, hint or "a GPU's type belongs in the target's profile")
    return read_count(
        key, entry.node, max_threads, source, hint or "every thread of a run needs a core of its own"
    )


def _has_key(node: Scalar) -> bool:
    return isinstance(node.value, str) and "{" in node.value


def read_count(key: str, node: Node, least: int, source: YamlFile, hint: str | None = None) -> int:
    """Parse a whole number, ``least`` or more."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST:
        return value
    expected = f"a whole number from {least}"
    if isinstance(value, int) and value > _MOST:
        expected += f" to {_MOST:,}"
    raise source.unexpected(key, node, expected, hint)

"""The section ``resources``: Slurm's names and Slurm's syntax."""

from __future__ import annotations

import difflib
import re
from dataclasses import fields

from orchestrator.grid.nodes import Entries, Entry, Node, Scalar, Source, kind
from orchestrator.types import Resources, Value

_MEMORY = re.compile(r"[1-9][0-9]*[KMGT]?")
# minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds
_TIME = re.compile(r"[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}")
_NAMES = tuple(field.name for field in fields(Resources))
# What people write, and what Slurm calls it.
_OTHER_NAMES = {
    "cpus": "cpus_per_task",
    "cores": "cpus_per_task",
    "gpu": "gpus",
    "memory": "mem",
    "ram": "mem",
    "timeout": "time",
    "walltime": "time",
}


def read_resources(node: Node | None, max_threads: int, source: Source) -> Resources:
    """What one run needs. A run gets a core for each of its threads unless the grid gives it more."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return Resources(cpus_per_task=max_threads)
    if not isinstance(node, Entries):
        raise source.error(node.at, f"resources: found {kind(node)}, expected a mapping such as {{mem: 4G}}")
    values: dict[str, Value] = {"cpus_per_task": max_threads}
    for entry in node.entries:
        values[entry.key] = _resource(entry, max_threads, source)
    return Resources(**values)


def _resource(entry: Entry, max_threads: int, source: Source) -> Value:
    if entry.key not in _NAMES:
        near = _OTHER_NAMES.get(entry.key) or next(
            iter(difflib.get_close_matches(entry.key, _NAMES, 1)), None
        )
        raise source.error(
            entry.at,
            f"resources: found {entry.key!r}, expected one of: {', '.join(_NAMES)}",
            f"did you mean {near}?" if near else None,
        )
    value = entry.node.value if isinstance(entry.node, Scalar) else None
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if entry.key == "mem":
        if _MEMORY.fullmatch(text.upper()):
            return text.upper()
        expected, hint = "megabytes, or a whole number and K, M, G or T", "4G is 4 gigabytes"
    elif entry.key == "time":
        if _TIME.fullmatch(text) and re.search("[1-9]", text):
            return text
        expected, hint = (
            "minutes, [hours:]minutes:seconds or days-hours[:minutes[:seconds]]",
            '"2:00:00" is two hours',
        )
    elif entry.key == "gpus":
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        expected, hint = "a whole number from 0", "a GPU's type belongs in the target's profile"
    else:
        if isinstance(value, int) and not isinstance(value, bool) and value >= max_threads:
            return value
        expected, hint = f"a whole number from {max_threads}", "every thread of a run needs a core of its own"
    raise source.error(
        entry.node.at, f"resources.{entry.key}: found {kind(entry.node)}, expected {expected}", hint
    )

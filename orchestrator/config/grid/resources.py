"""Parse the section ``resources``, in Slurm's names and syntax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from orchestrator.config.grid.yaml_nodes import Entries, KeyNode, Node, Scalar, YamlFile, did_you_mean
from orchestrator.core.types import Resources, Value
from orchestrator.core.units import MEMORY_SYNTAX, TIME_SYNTAX, megabytes, seconds

# Descriptions of its keys, in Markdown, for the reference.
RESOURCES: Mapping[str, str] = {
    "cpus_per_task": "cores of one run; the largest `threads` of the grid by default, and never less",
    "gpus": "GPUs of one run: a number. Of which type they are is the profile's",
    "mem": f"memory of one run: {MEMORY_SYNTAX}",
    "time": f"how long one run may take: {TIME_SYNTAX}",
}
# More than any machine has; sums and products of it stay in range.
_MOST = 999_999_999
_NAMES = tuple(field.name for field in fields(Resources))


def by_other_name(called: Mapping[str, str]) -> dict[str, str]:
    """Map each other name of a key to the key; ``called`` has the other names of each, as words."""
    return {name: key for key, names in called.items() for name in names.split()}


# Other names for Slurm's keys.
OTHER_NAMES = by_other_name(
    {
        "cpus_per_task": "cpu cpus ncpus n_cpus num_cpus cores core threads workers",
        "gpus": "gpu ngpus n_gpus num_gpus gres accelerators",
        "mem": "memory mem_gb mem_per_cpu ram",
        "time": "timeout time_limit walltime hours minutes",
    }
)


def read_resources(node: Node | None, max_threads: int, source: YamlFile) -> Resources:
    """Parse the resources of one run. By default it gets one core for each of its threads."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return Resources(cpus_per_task=max_threads)
    if not isinstance(node, Entries):
        raise source.unexpected("resources", node, "a mapping such as {mem: 4G}")
    values: dict[str, Value] = {"cpus_per_task": max_threads}
    for entry in node.entries:
        values[entry.key] = _resource(entry, max_threads, source)
    return Resources(**values)


def read_memory(key: str, node: Node, source: YamlFile) -> str:
    """Parse an amount of memory in Slurm's syntax; return it in capitals."""
    text = _written(node).upper()
    try:
        megabytes(text)
    except ValueError:
        raise source.unexpected(key, node, MEMORY_SYNTAX, "4G is 4 gigabytes") from None
    return text


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
    if entry.key == "gpus":
        return read_count(key, entry.node, 0, source, "a GPU's type belongs in the target's profile")
    return read_count(key, entry.node, max_threads, source, "every thread of a run needs a core of its own")


def read_count(key: str, node: Node, least: int, source: YamlFile, hint: str | None = None) -> int:
    """Parse a whole number, ``least`` or more."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST:
        return value
    expected = f"a whole number from {least}"
    if isinstance(value, int) and value > _MOST:
        expected += f" to {_MOST:,}"
    raise source.unexpected(key, node, expected, hint)

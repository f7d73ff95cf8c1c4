"""Keys of runs: which of them change with another one."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis.cells import text
from orchestrator.analysis.run_table import RunRow

HARDWARE, TARGET, SWEEP = "hardware", "target", "sweep"


def follows(rows: Sequence[RunRow], other: str, *keys: str) -> bool:
    """Return whether ``other`` has one value for each combination of values of ``keys``."""
    seen: dict[tuple[str, ...], str] = {}
    told = ((tuple(text(row[key]) for key in keys), text(row[other])) for row in rows)
    return all(seen.setdefault(values, value) == value for values, value in told)


def changes_with(rows: Sequence[RunRow], keys: Sequence[str], key: str) -> tuple[str, ...]:
    """Return the other keys that have one value for each value of ``key``, in each task and algorithm.

    The task is none of them: tasks are never compared but by task. With a target these are only keys with one
    value in a sweep, as targets share a sweep's runs by chance.
    """
    changing = []
    for other in dict.fromkeys((*keys, SWEEP)):
        if other in (key, "seed", "task"):
            continue
        within = [name for name in _WITHIN if name in keys and name not in (key, other)]
        changes = follows(rows, other, *within, key) and not follows(rows, other, *within)
        if changes and (key != TARGET or follows(rows, other, *within, SWEEP)):
            changing.append(other)
    return tuple(changing)


# Other keys may have a value for each of these, as a number of frames for each task.
_WITHIN = ("task", "algorithm")

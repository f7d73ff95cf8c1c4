"""Find points of a grid that are runs of its earlier versions under another id.

Such a run differs in labels alone, or its point lacks keys to which the grid now gives the values that the
run was trained with, as its result records them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from orchestrator.config.grid.model import bare_key, same_value
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import Run, Value
from orchestrator.rundir import IndexRow, SweepDir

_Point = Mapping[str, Value]


def former_points(runs: Mapping[str, Run], labels: Collection[str], sweep_dir: SweepDir) -> dict[str, _Point]:
    """Return the points of former runs, by the ids that these runs have today.

    Each is one run's at most. Of unfinished runs only those in the latest grid count, and only labels may
    differ.
    """
    try:
        index = sweep_dir.read_index()
    except DamagedFileError:
        return {}
    known = {row.run_id for row in index}
    new = [run for run in runs.values() if run.run_id not in known]
    left = sorted((row for row in index if row.run_id not in runs), key=lambda row: not row.in_grid)
    if not new or not left:
        return {}
    by_keys: dict[frozenset[str], dict[str, IndexRow]] = {}
    for row in left:
        keys = frozenset(row.point).difference(labels)
        by_keys.setdefault(keys, {}).setdefault(_spelled(row.point, keys), row)
    found: dict[str, _Point] = {}
    taken: set[str] = set()
    for run in new:
        point = run.point
        for keys, rows in by_keys.items():
            candidate = rows.get(_spelled(point, keys)) if keys <= point.keys() else None
            more = {key: value for key, value in point.items() if key not in keys}
            if candidate is None or candidate.run_id in taken:
                continue
            if _is_of(sweep_dir, candidate, more):
                taken.add(candidate.run_id)
                found[run.run_id] = candidate.point
                break
    return found


def _is_of(sweep_dir: SweepDir, row: IndexRow, more: _Point) -> bool:
    """Return whether the run counts, and was trained with these values of keys that its point lacks."""
    run_dir = sweep_dir.run_to_read(row.run_id)
    if not more:
        return row.in_grid or run_dir.has_result()
    try:
        result = run_dir.result() if run_dir.has_result() else None
    except (DamagedFileError, OSError):
        return False
    config = None if result is None else result.fields.get("config")
    return all(
        same_value(_value(config, bare_key(name))) == same_value(value) for name, value in more.items()
    )


def _value(config: Any, key: str) -> Any:
    """Return the value of a dotted key in a composed configuration; ``_NONE`` without one."""
    if isinstance(config, Mapping) and key in config:
        return config[key]
    for part in key.split("."):
        if not isinstance(config, Mapping) or part not in config:
            return _NONE
        config = config[part]
    return config


# What no grid has as a value.
_NONE = "\0"


def _spelled(point: _Point, keys: Collection[str]) -> str:
    return json.dumps({key: same_value(point[key]) for key in sorted(keys)})

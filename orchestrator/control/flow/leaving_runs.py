"""Find finished runs that a changed grid no longer has, and the keys in which they differ from its points."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.config.grid.model import bare_key, same_value
from orchestrator.config.yaml_files.nodes import Entries, YamlFile, read_nodes
from orchestrator.control.reuse.reuse import find_reuse
from orchestrator.control.submit import unbegun
from orchestrator.core.errors import DamagedFileError, PlacedError
from orchestrator.core.formatting import count, listed
from orchestrator.core.types import Sweep
from orchestrator.rundir import IndexRow, SweepDir
from orchestrator.rundir.copy_origin import read_copy

_MOST_NAMED = 4
_ABSENT = "absent"


@dataclass(frozen=True)
class LeavingRuns:
    """Finished runs of the latest grid that a new one lacks. ``number``: how many.

    ``keys``: those in which all of them differ from every point, if they differ in nothing else; each with
    its section, if that is known, and its values before and now.
    """

    number: int
    keys: Mapping[str, tuple[str, str, str]]

    def __str__(self) -> str:
        leave = f"{count(self.number, 'finished run')} {'leaves' if self.number == 1 else 'leave'} the grid"
        if not self.keys:
            return f"{leave}: no point has their keys and values"
        sections = ", ".join(dict.fromkeys(section for section, _, _ in self.keys.values() if section))
        names = listed([f"`{key}`" for key in self.keys], _MOST_NAMED)
        return f"{leave}: only {names} differ{'s' * (len(self.keys) == 1)}{f' ({sections})' * bool(sections)}"

    @property
    def hint(self) -> str:
        """How to keep them in the grid."""
        parts = [f"{key} was {before}, is {now}" for key, (_, before, now) in self.keys.items()]
        told = f"{listed(parts, _MOST_NAMED)}; " if parts else ""
        notes = "; a note that changes no result belongs under labels:"
        in_base = any(section == "base" for section, _, _ in self.keys.values())
        return f"{told}restore the former values to keep them{notes * in_base}"


def leaving_runs(sweep: Sweep, sweep_dir: SweepDir) -> LeavingRuns | None:
    """Return the finished runs of the latest grid that this sweep does not need; ``None`` without any.

    A copied sweep has none: nothing is submitted there.
    """
    if read_copy(sweep_dir.path) is not None:
        return None
    gone: list[IndexRow] = []
    with contextlib.suppress(DamagedFileError):
        gone = [
            row
            for row in sweep_dir.read_index()
            if row.in_grid
            and row.run_id not in sweep.points
            and sweep_dir.run_to_read(row.run_id).has_result()
        ]
    if gone:  # those that longer runs go on from are wanted as they are
        prefixes = find_reuse(sweep, sweep_dir, unbegun(sweep, sweep_dir).told).prefixes
        begun = prefixes.elsewhere.union(one.run.run_id for one in prefixes.found.values())
        gone = [row for row in gone if row.run_id not in begun]
    if not gone:
        return None
    former = sweep_dir.latest_grid()
    sections = {**_sections(former[1] if former else ""), **_sections(sweep.grid_text)}
    return LeavingRuns(len(gone), _differing([row.point for row in gone], [*sweep.points.values()], sections))


def _sections(grid_text: str) -> dict[str, str]:
    """Return the section of each key in a grid's `base` and `matrix`; none of a text that is no grid."""
    try:
        grid = read_nodes(grid_text, YamlFile("grid"))
    except PlacedError:
        return {}
    return {
        bare_key(entry.key): part.key
        for part in (grid.entries if isinstance(grid, Entries) else ())
        if part.key in ("base", "matrix") and isinstance(part.node, Entries)
        for entry in part.node.entries
    }


def _differing(
    gone: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], sections: Mapping[str, str]
) -> dict[str, tuple[str, str, str]]:
    """Return the keys of which the runs share no value with the points; none if that is not all."""
    found = {}
    for key in dict.fromkeys(key for point in (*gone, *points) for key in point):
        before, now = list(_values(key, gone)), list(_values(key, points))
        if set(before).isdisjoint(now):
            found[key] = (
                sections.get(bare_key(key), ""),
                listed(before, _MOST_NAMED),
                listed(now, _MOST_NAMED),
            )
    rest = {_without(found, point) for point in points}
    return found if all(_without(found, point) in rest for point in gone) else {}


def _values(key: str, points: Iterable[Mapping[str, Any]]) -> dict[str, None]:
    return dict.fromkeys(same_value(point[key]) if key in point else _ABSENT for point in points)


def _without(keys: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    return json.dumps({key: same_value(point[key]) for key in sorted(point) if key not in keys})

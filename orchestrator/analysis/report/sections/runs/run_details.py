"""Details of single runs: configuration that differs, the end of the log, the command to train it again."""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.analysis import cells
from orchestrator.analysis.run_table import RunRow
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.hydra_text import NoSpellingError, hydra_text
from orchestrator.core.labels import Point
from orchestrator.core.types import RunState
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.rundir.files.plain_files import open_plain

# Bytes of a log's end, of all logs and of all else together, and differing keys of a run: what a page has
# room for.
_TAIL = 1200

_ALL_TAILS = 250_000

_ALL_ELSE = 350_000

_MOST_KEYS = 30

_NOT_OF_GRID = ("seed", "target")


def run_details(
    sweep_dirs: Sequence[SweepDir],
    rows: Sequence[RunRow],
    points: Mapping[tuple[str, str], Point],
) -> str:
    """Return the details of these rows as JSON, in their order. Safe inside a script element of a page.

    A run without a result has no ``composed`` configuration: what differs are then keys of its grid. Those
    for which there is no room have only their name.
    """
    folders = {sweep.name: sweep for sweep in sweep_dirs}
    runs = [
        folders[row["sweep"]].run_to_read(row["run_id"]) if row["sweep"] in folders else None for row in rows
    ]
    told_points = [points.get((row["sweep"], row["run_id"]), {}) for row in rows]
    composed = [{} if run is None else _configuration(run) for run in runs]
    differing, of_grid = _differing(composed), _differing([_keys(point) for point in told_points])
    tails = _tails(rows, runs)
    told = [
        {
            "name": f"{row['sweep']} {row['run_id']}",
            "again": _again(row, told_points[at]),
            "composed": bool(composed[at]),
            "differs": differing[at] if composed[at] else of_grid[at],
            "log": tails.get(at, ""),
        }
        for at, row in enumerate(rows)
    ]
    return cells.safe_json(_with_room(told, _order(rows)))


def _order(rows: Sequence[RunRow]) -> list[int]:
    """Return the places of runs without a result, then those of the others."""
    return sorted(range(len(rows)), key=lambda at: rows[at]["state"] == RunState.DONE.value)


def _with_room(told: Sequence[Mapping[str, Any]], order: Sequence[int]) -> list[Mapping[str, Any]]:
    """Leave of each run that comes after the room is full its name alone; logs have a room of their own."""
    room, kept = _ALL_ELSE, list(told)
    for at in order:
        room -= _size({**told[at], "log": ""})
        if room < 0:
            kept[at] = {"name": told[at]["name"], "left_out": True}
    return kept


def _size(value: Any) -> int:
    return len(cells.safe_json(value).encode())


def _again(row: RunRow, point: Point) -> str:
    """Return the command that trains the run once more, beside the sweep; empty if none can say it.

    None starts from another run, as forks do.
    """
    if point.keys() & {"fork", "init"}:
        return ""
    try:
        words = [
            key if key.startswith("~") and value is None else f"{key}={hydra_text(value)}"
            for key, value in point.items()
            if key not in _NOT_OF_GRID
        ]
    except NoSpellingError:
        return ""
    if "seed" in point:
        words.append(f"seed={point['seed']}")
    end_of_options = ["--"] if any(word.startswith("-") for word in words) else []
    command = ["python", "-m", "jobs.train", "--sweep", "again", *end_of_options, str(row["trainer"])]
    return shlex.join([*command, *words])


def _configuration(run: RunDir) -> dict[str, str]:
    """Return the composed configuration of a finished run, key by key as text."""
    try:
        result = run.result()
    except (DamagedFileError, OSError):
        return {}
    config = result.fields.get("config") if result else None
    return dict(_flat(config, "")) if isinstance(config, Mapping) else {}


def _keys(point: Point) -> dict[str, str]:
    """Return the grid's keys of a run as text, without those by which repeats differ."""
    return {key: text for key, text in _flat(point, "") if key and key not in _NOT_OF_GRID}


def _flat(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _differing(configurations: Sequence[Mapping[str, str]]) -> list[list[tuple[str, str, str]]]:
    """Return each run's keys with another value than most runs: key, value, and the value of most."""
    values: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for own in configurations:
        for key, value in own.items():
            values[key][value] += 1
    usual = {key: counted.most_common(1)[0][0] for key, counted in values.items() if len(counted) > 1}
    return [
        [(key, own[key], most) for key, most in usual.items() if key in own and own[key] != most][:_MOST_KEYS]
        for own in configurations
    ]


def _tails(rows: Sequence[RunRow], runs: Sequence[RunDir | None]) -> dict[int, str]:
    """Return the ends of logs by the row's place: of runs without a result first, until there is no room."""
    tails: dict[int, str] = {}
    room = _ALL_TAILS
    for at in _order(rows):
        run = runs[at]
        if room <= 0 or run is None:
            continue
        if tail := _tail(run):
            tails[at] = tail
            room -= _size(tail)
    return tails


def _tail(run: RunDir) -> str:
    try:
        attempts = run.attempts()
        if not attempts:
            return ""
        with open_plain(attempts[-1].log) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            text = file.read().decode(errors="replace")
    except (OSError, DamagedFileError):
        return ""
    lines = text.splitlines()
    return "\n".join(lines[1:] if size > _TAIL and len(lines) > 1 else lines)

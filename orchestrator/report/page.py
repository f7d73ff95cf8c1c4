"""The report's content: tables and groups in, one HTML page out."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from itertools import islice
from statistics import median
from typing import Any

from jinja2 import Environment, StrictUndefined

from orchestrator.collect import Collected, Missing
from orchestrator.labels import shared_keys, short_keys, varying_keys
from orchestrator.report.figures import (
    Picture,
    final_pictures,
    learning_pictures,
    speed_pictures,
    target_pictures,
)
from orchestrator.report.money import money_of
from orchestrator.report.targets import Comparison, comparisons
from orchestrator.rundir import SweepDir
from orchestrator.stats import Final, curves, final_returns, groups
from orchestrator.summary import Speed, speeds, warnings
from orchestrator.types import RunState

# A browser sorts and filters this many rows at once without a pause; the rest is in results.csv.
_MOST_ROWS = 2000
_MOST_MISSING = 200
# Beyond this nobody looks at them; the tables hold everything.
_MOST_DRAWN = 120
_MOST_PICTURES = 12

_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Page:
    """The finished page, and its pictures for the folder."""

    html: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class _Cell:
    """A table cell: what is shown, what it sorts by, and what a pointer held over it shows."""

    text: str
    sort: str | float = ""
    title: str = ""


@dataclass(frozen=True)
class _Column:
    name: str
    numeric: bool = False


def build(sweep_dirs: Sequence[SweepDir], collected: Collected, generated: str) -> Page:
    found = groups(collected)
    finals, measured = final_returns(found), speeds(found)
    compared = comparisons(sweep_dirs, collected)
    sections = {
        "learning": _first(learning_pictures(curves(collected, found[:_MOST_DRAWN]))),
        "final": _first(final_pictures(finals[:_MOST_DRAWN])),
        "speed": _first(speed_pictures(measured[:_MOST_DRAWN])),
        "targets": _first(target_pictures(compared)),
    }
    rows = list(collected.runs.iter_rows(named=True))
    html = _template().render(
        title=", ".join(sweep.name for sweep in sweep_dirs),
        generated=generated,
        counts=_counts(rows),
        outside=sum(not row["in_grid"] for row in rows),
        trained=_period(rows),
        warnings=[*warnings(finals), *collected.warnings],
        problems=collected.problems,
        groups=_group_table(finals, measured),
        pictures=sections,
        many=len(found) > _MOST_DRAWN or any(len(part) == _MOST_PICTURES for part in sections.values()),
        speeds=_speed_table(measured),
        compared=compared,
        targets=_target_table(compared),
        money=money_of(sweep_dirs),
        missing=[_missing(item, _shared(rows, collected.keys)) for item in collected.missing[:_MOST_MISSING]],
        missing_left_out=max(0, len(collected.missing) - _MOST_MISSING),
        runs=_runs_table(rows[:_MOST_ROWS], collected.keys, several=len(sweep_dirs) > 1),
        runs_left_out=max(0, len(rows) - _MOST_ROWS),
        shared=_point(_shared(rows, collected.keys)),
        provenance=_provenance(rows),
        grids=[(sweep.name, grid) for sweep in sweep_dirs if (grid := sweep.latest_grid()) is not None],
    )
    return Page(html, tuple(picture for pictures in sections.values() for picture in pictures))


def pictures_of(collected: Collected, kind: str) -> list[Picture]:
    """The page's pictures of one kind: ``learning``, ``final`` or ``speed``."""
    found = groups(collected)[:_MOST_DRAWN]
    if kind == "learning":
        return _first(learning_pictures(curves(collected, found)))
    if kind == "final":
        return _first(final_pictures(final_returns(found)))
    assert kind == "speed"
    return _first(speed_pictures(speeds(found)))


def _template() -> Any:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["data_uri"] = _data_uri
    return environment.from_string(files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8"))


def _first(pictures: Iterator[Picture]) -> list[Picture]:
    return list(islice(pictures, _MOST_PICTURES))


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


# The head


def _counts(rows: Sequence[_Row]) -> list[tuple[str, int]]:
    counted = Counter(row["state"] for row in rows if row["in_grid"])
    return [(state.value, counted[state.value]) for state in RunState if counted[state.value]]


def _period(rows: Sequence[_Row]) -> str:
    started = [row["started"] for row in rows if row["started"] is not None]
    ended = [row["ended"] for row in rows if row["ended"] is not None]
    if not started or not ended:
        return ""
    first, last = (datetime.fromtimestamp(time, UTC) for time in (min(started), max(ended)))
    end = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
    return f"{first:%Y-%m-%d %H:%M} to {end} UTC"


# Tables


def _group_table(finals: Sequence[Final], measured: Sequence[Speed]) -> list[list[_Cell]]:
    rows = []
    for final in finals:
        group = final.group
        own = [speed for speed in measured if speed.group is group and speed.fps]
        states = ", ".join(f"{count} {state}" for state, count in group.states.items())
        interval = "" if final.estimate is None else str(final.estimate)
        rows.append(
            [
                _Cell(group.label),
                _number(len(final.values)),
                _Cell(states),
                _Cell(interval or "–", final.estimate.value if final.estimate else ""),
                _number(_middle([value for speed in own for value in speed.fps])),
                _Cell(final.note),
            ]
        )
    return rows


def _speed_table(measured: Sequence[Speed]) -> list[list[_Cell]]:
    rows = []
    for speed in measured:
        if not speed.fps:
            continue
        low, high = min(speed.fps), max(speed.fps)
        spread = f"{_shown(low)} – {_shown(high)}" if len(speed.fps) > 1 else "–"
        parts = speed.split()
        whole = speed.seconds_per_iteration
        rows.append(
            [
                _Cell(speed.group.label),
                _Cell(speed.hardware),
                _number(len(speed.fps)),
                _number(median(speed.fps)),
                _Cell(spread, low),
                _number(whole),
                *(_Cell(f"{part / whole:.0%}" if whole else "–", part) for part in parts),
            ]
        )
    return rows


def _target_table(compared: Sequence[Comparison]) -> list[list[_Cell]]:
    return [
        [
            _Cell(bar.label),
            _Cell(bar.target),
            _number(len(bar.runs)),
            *(_Cell("–" if one is None else str(one)) for one in (bar.fps, bar.seconds, bar.dollars)),
        ]
        for comparison in compared
        for bar in comparison.bars
    ]


def _missing(item: Missing, shared: Mapping[str, Any]) -> dict[str, str]:
    """A run of the grid without a usable result, why, and what to type."""
    state = item.why.partition(":")[0]
    name = f"{item.sweep} {item.run_id}"
    commands = {
        "failed": f"orchestrate logs {name}\norchestrate retry {name}",
        "cancelled": f"orchestrate retry {name}",
        "stale": f"orchestrate retry {name}",
        "unknown": f"orchestrate logs {name}",
        "running": f"orchestrate logs {name} -f",
        "stalled": f"orchestrate logs {name} -f",
        "queued": f"orchestrate status {item.sweep}",
        "skipped": "orchestrate sweep --grid GRID --on TARGET",
    }
    return {
        "sweep": item.sweep,
        "run_id": item.run_id,
        "point": _point({key: value for key, value in item.point.items() if key not in shared}),
        "state": state,
        "reason": item.why.removeprefix(state).removeprefix(": "),
        "command": commands.get(state, "orchestrate sweep --grid GRID"),
    }


def _runs_table(
    rows: Sequence[_Row], keys: Sequence[str], *, several: bool
) -> tuple[list[_Column], list[list[_Cell]]]:
    points = [{key: row[key] for key in keys if row[key] is not None} for row in rows]
    varying = varying_keys(points)
    if len({row["target"] for row in rows} - {None}) > 1 and "target" not in varying:
        varying = [*varying, "target"]
    short = short_keys(varying)
    columns = [
        _Column("run"),
        *([_Column("sweep")] if several else []),
        *(_Column(short[key]) for key in varying),
        _Column("state"),
        *(_Column(name, numeric=True) for name, _ in _RUN_NUMBERS),
        _Column("host"),
        _Column("config"),
    ]
    return columns, [
        [
            _Cell(row["run_id"][:8], title=row["run_id"]),
            *([_Cell(row["sweep"])] if several else []),
            *(_value(row[key]) for key in varying),
            _Cell(row["state"] + ("" if row["in_grid"] else ", outside the grid"), title=row["reason"] or ""),
            *(_number(row[column]) for _, column in _RUN_NUMBERS),
            _Cell(row["hostname"] or "–"),
            _Cell((row["config_hash"] or "–")[:8], title=row["config_hash"] or ""),
        ]
        for row in rows
    ]


_RUN_NUMBERS = (
    ("attempts", "attempts"),
    ("frames", "frames"),
    ("final return", "final_return"),
    ("best return", "best_return"),
    ("frames/s", "fps_steady"),
    ("s/iteration", "seconds_per_iteration"),
    ("wall time (s)", "wall_time"),
    ("peak memory (MiB)", "peak_memory_mb"),
)


def _shared(rows: Sequence[_Row], keys: Sequence[str]) -> dict[str, Any]:
    """The keys of the grid that are the same for all."""
    return shared_keys([{key: row[key] for key in keys if row[key] is not None} for row in rows])


def _provenance(rows: Sequence[_Row]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Fact by fact, the values that finished runs have and how many have each."""
    finished = [row for row in rows if row["state"] in (RunState.DONE.value, RunState.STALE.value)]
    facts: dict[str, Counter[str]] = {name: Counter() for name, _ in _FACTS}
    for row in finished:
        for name, column in _FACTS:
            if row[column] is not None:
                facts[name][str(row[column])] += 1
        for package, version in json.loads(row["versions"] or "{}").items():
            facts.setdefault(package, Counter())[str(version)] += 1
    hashes = facts["configurations"]
    if len(hashes) > 1:
        facts["configurations"] = Counter({f"{len(hashes)} different ones, see the runs": len(finished)})
    return [(name, sorted(values.items())) for name, values in facts.items() if values]


_FACTS = (
    ("host", "hostname"),
    ("CPU", "cpu_model"),
    ("CPU capability", "cpu_capability"),
    ("cores", "cores"),
    ("GPU", "gpu_model"),
    ("GPU capability", "gpu_capability"),
    ("threads", "threads"),
    ("exactness", "exactness"),
    ("trainer", "trainer"),
    ("code", "code_id"),
    ("configurations", "config_hash"),
)


# Values as text


def _number(value: float | None) -> _Cell:
    return _Cell(_shown(value), "" if value is None or math.isnan(value) else value)


def _shown(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _value(value: Any) -> _Cell:
    if value is None:
        return _Cell("–")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _Cell(f"{value:g}" if isinstance(value, float) else str(value), value)
    return _Cell(_word(value))


def _point(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_word(value)}" for key, value in point.items())


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None

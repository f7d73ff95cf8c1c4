"""Select runs by a user's text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from orchestrator.core.errors import NotFoundError
from orchestrator.core.labels import short_keys, spellings, value_text, varying_keys
from orchestrator.rundir import IndexRow

_SHOWN = 8


def select_runs(rows: Iterable[IndexRow], selector: str) -> list[IndexRow]:
    """Return the runs with an id's prefix, or with `key=value,key=value` (short keys suffice).

    A value is written as tables show it, commas included: ``layers=[64, 64],seed=0``.
    """
    if "=" not in selector:
        return [row for row in rows if selector and row.run_id.startswith(selector)]
    rows = list(rows)
    wanted = _pairs(selector, rows)
    return [row for row in rows if all(_has(row.point, key, text) for key, text in wanted)]


def one_run(rows: Iterable[IndexRow], selector: str, sweep: str = "SWEEP") -> IndexRow:
    """Return the single selected run; raise :class:`NotFoundError` for none or several.

    ``sweep``: its name, for the hint.
    """
    rows = list(rows)
    found = select_runs(rows, selector)
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError(f"no run fits {selector!r}", hint=_nearest(rows, selector, sweep))
    some = ", ".join(row.run_id for row in found[:5])
    raise NotFoundError(
        f"{selector!r} fits {len(found)} runs ({some}{', …' if len(found) > 5 else ''})",
        hint=_narrower(found, rows, selector),
    )


def _narrower(found: Sequence[IndexRow], rows: Sequence[IndexRow], selector: str) -> str:
    """Return a selector for the first of several runs: the given text with the keys that differ."""
    first = found[0]
    by_id = f"by its id: {_short_id(first, rows)}"
    short = short_keys(list(dict.fromkeys(key for row in rows for key in row.point)))
    keys = [key for key in varying_keys([row.point for row in found]) if _can_be_typed(first.point.get(key))]
    pairs = [f"{short[key]}={value_text(first.point.get(key))}" for key in keys]
    telling = [text for text in (*pairs, ",".join(pairs)) if text and select_runs(found, text) == [first]]
    if not telling:
        return f"name one {by_id}"
    typed = f"{selector}," if "=" in selector else ""
    return f"name one by more keys: {typed}{telling[0]}, or {by_id}"


def _short_id(row: IndexRow, rows: Sequence[IndexRow]) -> str:
    others = [other.run_id for other in rows if other.run_id != row.run_id]
    lengths = range(_SHOWN, len(row.run_id) + 1)
    return next(
        (row.run_id[:n] for n in lengths if not any(one.startswith(row.run_id[:n]) for one in others)),
        row.run_id,
    )


def _nearest(rows: Sequence[IndexRow], selector: str, sweep: str) -> str:
    """Return a hint that names the unknown key or value and the known ones."""
    listed = f"`orchestrate status {sweep}` lists ids and keys"
    if "=" not in selector or not rows:
        return listed
    names = list(dict.fromkeys(key for row in rows for key in row.point))
    for key, text in _pairs(selector, rows):
        meant = [name for name in names if name == key] or [name for name in names if key in spellings(name)]
        if not meant:
            known = list(short_keys(names).values())
            near = get_close_matches(key, known, 1)
            return f"did you mean {near[0]}={text}?" if near else f"runs have the keys {', '.join(known)}"
        there = (row.point[name] for row in rows for name in meant if name in row.point)
        values = list(dict.fromkeys(map(value_text, there)))
        if not any(_has(row.point, key, text) for row in rows):
            near = get_close_matches(text, values, 1)
            some = f"{', '.join(values[:8])}{', …' if len(values) > 8 else ''}"
            return f"did you mean {key}={near[0]}?" if near else f"{key} is one of: {some}"
    return f"no run has all of these values; {listed}"


def _can_be_typed(value: Any) -> bool:
    return isinstance(value, bool | int | float | str) and "," not in str(value) and "=" not in str(value)


def _pairs(selector: str, rows: Sequence[IndexRow]) -> list[tuple[str, str]]:
    """Return the keys and values of a text; a comma belongs to a value if a run has it, or no `=` follows."""
    pieces, pairs = selector.split(","), list[tuple[str, str]]()
    while pieces:
        ends = range(len(pieces), 1, -1)
        candidates = ((end, _pair(",".join(pieces[:end]))) for end in ends)
        fitting = (end for end, pair in candidates if any(_has(row.point, *pair) for row in rows))
        # A value that no run has keeps what cannot be a pair of its own, for the hint.
        least = next((end for end in range(1, len(pieces)) if "=" in pieces[end]), len(pieces))
        end = next(fitting, least)
        pairs.append(_pair(",".join(pieces[:end])))
        del pieces[:end]
    return pairs


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key.strip(), value.strip()


def _has(point: Mapping[str, Any], key: str, text: str) -> bool:
    names = [name for name in point if name == key] or [name for name in point if key in spellings(name)]
    return any(_same(point[name], text) for name in names)


def _same(value: Any, text: str) -> bool:
    if isinstance(value, bool) or value is None:
        return text.lower() == value_text(value)
    if isinstance(value, int | float):
        try:
            return float(text.replace("_", "")) == value
        except ValueError:
            return False
    if isinstance(value, str):
        return text in (value, value_text(value))
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False

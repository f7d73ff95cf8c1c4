"""Find the key to compare by, its values, and the baseline."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.cells import text
from orchestrator.analysis.groups.keys import HARDWARE, SWEEP, TARGET, changes_with
from orchestrator.analysis.run_table import RunRow
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.labels import short_keys, spellings, varying_keys

# Facts of runs that can be compared by, beside the grid's keys.
_FACTS = ("threads", "actors", TARGET, SWEEP, "device", "environments", HARDWARE)


@dataclass(frozen=True)
class ComparedKey:
    """A key with the values that runs have of it, in the grid's order, as text.

    ``typed``: the value that each text stands for. ``together``: other keys that have one value for each of
    its values, and so change with it.
    """

    key: str
    short: str
    typed: Mapping[str, Any]
    together: tuple[str, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The values as text."""
        return tuple(self.typed)


def find_key(rows: Sequence[RunRow], keys: Sequence[str], asked: str) -> str:
    """Find the key that ``asked`` names, in full or in short.

    Raises :class:`OrchestrateError` for an unknown key.
    """
    varying = _varying(rows, keys)
    if asked.lstrip("+~") == "seed":
        raise OrchestrateError(
            "seeds are not compared: their spread is the noise",
            hint=f"compare by one of: {_named(varying)}" if varying else "the runs differ in no other key",
        )
    return _resolve_key(asked, varying, keys)


def find_axis(rows: Sequence[RunRow], keys: Sequence[str], key: str) -> ComparedKey:
    """Return the key with its values; raises :class:`OrchestrateError` if all runs have the same one."""
    varying = _varying(rows, keys)
    known = with_key(rows, keys, key)
    typed = {text(row[key]): row[key] for row in known}
    if len(typed) < 2:
        only = f"is {next(iter(typed))} in all runs" if typed else "is unknown for all runs"
        raise OrchestrateError(
            f"{key} {only}, so there is nothing to compare by it",
            hint=f"keys with several values: {_named(varying)}" if varying else None,
        )
    short = short_keys(list(dict.fromkeys((*varying, key))))[key]
    return ComparedKey(key, short, typed, changes_with(known, keys, key))


def with_key(rows: Sequence[RunRow], keys: Sequence[str], key: str) -> list[RunRow]:
    """Return the runs with a known value: of all runs for a grid's key, of finished ones for a result's."""
    return [row for row in rows if row[key] is not None or key in keys]


def find_baseline(axis: ComparedKey, asked: str | None, seeds: Mapping[str, int]) -> str:
    """Return the baseline: the value asked for, else the grid's first.

    ``seeds``: the number of finished seeds per value. A first value with too few gives way to the next that
    has enough, or if none has, one without any to the next that has some.
    """
    if asked is None:
        return next(value for least in (FEW_SEEDS, 1, 0) for value in axis.values if seeds[value] >= least)
    for value in axis.values:
        if asked in (value, f"{axis.short}={value}", f"{axis.key}={value}") or _same_number(asked, value):
            return value
    near = difflib.get_close_matches(asked, axis.values, 1)
    raise OrchestrateError(
        f"--baseline: {axis.key} is never {asked!r}; expected one of: {', '.join(axis.values)}",
        hint=f"did you mean {near[0]}?" if near else None,
    )


def _resolve_key(asked: str, varying: Sequence[str], keys: Sequence[str]) -> str:
    name = asked.lstrip("+~")
    known = list(dict.fromkeys((*varying, *keys, *_FACTS)))
    bare = {key.lstrip("+~"): key for key in reversed(known)}
    if name in bare:
        return bare[name]
    for some in (varying, known):
        fitting = [key for key in some if name in spellings(key)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise OrchestrateError(
                f"--by {asked}: several keys end like that: {', '.join(fitting)}", hint="write the whole key"
            )
    near = difflib.get_close_matches(name, [*bare, *(name for key in known for name in spellings(key))], 1)
    raise OrchestrateError(
        f"--by {asked}: no run has that key; keys with several values: {_named(varying) or 'none'}",
        hint=f"did you mean {near[0]}?" if near else None,
    )


def _varying(rows: Sequence[RunRow], keys: Sequence[str]) -> list[str]:
    """Return keys and facts with several values; of keys that advance together, the first."""
    points = [{key: row[key] for key in keys if row[key] is not None} for row in rows]
    varying = varying_keys(points, without=("seed",)) if len(rows) > 1 else []
    facts = {name: {text(row[name]) for row in rows if row[name] is not None} for name in _FACTS}
    return [*varying, *(name for name, values in facts.items() if name not in keys and len(values) > 1)]


def _named(varying: Sequence[str]) -> str:
    short = short_keys(varying)
    return ", ".join(short[key] for key in varying)


def _same_number(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return False

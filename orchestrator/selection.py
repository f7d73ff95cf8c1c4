"""Which runs a person means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.errors import NotFoundError
from orchestrator.labels import spellings
from orchestrator.rundir import IndexRow


def select_runs(rows: Iterable[IndexRow], selector: str) -> list[IndexRow]:
    """The runs meant: a prefix of an id, or `key=value,key=value` (a short spelling of a key is enough)."""
    if "=" not in selector:
        return [row for row in rows if selector and row.run_id.startswith(selector)]
    wanted = [pair.partition("=")[::2] for pair in selector.split(",")]
    return [row for row in rows if all(_has(row.point, key.strip(), text) for key, text in wanted)]


def one_run(rows: Iterable[IndexRow], selector: str) -> IndexRow:
    """The one run that a person means; :class:`NotFoundError` if there is none, or several."""
    rows = list(rows)
    found = select_runs(rows, selector)
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError(f"no run fits {selector!r}", hint="`orchestrate status SWEEP` lists ids and keys")
    some = ", ".join(row.run_id for row in found[:5])
    raise NotFoundError(
        f"{selector!r} fits {len(found)} runs ({some}{', …' if len(found) > 5 else ''})",
        hint="name one by more of its id, or by more keys: algorithm=mappo,seed=0",
    )


def _has(point: Mapping[str, Any], key: str, text: str) -> bool:
    names = [name for name in point if name == key] or [name for name in point if key in spellings(name)]
    return any(_same(point[name], text.strip()) for name in names)


def _same(value: Any, text: str) -> bool:
    if isinstance(value, bool) or value is None:
        return text.lower() == str(value).lower() or (value is None and text == "null")
    if isinstance(value, int | float):
        try:
            return float(text.replace("_", "")) == value
        except ValueError:
            return False
    return str(value) == text

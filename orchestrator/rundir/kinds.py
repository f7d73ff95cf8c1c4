"""Kinds of values in files of any origin: a value of another kind is refused, or left out."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from orchestrator.core.types import Run

_T = TypeVar("_T")

# What reading malformed content can raise.
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)

_BEYOND = 1 << 63
# Kinds that a field of a plain type accepts. A truth value is an integer in Python, and in no file.
_ACCEPTED: Mapping[object, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (int, float),
    bool: (bool,),
    types.NoneType: (types.NoneType,),
    Mapping: (dict,),
    tuple: (tuple,),
    frozenset: (frozenset,),
}


def require_kinds(value: _T) -> _T:
    """Return a dataclass or named tuple, with fields of their declared kinds.

    Fields of other types than plain ones are not looked at. Raises ``TypeError``.
    """
    for name, accepted in _fields(type(value)):  # type: ignore[arg-type]
        found = getattr(value, name)
        if type(found) not in accepted or (type(found) is int and abs(found) >= _BEYOND):
            raise TypeError(f"{name}: found {str(found)[:40]!r}")
    return value


def require_run(run: Run) -> Run:
    """Return the description of a run, of the declared kinds. Raises ``TypeError``."""
    if not isinstance(run.overrides, dict):
        raise TypeError("overrides are by key")
    return require_kinds(run)


def text(value: Any) -> str | None:
    """Return a text; ``None`` for anything else."""
    return value if type(value) is str else None


def number(value: Any) -> float | None:
    """Return a number; ``None`` for anything else, also for an integer beyond 64 bits."""
    return value if type(value) is float or (type(value) is int and abs(value) < _BEYOND) else None


def whole(value: Any) -> int | None:
    """Return an integer of 64 bits; ``None`` for anything else."""
    return value if type(value) is int and abs(value) < _BEYOND else None


@cache
def _fields(of: type) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """Return the fields of plain types, each with the types that it accepts."""
    found = []
    for name, hint in get_type_hints(of).items():
        members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        kinds = [_ACCEPTED.get(get_origin(member) or member) for member in members]
        if None not in kinds:
            found.append((name, tuple(kind for group in kinds if group for kind in group)))
    return tuple(found)

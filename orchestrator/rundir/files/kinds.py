"""Kinds of values in files of any origin: a value of another kind is refused, or left out."""

from __future__ import annotations

from typing import Any

from orchestrator.core.types import INT64_MAX, Reason

# What reading malformed content can raise.
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)

_REASONS = {reason.value: reason for reason in Reason}


def text(value: Any) -> str | None:
    """Return a text; ``None`` for anything else."""
    return value if type(value) is str else None


def reason(value: Any) -> Reason | None:
    """Return the reason of that name; ``None`` for anything else."""
    return _REASONS.get(value) if type(value) is str else None


def number(value: Any) -> float | None:
    """Return a number; ``None`` for anything else, also for an integer beyond 64 bits."""
    return value if type(value) is float or (type(value) is int and abs(value) <= INT64_MAX) else None


def whole(value: Any) -> int | None:
    """Return an integer of 64 bits; ``None`` for anything else."""
    return value if type(value) is int and abs(value) <= INT64_MAX else None

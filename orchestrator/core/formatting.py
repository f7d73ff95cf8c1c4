"""Format numbers, times and series for a terminal, and make foreign text safe to print."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

# Without the full block, so that bars on adjacent lines stay apart.
_BARS = "▁▂▃▄▅▆▇"
_DAY_S = 24 * 3600


def number(value: float | None) -> str:
    """Format a number with three digits, or with all digits before the point; empty for None and NaN."""
    if value is None or value != value:
        return ""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def count(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 run``, ``2 runs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def millions(number: float) -> str:
    """Format a number from a hundred thousand on in millions: ``2.4 M``."""
    return f"{number / 1e6:.3g} M" if number >= 1e5 else f"{number:,.0f}"


def dollars(amount: float) -> str:
    """Format US dollars to the cent, amounts below ten cents to two digits."""
    return f"${amount:,.2f}" if abs(amount) >= 0.095 or not amount else f"${amount:.2g}"


def duration(seconds: float | None) -> str:
    """Format seconds as ``m:ss``, or ``h:mm:ss`` from one hour on."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def moment(at: float | None, now: float) -> str:
    """Format a time (both in epoch seconds) as the local time of day, or as the day if a day away."""
    if at is None:
        return ""
    near = abs(now - at) < _DAY_S
    return time.strftime("%H:%M" if near else "%b %d", time.localtime(at))


def since(at: float | None, now: float) -> str:
    """Format a start time as `` since 12:03``; empty if unknown."""
    return f" since {moment(at, now)}" if at else ""


def listed(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Join the first ``most`` names, and count the rest."""
    left = len(names) - most
    return separator.join(names[:most]) + (f"{separator.strip(', ')} and {left} more" if left > 0 else "")


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the last ``width`` values as bars from zero to their maximum."""
    last = [value if math.isfinite(value) and value > 0 else 0.0 for value in values[-width:]]
    highest = max(last, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / highest * len(_BARS)))] for value in last)


def amount(size: int) -> str:
    """Format a number of bytes with a decimal unit: ``1.2 MB``."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{size} B" if unit == "B" else f"{value:.3g} {unit}"


def printable(text: str) -> str:
    """Return the text on one line with control characters escaped, so that no terminal interprets them."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else " " if character in "\n\t" else _spelled(character)
        for character in text
    )


def _spelled(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")

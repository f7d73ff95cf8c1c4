"""Values as people read them in a terminal: numbers, times, series, and text that somebody else wrote."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

# Without the full block: bars of two lines, one above the other, stay apart.
_BARS = "▁▂▃▄▅▆▇"
_DAY_S = 24 * 3600


def number(value: float | None) -> str:
    """Three digits, or all before the point; empty for what is not known, or not a number."""
    if value is None or value != value:
        return ""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def dollars(amount: float) -> str:
    """US dollars to the cent, and what is less than ten cents to two digits."""
    return f"${amount:,.2f}" if abs(amount) >= 0.095 or not amount else f"${amount:.2g}"


def duration(seconds: float | None) -> str:
    """Minutes and seconds as on a clock, hours where there are any."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def moment(at: float | None, now: float) -> str:
    """The time of day here, or the day if that was long ago. Both are seconds since the epoch."""
    if at is None:
        return ""
    near = abs(now - at) < _DAY_S
    return time.strftime("%H:%M" if near else "%b %d", time.localtime(at))


def since(at: float | None, now: float) -> str:
    """`` since 12:03``; empty if it is not known since when."""
    return f" since {moment(at, now)}" if at else ""


def sparkline(values: Sequence[float], width: int) -> str:
    """The last ``width`` values as bars from zero to the highest of them."""
    last = [value if math.isfinite(value) and value > 0 else 0.0 for value in values[-width:]]
    highest = max(last, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / highest * len(_BARS)))] for value in last)


def amount(size: int) -> str:
    """Bytes as people read them."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{size} B" if unit == "B" else f"{value:.3g} {unit}"


def plain(text: str) -> str:
    """Text as one line that no terminal takes for anything but text: what cannot be seen is spelled out."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else " " if character in "\n\t" else _spelled(character)
        for character in text
    )


def _spelled(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")

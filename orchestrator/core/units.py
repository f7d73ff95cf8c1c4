"""Parse times and amounts of memory in Slurm's syntax."""

from __future__ import annotations

import re

# minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds.
# Nine digits exceed any limit and keep int() fast.
_TIME = re.compile(
    r"(?P<days>[0-9]{1,9})-(?P<hours>[0-9]{1,2})(:(?P<minutes>[0-9]{1,2})(:(?P<seconds>[0-9]{1,2}))?)?"
    r"|(?P<alone>[0-9]{1,9})(:(?P<second>[0-9]{1,2})(:(?P<third>[0-9]{1,2}))?)?"
)
# Slurm reads one letter of the unit: GB and GiB are G.
_MEMORY = re.compile(r"(?P<number>0|[1-9][0-9]{0,11})(?:(?P<unit>[KMGT])(?:i?B)?)?", re.IGNORECASE | re.ASCII)
_MEGABYTES = {"M": 1, "": 1, "G": 1024, "T": 1024 * 1024}
# All memory of a machine, in megabytes: more than any has. Slurm writes it 0.
ALL_MEMORY = 1 << 60

_SPAN = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,9})?) ?(?P<unit>s|m|min|h|d)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

TIME_SYNTAX = "minutes, [hours:]minutes:seconds or days-hours[:minutes[:seconds]]"
MEMORY_SYNTAX = "megabytes, a whole number and K, M, G or T, or 0 for all memory of a node"


def seconds(time: str) -> int:
    """Convert a time limit to seconds: ``"90"`` is 90 minutes, ``"1-0"`` a day.

    Raises ``ValueError`` for anything else, and for zero, Slurm's word for no limit.
    """
    found = _TIME.fullmatch(time)
    if found is None:
        raise ValueError(f"found {time!r}, expected {TIME_SYNTAX}")
    part = {name: int(text) for name, text in found.groupdict().items() if text is not None}
    if "days" in part:
        hours = part["days"] * 24 + part["hours"]
        minutes, rest = part.get("minutes", 0), part.get("seconds", 0)
    elif "third" in part:
        hours, minutes, rest = part["alone"], part["second"], part["third"]
    else:
        hours, minutes, rest = 0, part["alone"], part.get("second", 0)
    total = (hours * 60 + minutes) * 60 + rest
    if not total:
        raise ValueError(f"found {time!r}, expected a time above zero")
    return total


def span(text: str) -> float:
    """Convert a duration in a user's syntax to seconds: ``6h``, ``1.5 d``, ``90min``, or Slurm's ``6:00:00``.

    Raises ``ValueError`` for anything else, and for zero.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        if ":" not in text:  # a bare number means minutes to Slurm and hours to a user
            raise ValueError(f"found {text!r}, expected a number and s, min, h or d, as in 6h")
        return seconds(text.strip())
    length = float(found["number"]) * _SECONDS[found["unit"]]
    if not length:
        raise ValueError(f"found {text!r}, expected a time above zero")
    return length


def megabytes(mem: str) -> int:
    """Convert an amount of memory to megabytes of 1024 × 1024 bytes: ``"4000"`` is 4000, ``"4G"`` 4096.

    Kilobytes round up as in Slurm, and zero is :data:`ALL_MEMORY`. Raises ``ValueError`` for anything else.
    """
    found = _MEMORY.fullmatch(mem)
    if found is None:
        raise ValueError(f"found {mem!r}, expected {MEMORY_SYNTAX}")
    number, unit = int(found["number"]), (found["unit"] or "").upper()
    return (-(-number // 1024) if unit == "K" else number * _MEGABYTES[unit]) or ALL_MEMORY


def memory(megabytes: int) -> str:
    """Return an amount of memory in Slurm's syntax."""
    return f"{megabytes}M" if megabytes < ALL_MEMORY else "0"

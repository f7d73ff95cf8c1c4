"""Parse text with several values by Hydra's own parser, for the same meaning as there."""

from __future__ import annotations

import difflib
import math
import random
import re
from typing import Any

from orchestrator.config.grid.model import MAX_POINTS
from orchestrator.config.yaml_files.scalars import LARGEST
from orchestrator.core.types import Value

FUNCTIONS = ("choice", "range", "shuffle", "sort")
_UNSUPPORTED = {
    "interval": "a continuous interval has no points; write range(start, stop, step)",
    "glob": "write the names out",
}
_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\(.*", re.DOTALL)
_QUOTES = ("'", '"')
# A number that stays a float: 6e4 and 6.0e4 are integers everywhere in a grid, and 2.0 is none.
_DECIMALS = re.compile(r"(?:\d\.\d*|\.\d+)(?![\d.eE])")
# The most characters of a text or parser's message in an error.
_LONGEST = 200


class SweepTextError(ValueError):
    """Text that looks like a sweep and is invalid. The message has the fault, ``hint`` the correct text."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def looks_like_sweep(text: str) -> bool:
    """Return whether Hydra would read several values here: one of its functions, or a comma list."""
    call = _CALL.fullmatch(text)
    if call is not None and (
        call[1] in {*FUNCTIONS, *_UNSUPPORTED, "tag"} or _nearest_function(call[1]) is not None
    ):
        return True
    return "," in text


def sweep_values(text: str) -> list[Value] | None:
    """Return the values of a Hydra sweep; None for plain text.

    Raises :class:`SweepTextError`. ``shuffle`` is seeded by the text: a sweep is deterministic.
    """
    if text[:1] in _QUOTES and text[-1:] == text[:1] and len(text) > 1:
        quoted = _parsed(text).value()
        return [plain_value(quoted, text)] if not _is_sweep(quoted) else points_of(quoted, text)
    if not looks_like_sweep(text):
        return None
    call = _CALL.fullmatch(text)
    if call is not None and call[1] in _UNSUPPORTED:
        raise SweepTextError(f"found {call[1]}(), which is not a list of points", _UNSUPPORTED[call[1]])
    if call is not None and (meant := _nearest_function(call[1])) is not None:
        raise SweepTextError(
            f"found {call[1]}(), expected one of: {', '.join(FUNCTIONS)}", f"did you mean {meant}?"
        )
    value = _parsed(text).value()
    return points_of(value, text) if _is_sweep(value) else None


def _nearest_function(name: str) -> str | None:
    if name in {*FUNCTIONS, *_UNSUPPORTED, "tag"}:
        return None
    close = difflib.get_close_matches(name.lower(), FUNCTIONS, 1, 0.75)
    return close[0] if close else None


def _parsed(text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(f"key={text}")
    except RecursionError:
        raise SweepTextError(f"found {_short(text)}, which is nested too deeply") from None
    except (HydraException, ValueError) as error:  # ValueError: too many digits for int()
        why = _cut(str(error).splitlines()[0])
        raise SweepTextError(
            f"found {_short(text)}, which Hydra cannot read as several values: {why}", _unreadable_hint(text)
        ) from None


def _unreadable_hint(text: str) -> str:
    if text.count("(") > text.count(")"):
        return 'inside braces YAML ends a value at the comma: quote the whole sweep, "range(0,3)"'
    return "one value that is such a text goes into a list and quotes: ['…']"


def _is_sweep(value: Any) -> bool:
    from hydra.core.override_parser.types import Glob, Sweep

    return isinstance(value, Sweep | Glob)


def points_of(sweep: Any, text: str, most: int = MAX_POINTS) -> list[Value]:
    """Return the values of Hydra's ``sweep``, parsed from ``text``. Raises :class:`SweepTextError`."""
    from hydra.core.override_parser.types import ChoiceSweep, RangeSweep

    if isinstance(sweep, RangeSweep):
        raw = _range(sweep, text, most)
    elif isinstance(sweep, ChoiceSweep):
        raw = list(sweep.list)
    else:
        raise SweepTextError(
            f"found {_short(text)}, which is not a list of points", "write a list or a range()"
        )
    values = [plain_value(item, text) for item in raw]
    if sweep.shuffle:
        random.Random(text).shuffle(values)
    return values


def _range(sweep: Any, text: str, most: int) -> list[Value]:
    start, stop, step = sweep.start, sweep.stop, sweep.step
    if any(math.isnan(number) for number in (start, stop, step)):
        raise SweepTextError(f"found {_short(text)}, expected numbers in range(start, stop, step)")
    if not step or (stop - start) / step <= 0:
        raise SweepTextError(
            f"found {_short(text)}, which has no values", "range(start, stop, step) leaves stop out"
        )
    if (stop - start) / step > most:
        raise SweepTextError(f"found {_short(text)}, expected at most {most:,} values")
    return list(sweep.range())


def plain_value(item: Any, text: str) -> Value:
    """Return a value that Hydra parsed from ``text`` as JSON has it, numbers as elsewhere in a grid.

    Raises :class:`SweepTextError` for an integer beyond 64 bits.
    """
    from hydra.core.override_parser.types import QuotedString

    if isinstance(item, QuotedString):
        return item.text
    if isinstance(item, list):
        return [plain_value(part, text) for part in item]
    if isinstance(item, dict):
        return {str(plain_value(key, text)): plain_value(part, text) for key, part in item.items()}
    if isinstance(item, float) and item.is_integer() and not _DECIMALS.search(text) and abs(item) < LARGEST:
        return int(item)
    if isinstance(item, int) and not -LARGEST <= item < LARGEST:
        raise SweepTextError(f"found {_short(text)}, with an integer beyond 64 bits")
    return item


def _short(text: str) -> str:
    return _cut(repr(text))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."

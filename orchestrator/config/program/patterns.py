"""The key `code` of a grid: patterns that select the files of a program."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from orchestrator.core.errors import OrchestrateError

# The grid's key that selects the files.
CODE_KEY = "code"


@dataclass(frozen=True)
class Patterns:
    """The key `code`: ``base`` replaces the default files, if given; ``more`` adds; ``less`` removes."""

    base: tuple[str, ...] | None
    more: tuple[str, ...]
    less: tuple[str, ...]

    @classmethod
    def of(cls, value: Any) -> Patterns:
        """Parse the key's value. Raises :class:`OrchestrateError` unless it is a text or a list of texts."""
        entries = [value] if isinstance(value, str) else value
        if value is None:
            return cls(None, (), ())
        texts = isinstance(entries, list | tuple) and all(
            isinstance(entry, str) and entry.strip("+- ") for entry in entries
        )
        if not texts:
            raise OrchestrateError(
                f"`{CODE_KEY}` is {value!r}; expected files, folders or patterns, relative to the folder in "
                "which the program starts",
                hint=f"{CODE_KEY}: [train.py, src] instead of what counts by default, [+data/levels.csv] "
                "beside it, [-scripts] without",
            )
        base = tuple(_plain(entry) for entry in entries if entry[0] not in "+-")
        more = tuple(_plain(entry[1:]) for entry in entries if entry[0] == "+")
        less = tuple(_plain(entry[1:]) for entry in entries if entry[0] == "-")
        return cls(base or None, more, less)


def _plain(entry: str) -> str:
    return os.path.normpath(entry.strip())


def fits(name: str, entry: str) -> bool:
    """Return whether a file equals the entry, lies below it, or matches it as a pattern."""
    if entry == ".":
        return not name.startswith("../")
    return name == entry or name.startswith(f"{entry}/") or _pattern(entry).fullmatch(name) is not None


def _pattern(entry: str) -> re.Pattern[str]:
    """Compile an entry: ``*`` matches any text within a name, ``**`` also folders."""
    if entry not in _patterns:
        text = re.escape(entry).replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*")
        _patterns[entry] = re.compile(text.replace(r"\*", "[^/]*").replace(r"\?", "[^/]"), re.DOTALL)
    return _patterns[entry]


_patterns: dict[str, re.Pattern[str]] = {}

"""Check the file names of a source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_plain(path: str) -> bool:
    """Return whether a path only leads downwards and has no control characters."""
    return not _CONTROL.search(path) and not any(part in ("", ".", "..") for part in path.split("/"))


def is_short(path: str, longest_name: int, longest_path: int) -> bool:
    """Return whether a path is text of at most so many bytes, and each of its names, too."""
    try:
        lengths = [len(part.encode()) for part in path.split("/")]
    except UnicodeEncodeError:  # half a character, as JSON can spell it
        return False
    return max(lengths) <= longest_name and sum(lengths) + len(lengths) <= longest_path


def zero_terminated(names: Iterable[str]) -> bytes:
    """Return the names for a program, each followed by a zero byte."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)

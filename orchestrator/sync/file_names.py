"""Check the file names of a source."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_plain(path: str) -> bool:
    """Return whether a path only leads downwards and has no control characters."""
    return not _CONTROL.search(path) and not any(part in ("", ".", "..") for part in path.split("/"))

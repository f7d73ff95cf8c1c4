"""Names that a source has given to files, and which of them may be used here."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_plain(path: str) -> bool:
    """Whether a path leads only downwards, and no terminal takes a part of it for a command."""
    return not _CONTROL.search(path) and not any(part in ("", ".", "..") for part in path.split("/"))

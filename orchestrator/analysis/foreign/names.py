"""Turn names from other programs into text."""

from __future__ import annotations

import os
from pathlib import Path


def readable(name: str | Path) -> str:
    """Return text that can be written anywhere: bytes of a name that are not UTF-8 are spelled out."""
    try:
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character: possible in JSON, not in a file's name
        return str(name).encode("utf-8", "backslashreplace").decode()

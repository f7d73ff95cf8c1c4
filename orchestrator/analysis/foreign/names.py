"""Other people's names as text."""

from __future__ import annotations

import os
from pathlib import Path


def readable(name: str | Path) -> str:
    """Text that can be written anywhere: bytes of a name that are not UTF-8 are spelled out."""
    try:
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character, as JSON may hold it but no name of a file
        return str(name).encode("utf-8", "backslashreplace").decode()

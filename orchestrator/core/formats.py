"""Format numbers of results trees, code snapshots and messages, which other versions of this program read.

A record names its format and the version that wrote it. A record without a number has format 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator import __version__
from orchestrator.core.errors import FormatError

# The number that this version writes, and the numbers that it reads.
FORMAT, _KNOWN = 1, (1,)


def stamp() -> dict[str, Any]:
    """Return the keys by which a record names its format."""
    return {"format": FORMAT, "version": __version__}


def require_known_format(record: Mapping[str, Any], what: object, hint: str | None = None) -> None:
    """Raise :class:`FormatError` if the record, named by ``what``, has an unknown format."""
    found = record.get("format", 1)
    if found not in _KNOWN:
        version = record.get("version")
        newer = f"version {version} of this program or newer" if version else "a newer version"
        known = ", ".join(map(str, _KNOWN))
        raise FormatError(
            f"{what}: found format {found}, version {__version__} of this program reads {known}",
            hint=hint or f"use {newer}; `orchestrate --version` prints the version in use",
        )

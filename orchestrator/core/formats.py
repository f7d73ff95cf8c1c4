"""Format numbers of ledger entries, code snapshots, decisions and answers, which other versions may read.

A record names its format and the version that wrote it; without a number it is read as the present format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator import __version__
from orchestrator.core.errors import FormatError

# The number that this version writes, and the only one that it reads.
FORMAT = 2


def stamp() -> dict[str, Any]:
    """Return the keys by which a record names its format."""
    return {"format": FORMAT, "version": __version__}


def require_known_format(record: Mapping[str, Any], what: object, hint: str | None = None) -> None:
    """Raise :class:`FormatError` if the record, named by ``what``, has another format."""
    found = record.get("format", FORMAT)
    if found != FORMAT:
        version = record.get("version")
        its = f"version {version} of this program" if version else "the version that wrote it"
        newer = " or newer" if version and type(found) is int and found > FORMAT else ""
        raise FormatError(
            f"{what}: found format {found}, version {__version__} of this program reads {FORMAT}",
            hint=hint or f"use {its}{newer}; `orchestrate --version` prints the version in use",
        )

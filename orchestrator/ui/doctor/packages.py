"""Which versions of packages are installed, asked of their records only."""

from __future__ import annotations

from importlib.metadata import version


def installed(package: str) -> str | None:
    """The version, ``None`` where there is none, or where a half-removed package does not tell it."""
    try:
        found: str | None = version(package)
    except Exception:  # a damaged record ends in whatever its parser raises
        return None
    return found or None

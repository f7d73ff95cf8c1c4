"""Find versions of installed packages, from their records only."""

from __future__ import annotations

from importlib.metadata import version


def installed(package: str) -> str | None:
    """Return the version, ``None`` for a package that is missing or half removed."""
    try:
        found: str | None = version(package)
    except Exception:  # a damaged record may raise anything
        return None
    return found or None

"""The control plane: grids become sweeps, plans, jobs and reports. Never imports torch, benchmarl or sky."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import :mod:`orchestrator.api` when `orchestrator.open` or `orchestrator.launch` is first used."""
    if name not in ("launch", "open"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("orchestrator.api"), name)

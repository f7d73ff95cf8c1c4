"""Targets by name: which backend serves them and what they offer."""

from __future__ import annotations

import difflib

from orchestrator.backends.base import Backend
from orchestrator.errors import BackendUnavailableError, GridError
from orchestrator.plan import Capacity
from orchestrator.types import Sweep


def target_of(sweep: Sweep, on: str | None) -> tuple[Backend, Capacity]:
    """The target that was asked for, or else the grid's first; a wrong one there is the grid's fault."""
    if on is not None:
        return find_target(on)
    try:
        return find_target(sweep.targets[0])
    except BackendUnavailableError as error:
        raise GridError(f"targets: {error}", file=sweep.source, hint=error.hint) from None


def find_target(name: str) -> tuple[Backend, Capacity]:
    """The backend and the capacity behind a target's name."""
    if name != "local":
        near = difflib.get_close_matches(name, ["local"], cutoff=0.5)
        raise BackendUnavailableError(
            f"no target named {name!r}: this version runs on 'local' only",
            hint=f"did you mean --on {near[0]}?" if near else "use --on local, or leave --on away",
        )
    from orchestrator.backends.local import LocalBackend

    backend = LocalBackend()
    return backend, backend.capacity()

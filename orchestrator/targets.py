"""Targets by name: which backend serves them and what they offer."""

from __future__ import annotations

import difflib

from orchestrator.backends.base import Backend
from orchestrator.errors import BackendUnavailableError
from orchestrator.plan import Capacity


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

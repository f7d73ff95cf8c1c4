"""Plug-ins of other distributions, found by entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TypeVar

from orchestrator.core.errors import OrchestrateError

Spec = TypeVar("Spec")


def plug_in_names(group: str) -> list[str]:
    """Return the names of a group's entry points, sorted."""
    return sorted(point.name for point in entry_points(group=group))


def find_plug_in(group: str, name: str, kind: type[Spec]) -> Spec | None:
    """Load the entry point of this name; ``None`` if there is none.

    Raises :class:`OrchestrateError` if it cannot be imported or is no ``kind``.
    """
    for point in entry_points(group=group, name=name):
        try:
            spec = point.load()
        except Exception as error:  # any code may run at its import
            raise OrchestrateError(
                f"the entry point {point.name} of {group} cannot be loaded: {type(error).__name__}: {error}",
                hint=f"mend or remove the package with {point.value}",
            ) from error
        if not isinstance(spec, kind):
            raise OrchestrateError(f"the entry point {point.value} is not a {kind.__name__}")
        return spec
    return None

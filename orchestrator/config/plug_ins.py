"""Plug-ins of this distribution and others, found by entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import TypeVar

from orchestrator.core.errors import OrchestrateError

Spec = TypeVar("Spec")
_NONE: Mapping[str, str] = MappingProxyType({})


def plug_in_names(group: str, built_in: Mapping[str, str] = _NONE) -> list[str]:
    """Return the names of a group's entry points and of the built-in ones, sorted."""
    return sorted({*built_in, *(point.name for point in entry_points(group=group))})


def find_plug_in(group: str, name: str, kind: type[Spec], built_in: Mapping[str, str] = _NONE) -> Spec | None:
    """Load the entry point of this name; ``None`` if there is none.

    ``built_in``: entry points of this program itself, "module:object" by name, which come first. Raises
    :class:`OrchestrateError` if it cannot be imported or is no ``kind``.
    """
    for point in _points(group, name, built_in):
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


def _points(group: str, name: str, built_in: Mapping[str, str]) -> Iterator[EntryPoint]:
    if name in built_in:
        yield EntryPoint(name, built_in[name], group)
    yield from entry_points(group=group, name=name)

"""Check the trainer's keys and their values in all sections of a grid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from orchestrator.config.grid.hydra_sweeps import looks_like_sweep, sweep_values
from orchestrator.config.grid.model import MAX_POINTS, bare_key, same_value
from orchestrator.config.grid.other_programs import values_hint
from orchestrator.config.trainers import LIMITS, TrainerSpec
from orchestrator.config.yaml_files.nodes import (
    Entries,
    KeyNode,
    Node,
    Position,
    Scalar,
    YamlFile,
    did_you_mean,
    nearest,
    plain_value,
    scalars,
    shown,
)
from orchestrator.core.secret_detection import WHERE_THEY_GO, secret_in
from orchestrator.core.types import Value

_UNUSABLE_KEY = re.compile(r"[\s=,\x00-\x1f\x7f]")
_MAX_KEY = 200
_MOST_SHOWN = 10
# Keys of every trainer, in Markdown, for the reference.
OWN_KEYS: Mapping[str, str] = {
    "seed": "the seed of a run's random numbers: a whole number, 0 by default",
    "threads": "the number of threads of a run, 1 by default; part of its identity",
}
# Ranges of whole numbers as users write them: 0-4, 0..4, 0 to 4.
_SPAN = re.compile(r"(\d{1,9})\s*(?:-|\.\.\.?|to)\s*(\d{1,9})")


class Keys:
    """The keys so far in ``base``, ``matrix`` and ``zip``: each may be set in one section only."""

    def __init__(self, spec: TrainerSpec, source: YamlFile) -> None:
        self.spec, self.source = spec, source
        self.positions: dict[str, Position] = {}
        self.max_threads = 1
        self._set_in: dict[str, str] = {}

    def add(self, key: str, at: Position, section: str) -> None:
        """Register a key of a section; raise if it cannot be set there."""
        self.check_key(key, at)
        name = bare_key(key)
        if name in self._set_in:
            line = self.positions[name].line
            raise self.source.error(
                at,
                f"{section}: found {shown(key)}, which {self._set_in[name]} sets already on line {line}",
                "keep it in one place",
            )
        self._set_in[name] = section
        self.positions[name] = at
        self.positions.setdefault(key, at)

    def check_key(self, key: str, at: Position) -> None:
        """Refuse keys that no grid may set."""
        if _UNUSABLE_KEY.search(key) or len(key) > _MAX_KEY or not bare_key(key):
            raise self.source.error(
                at,
                f"found the key {shown(key)}, expected at most {_MAX_KEY} characters, no blanks, = or commas",
            )
        name = bare_key(key)
        if name in OWN_KEYS and name != key:
            raise self.source.error(at, f"found {key}, expected {name}: every run has it")
        if name == "target":
            raise self.source.error(at, "found target as a key", "write targets: [...] and compare: true")
        why = self.spec.owned_because(key)
        if why is not None:
            raise self.source.error(at, f"found {key}, which a grid may not set: {why}", "remove the line")

    def check_value(self, key: str, value: Value, at: Position) -> None:
        """Check the ranges of seed and threads, and refuse secrets, for any trainer."""
        self.check_secret(key, value, at)
        if key in LIMITS:
            low, high = LIMITS[key]
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                expected = f"a whole number from {low} to {high}"
                raise self.source.error(
                    at, f"{key}: found {shown(value)}, expected {expected}", _suggest_matrix(key, value)
                )
            if key == "threads":
                self.max_threads = max(self.max_threads, value)

    def check_secret(self, key: str, value: Value, at: Position) -> None:
        """Refuse what looks like a secret."""
        if secret := secret_in(key, value):
            raise self.source.error(
                at,
                f"found {secret}{'' if secret == key else f' in {key}'}, which looks like a secret: grids, "
                "results and reports stay on disk",
                WHERE_THEY_GO,
            )


def one_value(key: str, node: Node, source: YamlFile, *, where: str) -> Value:
    """Return the single value of a key. A sweep is an error here."""
    for scalar in scalars(node):
        _refuse_sweep(key, scalar, source, f"expected one value in {where}", "sweeps belong in matrix")
    return plain_value(node)


def several_values(entry: KeyNode, source: YamlFile) -> list[tuple[Value, Position]]:
    """Return a matrix or zip key's values with positions: a list, a Hydra sweep, or one value.

    Raises :class:`GridError`, and :class:`SweepTextError` for text that only looks like a sweep.
    """
    key, node = entry.key, entry.node
    if isinstance(node, Entries):
        raise source.error(
            node.at,
            f"{key}: found a mapping, expected a list of values",
            values_hint([entry.key for entry in node.entries]) or f"nested keys take dots: {key}.…",
        )
    if isinstance(node, Scalar):
        if node.value is None:
            raise source.error(
                node.at, f"{key}: found nothing, expected a list of values", "[null] is one null"
            )
        swept = sweep_values(node.value) if isinstance(node.value, str) else None
        values = [(value, node.at) for value in (swept if swept is not None else [node.value])]
    else:
        for scalar in scalars(node):
            _refuse_sweep(key, scalar, source, "expected values in a list", f"write {key}: {scalar.value}")
        values = [(plain_value(item), item.at) for item in node.items]
    if not values:
        raise source.error(
            node.at, f"{key}: found an empty list, expected at least one value", "remove the key"
        )
    if len(values) > MAX_POINTS:
        raise source.error(node.at, f"{key}: found {len(values):,} values, expected at most {MAX_POINTS:,}")
    return values


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return the known key nearest to a misspelt one, also by its last part; None if none is near."""
    names = list(known)
    tails = {name.rpartition(".")[2]: name for name in reversed(names)}
    return nearest(key, names) or tails.get(key.rpartition(".")[2])


def require_known(
    section: str, key: str, node: Node, known: Mapping[str, str], source: YamlFile, *, so: str
) -> None:
    """Refuse a condition's value that no point has; ``known``: those that some have, as they are shown.

    ``so``: the consequence of one that no point has. Keys of ``known`` are spelled by :func:`same_value`.
    """
    value = plain_value(node)
    if same_value(value) not in known:
        names = list(known.values())
        more = ", …" if len(names) > _MOST_SHOWN else ""
        raise source.error(
            node.at,
            f"{section}: {key} is never {shown(value)}, so nothing is {so}; "
            f"expected one of: {', '.join(names[:_MOST_SHOWN])}{more}",
            did_you_mean(shown(value), names),
        )


def _refuse_sweep(key: str, scalar: Scalar, source: YamlFile, expected: str, hint: str) -> None:
    if isinstance(scalar.value, str) and scalar.plain and looks_like_sweep(scalar.value):
        raise source.error(
            scalar.at,
            f"{key}: found {shown(scalar.value)}, which Hydra reads as several values; {expected}",
            f"{hint}; quotes make it a text",
        )


def _suggest_matrix(key: str, value: Value) -> str | None:
    """Suggest the spelling in ``matrix`` of a value that looks like several numbers."""
    if isinstance(value, list):
        return f"several values go into matrix: {{{key}: {shown(value)}}}"
    span = _SPAN.fullmatch(value.strip()) if isinstance(value, str) else None
    if span is None:
        return None
    first, stop = int(span[1]), int(span[2]) + 1
    values = f"range({stop})" if first == 0 else f'"range({first},{stop})"'
    return f"did you mean matrix: {{{key}: {values}}}?" if first < stop else None

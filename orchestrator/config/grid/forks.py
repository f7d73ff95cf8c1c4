"""Parse the sections `fork` and `init`: what the runs of a grid start from."""

from __future__ import annotations

import re

from orchestrator.config.grid.model import Fork, Init, bare_key
from orchestrator.config.grid.values import Keys, one_value
from orchestrator.config.yaml_files.nodes import Entries, KeyNode, Node, Scalar, YamlFile, shown
from orchestrator.core.types import Value

_RUN = re.compile(r"(?P<sweep>[^/]+)/(?P<run>[0-9a-f]{16})")
_ONE_RUN = "SWEEP/RUN, with the 16 digits that name the run's folder"
_FORK = "{for: {KEY: VALUE}, at: FRAMES} or {from: SWEEP/RUN}"
_EXAMPLE = "such as fork: {for: {experiment.lr: 5e-5}, at: 60_000}"


def read_fork(node: Node | None, keys: Keys, source: YamlFile) -> Fork | None:
    """Parse where runs fork; null is as no section. Raises :class:`GridError`."""
    if node is None or _is_null(node):
        return None
    _require_free("fork", node, keys, source)
    if not isinstance(node, Entries):
        raise source.unexpected("fork", node, _FORK, _EXAMPLE)
    parts = {entry.key: entry for entry in node.entries}
    if unknown := next((entry for entry in node.entries if entry.key not in ("from", "for", "at")), None):
        raise source.error(unknown.at, f"fork: found {shown(unknown.key)}, expected {_FORK}", _EXAMPLE)
    if ("from" in parts) == ("for" in parts):
        raise source.error(
            node.at, f"fork: found {', '.join(parts) or 'nothing'}, expected {_FORK}", _EXAMPLE
        )
    place = _place(parts["at"], source) if "at" in parts else 0
    if "from" in parts:
        text, run = _one_run("fork.from", parts["from"].node, source)
        return Fork(f"{text}@{place:_}" if place else text, node.at, run, place=place)
    if not place:
        raise source.error(node.at, "fork: found for without at, expected the frames of the fork", _EXAMPLE)
    values = _values(parts["for"], keys, source)
    named = ",".join(f"{bare_key(key)}={shown(value)}" for key, value in sorted(values.items()))
    return Fork(f"{named}@{place:_}", node.at, values=values, place=place)


def read_init(node: Node | None, keys: Keys, source: YamlFile, *, forks: bool) -> Init | None:
    """Parse the run that gives runs their policy; null is as no section. Raises :class:`GridError`."""
    if node is None or _is_null(node):
        return None
    _require_free("init", node, keys, source)
    if forks:
        raise source.error(node.at, "init: found beside fork, which takes over the policy too", "remove one")
    return Init(*_one_run("init", node, source))


def _is_null(node: Node) -> bool:
    """Return whether the section takes back an inherited one."""
    return isinstance(node, Scalar) and node.value is None


def _place(entry: KeyNode, source: YamlFile) -> float:
    value = entry.node.value if isinstance(entry.node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise source.unexpected("fork.at", entry.node, "frames from 1", _EXAMPLE)
    return int(value) if float(value).is_integer() else value


def _one_run(section: str, node: Node, source: YamlFile) -> tuple[str, str]:
    """Return the run as it is named, and its id."""
    text = str(node.value) if isinstance(node, Scalar) else ""
    if (match := _RUN.fullmatch(text)) is None:
        hint = "`orchestrate status SWEEP --json` has them in full"
        raise source.unexpected(section, node, _ONE_RUN, hint)
    return text, match["run"]


def _values(entry: KeyNode, keys: Keys, source: YamlFile) -> dict[str, Value]:
    """Return keys and values of the run that others go on from."""
    if not isinstance(entry.node, Entries):
        raise source.unexpected("fork.for", entry.node, "keys with one value each", _EXAMPLE)
    values = {}
    for one in entry.node.entries:
        keys.check_key(one.key, one.at)
        values[one.key] = value = one_value(one.key, one.node, source, where="fork.for")
        keys.check_value(one.key, value, one.node.at)
    return values


def _require_free(section: str, node: Node, keys: Keys, source: YamlFile) -> None:
    """Refuse a section with the name of a key of the runs: it stands in their points, too."""
    if section in map(bare_key, keys.positions):
        raise source.error(
            node.at, f"{section}: found the section, and a key of the same name", "rename the key"
        )

"""Parse the sections `length` and `keep`: what longer runs need, to go on from shorter ones."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.config.grid.model import bare_key
from orchestrator.config.trainers import TrainerSpec
from orchestrator.config.yaml_files.nodes import Node, Scalar, YamlFile, did_you_mean
from orchestrator.core.types import KEPT


def read_length(node: Node | None, keys: Iterable[str], spec: TrainerSpec, source: YamlFile) -> str:
    """Parse the key of a program's length; empty without one. Raises :class:`GridError`."""
    if node is None:
        return ""
    if not spec.runs_program:
        what = f"length: the section is for programs of the trainer command, not for {spec.name}"
        raise source.error(node.at, what, f"leave it out: {spec.name} has {', '.join(spec.length_keys)}")
    known = sorted(map(bare_key, keys))
    if not isinstance(node, Scalar) or node.value not in known:
        hint = did_you_mean(str(getattr(node, "value", "")), known) or "such as length: steps"
        raise source.unexpected("length", node, f"a key of the runs: {', '.join(known)}", hint)
    return str(node.value)


def read_keep(node: Node | None, source: YamlFile) -> str:
    """Parse what stays of a finished run's last checkpoint. Raises :class:`GridError`."""
    if node is None:
        return KEPT[0]
    if not isinstance(node, Scalar) or node.value not in KEPT:
        raise source.unexpected("keep", node, " or ".join(KEPT), "keep: state is the default")
    return str(node.value)

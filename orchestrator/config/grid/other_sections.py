"""Parse the sections `plugins`, `loggers`, `metrics`, `length`, `library` and `keep`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from orchestrator.config.grid.model import bare_key
from orchestrator.config.trainers import TrainerSpec
from orchestrator.config.yaml_files.nodes import (
    Entries,
    Items,
    Node,
    Scalar,
    YamlFile,
    did_you_mean,
    kind,
    shown,
    texts,
)
from orchestrator.core.metric_files.names import FORMATS, format_of
from orchestrator.core.types import KEPT, PluginSource

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INSTALLED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_METRICS = ("from", "frames", "return")
# As jobs.training.records.loggers has them; csv is the metrics file that every run has.
LOGGERS = ("csv", "tensorboard", "wandb")


def read_plugins(node: Node | None, spec: TrainerSpec, source: YamlFile) -> tuple[PluginSource, ...]:
    """Parse the plug-ins named by one text or a list of them.

    A text with a slash, ``.`` or ``..`` is the folder of a package, relative to the grid file; any other is
    the name of an installed package. Raises :class:`GridError`.
    """
    if node is None:
        return ()
    if not spec.takes_plugins:
        raise source.error(node.at, f"plugins: found {kind(node)}, but the trainer {spec.name} takes none")
    plugins: dict[str, PluginSource] = {}
    expected = "the folder of a package or an installed one's name"
    for text, item in texts("plugins", node, source, expected, "such as plugins: ./my_marl"):
        plugin = _plugin(text, item, source)
        if plugin.name in plugins:
            raise source.error(item.at, f"plugins: found {plugin.name} twice", "remove or rename one of them")
        plugins[plugin.name] = plugin
    return tuple(plugins.values())


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


def read_library(node: Node | None, source: YamlFile) -> tuple[str, ...]:
    """Parse the names of results trees. Raises :class:`GridError`."""
    if node is None:
        return ()
    expected = "names of results trees", "such as library: [/lab/results, me@cluster:project/results]"
    return tuple(text for text, _ in texts("library", node, source, *expected))


def read_keep(node: Node | None, source: YamlFile) -> str:
    """Parse what stays of a finished run's last checkpoint. Raises :class:`GridError`."""
    if node is None:
        return KEPT[0]
    if not isinstance(node, Scalar) or node.value not in KEPT:
        raise source.unexpected("keep", node, " or ".join(KEPT), "keep: state is the default")
    return str(node.value)


def _plugin(text: str, item: Node, source: YamlFile) -> PluginSource:
    if "/" not in text and text not in (".", ".."):
        if not _INSTALLED.fullmatch(text):
            raise source.error(item.at, f"plugins: found {text!r}, expected the name of an installed plug-in")
        return PluginSource(text)
    folder = (Path(source.name).absolute().parent / Path(text).expanduser()).resolve()
    if not _NAME.fullmatch(folder.name):
        raise source.error(
            item.at,
            f"plugins: found the folder {folder.name!r}, expected a name that Python can import: letters, "
            "digits and underscores",
        )
    return PluginSource(folder.name, str(folder))


def read_loggers(node: Node | None, spec: TrainerSpec, source: YamlFile) -> tuple[str, ...]:
    """Parse the names of loggers. Raises :class:`GridError`."""
    if node is None:
        return ()
    if not spec.runs_program:
        key = next((key for key in spec.inert if key.rpartition(".")[2] == "loggers"), None)
        raise source.error(
            node.at,
            f"loggers: the section is for programs of the trainer command, not for {spec.name}",
            f"write base: {{{key}: [csv, wandb]}}" if key else None,
        )
    hint = "such as loggers: [tensorboard, wandb]"
    if not isinstance(node, Items):
        raise source.unexpected("loggers", node, "a list of names", hint)
    return tuple(_logger(item, source, hint) for item in node.items)


def _logger(item: Node, source: YamlFile, hint: str) -> str:
    name = item.value if isinstance(item, Scalar) else None
    if not isinstance(name, str) or name not in LOGGERS:
        hint = did_you_mean(str(name), LOGGERS, otherwise=hint) or hint
        raise source.unexpected("loggers", item, f"names of {', '.join(LOGGERS)}", hint)
    return name


def read_metrics(node: Node | None, spec: TrainerSpec, source: YamlFile) -> dict[str, str]:
    """Parse where metrics are found, and the names of frames and return. Raises :class:`GridError`."""
    if node is None:
        return {}
    hint = "such as metrics: {from: tensorboard, frames: step, return: charts/episodic_return}"
    if not spec.runs_program:
        what = f"metrics: the section is for programs of the trainer command, not for {spec.name}"
        raise source.error(node.at, what, "leave it out: its metrics have names of their own")
    if not isinstance(node, Entries):
        raise source.unexpected("metrics", node, f"a mapping of {', '.join(_METRICS)}", hint)
    found = {}
    for entry in node.entries:
        if entry.key not in _METRICS:
            near = did_you_mean(entry.key, _METRICS, otherwise=hint)
            raise source.error(
                entry.at, f"metrics: found {shown(entry.key)}, expected {', '.join(_METRICS)}", near
            )
        value = entry.node.value if isinstance(entry.node, Scalar) else None
        if not isinstance(value, str) or not value:
            raise source.unexpected(f"metrics.{entry.key}", entry.node, "a text", hint)
        found[entry.key] = value
        if entry.key == "from":
            _require_source(value, entry.node, source)
    return found


def _require_source(value: str, node: Node, source: YamlFile) -> None:
    """Refuse a source that is neither a format nor a file of one in the working folder."""
    path = PurePosixPath(value)
    if value in FORMATS or (format_of(path) and not path.is_absolute() and ".." not in path.parts):
        return
    expected = f"one of {', '.join(FORMATS)}, or a file of such a format in the run's working folder"
    near = did_you_mean(value, FORMATS, otherwise="such as from: csv, or from: logs/progress.csv")
    raise source.unexpected("metrics.from", node, expected, near)

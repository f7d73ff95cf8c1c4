"""Parse the sections `loggers` and `metrics`: where a program's metrics go, and where they come from."""

from __future__ import annotations

from pathlib import PurePosixPath

from orchestrator.config.trainers import TrainerSpec
from orchestrator.config.yaml_files.nodes import Entries, Items, Node, Scalar, YamlFile, did_you_mean, shown
from orchestrator.core.metric_files.names import FORMATS, format_of

_METRICS = ("from", "frames", "return")
# As jobs.training.records.loggers has them; csv is the metrics file that every run has.
LOGGERS = ("csv", "tensorboard", "wandb")


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
    return tuple(_name(item, source, hint) for item in node.items)


def _name(item: Node, source: YamlFile, hint: str) -> str:
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

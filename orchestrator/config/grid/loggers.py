"""Parse the section `loggers`: where the metrics of a program go besides its own metrics file."""

from __future__ import annotations

from orchestrator.config.trainers import TrainerSpec
from orchestrator.config.yaml_files.nodes import Items, Node, Scalar, YamlFile, did_you_mean

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

"""Sinks for a run's metrics besides its own metrics file: Weights & Biases and TensorBoard.

A resumed attempt first logs again the history that it continues, so the files of the last attempt hold each
step exactly once. No sink needs a network.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from jobs.training.context import BadConfigError, FencedRun, RunContext
from jobs.training.records import provenance
from jobs.wandb.reachable import unreachable
from orchestrator.config.command_line.command import COMMAND_KEY
from orchestrator.config.trainers import get_trainer, x_axis_of
from orchestrator.core.types import Run
from orchestrator.rundir import Row
from orchestrator.rundir.uploads import wandb_id

if TYPE_CHECKING:
    import torch

# Arguments of TorchRL's W&B logger that W&B itself lacks. "offline" is obeyed, the folder is ours.
_TORCHRL_ONLY = ("offline", "save_dir", "video_fps")

CSV, WANDB, TENSORBOARD = "csv", "wandb", "tensorboard"


@dataclass(frozen=True)
class Logging:
    """The loggers of a run by ``names``, of which ``csv`` is the run's own metrics file.

    ``project``: that of W&B; ``extra``: further arguments for W&B, in the trainer's vocabulary. ``tag``:
    TensorBoard's name of a metric.
    """

    names: Sequence[str] = ()
    project: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    tag: Callable[[str], str] = str


class Sink(Protocol):
    """A destination of metrics."""

    def log(self, row: Row) -> None:
        """Log one iteration."""

    def log_video(self, name: str, video: torch.Tensor, step: int) -> None:
        """Log ``video``, uint8 of shape (1, frames, channels, height, width)."""
        ...

    def close(self, *, finished: bool) -> None:
        """Make all logged data readable. ``finished``: the run is done, not interrupted."""
        ...


def require_loggers(names: Iterable[str]) -> None:
    """Raise :class:`BadConfigError` for the name of a logger that does not exist."""
    for name in names:
        if name not in (CSV, TENSORBOARD, WANDB):
            raise BadConfigError(
                f"no logger named {name!r} (there are: {CSV}, {TENSORBOARD}, {WANDB})",
                hint="change the loggers in the grid",
            )


def thinned(rows: Sequence[Row], most: int) -> Sequence[Row]:
    """Return at most so many rows: neighbours become one, with the later one's values of what both have."""
    while len(rows) > most:
        odd = len(rows) % 2  # so that the last row stays the last
        pairs = zip(rows[odd::2], rows[odd + 1 :: 2], strict=True)
        rows = [
            *rows[:odd],
            *(replace(later, metrics={**one.metrics, **later.metrics}) for one, later in pairs),
        ]
    return rows


@contextmanager
def logging_to(
    where: Logging, context: RunContext, config: Mapping[str, Any], history: Sequence[Row] | None = None
) -> Iterator[list[Sink]]:
    """Open the sinks of a run, log the history so far, and close them at the end.

    ``history``: the run's rows by default. An error means an unfinished run. With the claim lost the sinks
    are dropped: nothing more may be written.
    """
    sinks = _opened(where, context, config)
    for sink in sinks:
        for row in context.rows if history is None else history:
            sink.log(row)
    finished = False
    try:
        yield sinks
        finished = True
    except FencedRun:
        sinks = []
        raise
    finally:
        for sink in sinks:
            sink.close(finished=finished)


def _opened(where: Logging, context: RunContext, config: Mapping[str, Any]) -> list[Sink]:
    require_loggers(where.names)
    kinds: dict[str, Callable[[RunContext, Mapping[str, Any], Logging], Sink]] = {
        WANDB: WandbSink,
        TENSORBOARD: TensorboardSink,
    }
    return [kinds[name](context, config, where) for name in dict.fromkeys(where.names) if name in kinds]


class WandbSink:
    """One W&B run per run, for all its attempts; the W&B group is the sweep."""

    def __init__(self, context: RunContext, config: Mapping[str, Any], where: Logging) -> None:
        import wandb

        run = context.run
        self._x_axis = x_axis_of(run.trainer)
        self._wandb = wandb
        self._run = wandb.init(
            **{
                "project": where.project,
                "name": _readable_name(run),
                **{key: value for key, value in where.extra.items() if key not in _TORCHRL_ONLY},
                "id": wandb_id(context.sweep, run.run_id, context.run_dir.retired),
                "group": context.sweep,
                "config": {**config, "orchestrate": _identity(context)},
                "dir": str(context.attempt.path),
                "mode": "offline" if where.extra.get("offline") else _wandb_mode(wandb),
                "settings": _quiet_settings(wandb),
            }
        )

    def log(self, row: Row) -> None:
        # Committed by the next step: this one may be logged in several parts.
        self._run.log(dict(row.metrics), step=getattr(row, self._x_axis), commit=False)

    def log_video(self, name: str, video: torch.Tensor, step: int) -> None:
        clip = self._wandb.Video(video.squeeze(0).numpy(), fps=20, format="mp4")
        self._run.log({name.replace("_", "/", 1): clip}, step=step, commit=False)

    def close(self, *, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class TensorboardSink:
    """An event file in the attempt's folder, written without PyTorch."""

    def __init__(self, context: RunContext, config: Mapping[str, Any], where: Logging) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._x_axis, self._tag = x_axis_of(context.run.trainer), where.tag
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = EventFileWriter(str(context.attempt.path))
        self._add(text_pb("config", "\n".join(f"    {key}: {value}" for key, value in config.items())))

    def log(self, row: Row) -> None:
        values = [
            self._summary.Value(tag=self._tag(name), simple_value=value)
            for name, value in row.metrics.items()
        ]
        self._add(self._summary(value=values), getattr(row, self._x_axis))

    def log_video(self, name: str, video: torch.Tensor, step: int) -> None:
        from torch.utils.tensorboard import summary

        self._add(summary.video(name, video, fps=20), step)

    def _add(self, summary: Any, step: int = 0) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))

    def close(self, *, finished: bool) -> None:  # noqa: ARG002
        self._writer.close()


def _wandb_mode(wandb: Any) -> str:
    """Choose offline unless the environment asks for online, holds a key, and the server is there."""
    if os.environ.get("WANDB_MODE") != "online":
        return "offline"
    if not os.environ.get("WANDB_API_KEY"):
        why_not = "there is no WANDB_API_KEY"
    else:
        why_not = unreachable(wandb.setup().settings.base_url)
    if why_not:
        sys.stderr.write(f"W&B: WANDB_MODE is online, but {why_not}: logging offline\n")
    return "offline" if why_not else "online"


def _quiet_settings(wandb: Any) -> Any:
    return wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        x_disable_stats=True,
        x_disable_machine_info=True,
    )


def _identity(context: RunContext) -> dict[str, Any]:
    """Return the run's ids and what it is trained with."""
    spec, claim = get_trainer(context.run.trainer), context.attempt.claim()
    return {
        "run_id": context.run.run_id,
        "sweep": context.sweep,
        "attempt": context.attempt.number,
        "trainer": context.run.trainer,
        "point": context.run.point,
        "threads": context.run.threads,
        "code_id": claim.code_id if claim else None,
        "versions": provenance.versions(spec, context.run),
        "host": provenance.host(),
    }


def _readable_name(run: Run) -> str:
    """Name the run as in "mappo navigation seed=1 lr=0.0003": choices by value, then other deciding keys."""
    decides = get_trainer(run.trainer).decides
    choices, others = [], []
    for key, value in run.overrides.items():
        if not decides(key) or key == COMMAND_KEY:
            continue
        if "." not in key and isinstance(value, str):
            choices.append(value.rsplit("/", 1)[-1])
        else:
            others.append(f"{key.rsplit('.', 1)[-1]}={value}")
    return " ".join([*choices, f"seed={run.seed}", *others])[:128]

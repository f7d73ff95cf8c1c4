"""Names under which loggers write frames and returns, and the rows of a run's metrics that come of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from orchestrator.core.metric_files.points import Point

TENSORBOARD, WANDB, JSONL, CSV, MONITOR = FORMATS = ("tensorboard", "wandb", "jsonl", "csv", "monitor")
# The step that a logger counts by itself.
_STEP: Final = ("step", "_step")
# Best first; in lower case.
_FRAMES = (
    *("frames", "global_step", "time/total_timesteps", "total_timesteps", "timesteps", "num_timesteps"),
    *("timesteps_total", "num_env_steps_sampled_lifetime", "total_steps", "env_steps", "env_step", "frame"),
    *("total_frames", "total_env_steps", "steps", "step", "iteration", "training_iteration", "epoch"),
    *("episode", "episodes"),
)
_EVALUATIONS = (
    *("eval/return", "eval/mean_reward", "eval/episodic_return", "eval/episode_reward", "eval_return"),
)
_RETURNS = (
    *("return", "charts/episodic_return", "rollout/ep_rew_mean", "episodic_return", "episode_return"),
    *("episode_reward", "ep_rew_mean", "ep_return", "env_runners/episode_return_mean", "episode_reward_mean"),
    *("mean_reward", "reward", "returns", "train/return", "train/reward", "r"),
)
_BEYOND = float(1 << 63)


def format_of(path: PurePath) -> str:
    """Return the format of a file by its name, empty if it is none of metrics."""
    name = path.name.lower()
    if WANDB in path.parts[:-1]:
        return WANDB if name.endswith(".wandb") else ""
    if ".tfevents." in name:
        return TENSORBOARD
    if name.endswith((".jsonl", ".ndjson")) or name == "progress.json":
        return JSONL
    if name.endswith(".csv"):
        return MONITOR if name.endswith("monitor.csv") else CSV
    return WANDB if name.endswith(".wandb") else ""


@dataclass(frozen=True)
class FoundRow:
    """Metrics after ``frames`` frames; ``time``: seconds since the epoch, ``None`` if it was not recorded.

    ``earlier``: an earlier attempt wrote it, and this one continues from it.
    """

    frames: int
    values: Mapping[str, float]
    time: float | None = None
    earlier: bool = False


@dataclass(frozen=True)
class Names:
    """The series that count as frames and as returns, of training and of evaluations.

    Empty: the step of the logger, and no return.
    """

    frames: str = ""
    training: str = ""
    evaluation: str = ""

    @classmethod
    def of(cls, names: Iterable[str], file_format: str, declared: Mapping[str, str]) -> Names:
        """Choose among recorded names, as ``declared`` in a grid: ``frames`` and ``return``."""
        by_name = {name.lower().replace(".", "/"): name for name in reversed(list(names))}
        known = {} if file_format == TENSORBOARD else by_name
        frames = declared.get("frames") or _first(known, _FRAMES)
        if chosen := declared.get("return", ""):
            is_evaluation = chosen.lower().startswith("eval")
            return cls(frames, "" if is_evaluation else chosen, chosen if is_evaluation else "")
        return cls(frames, _first(by_name, _RETURNS), _first(by_name, _EVALUATIONS))

    def with_returns(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the values with those that count as returns also under the names that mean it."""
        own = {"return": self.training, "eval/return": self.evaluation}
        return {**values, **{name: values[series] for name, series in own.items() if series in values}}


@dataclass
class RowMaker:
    """Turn points into rows. ``counts``: without a series of frames, rows are counted.

    ``total``: the frames so far, of logs without them on each line.
    """

    names: Names
    file_format: str
    counts: bool = False
    total: float | None = None

    def rows(self, points: Iterable[Point]) -> Iterator[FoundRow]:
        for point in points:
            self.total = self._frames(point)
            if self.total is not None and 0 <= self.total < _BEYOND:
                yield FoundRow(int(self.total), self.names.with_returns(point.values), point.time)

    def _frames(self, point: Point) -> float | None:
        if self.file_format == MONITOR:  # a line for each episode, with its length
            return (self.total or 0) + point.values.get("l", 0)
        name = self.names.frames
        if name in point.values:
            return point.values[name] if math.isfinite(point.values[name]) else self.total
        if name and name not in _STEP:
            return self.total
        return (self.total or 0) + 1 if self.counts and point.step is None else point.step


def _first(by_name: Mapping[str, str], known: Iterable[str]) -> str:
    return next((by_name[name] for name in known if name in by_name), "")

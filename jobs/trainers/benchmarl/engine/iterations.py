"""BenchMARL's logger as ours: one row of metrics per iteration, for the metrics file and the sinks."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from benchmarl.experiment import Experiment
from benchmarl.experiment.logger import Logger
from tensordict import TensorDictBase

from jobs.trainers.benchmarl.configuration.config import Composed
from jobs.training.context import RunContext
from jobs.training.records.loggers import Logging, Sink, logging_to
from orchestrator.planning.throughput.measure import COLLECTION_TIMER, LEARNING_TIMER
from orchestrator.rundir import Row


class IterationLogger(Logger):
    """A logger of BenchMARL that gathers one :class:`Row` per iteration.

    ``end_iteration`` is called with the row when it is recorded.
    """

    def __init__(
        self,
        experiment: Experiment,
        composed: Composed,
        context: RunContext,
        end_iteration: Callable[[Row], None],
    ) -> None:
        super().__init__(
            experiment_name=experiment.name,
            folder_name=str(experiment.folder_name),
            experiment_config=_without_loggers(experiment.config),
            algorithm_name=experiment.algorithm_name,
            environment_name=experiment.environment_name,
            task_name=experiment.task_name,
            model_name=experiment.model_name,
            group_map=experiment.group_map,
            seed=experiment.seed,
            project_name=experiment.config.project_name,
            wandb_extra_kwargs={},
        )
        self._experiment, self._composed, self._context = experiment, composed, context
        self._end_iteration = end_iteration
        self._metrics: dict[str, float] = {}
        self._sinks: list[Sink] = []
        self._wall_time = 0.0
        self._iteration_began = time.monotonic()
        self.loggers = [self]  # BenchMARL logs training and evaluation only if this list is not empty

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Have the sinks open; training starts now."""
        context, user = self._context, self._composed.experiment
        where = Logging(
            self._composed.loggers,
            user.project_name,
            user.wandb_extra_kwargs,
            tag=lambda name: name.replace("/", "_"),  # as BenchMARL's own loggers name them
        )
        with logging_to(where, context, hyperparameters(self._experiment, user)) as self._sinks:
            self._wall_time = context.rows[-1].wall_time if context.rows else 0.0
            self._iteration_began = time.monotonic()
            yield

    def log(self, dict_to_log: dict[str, Any], step: int | None = None) -> None:  # noqa: ARG002
        """Gather metrics of the current iteration."""
        self._metrics.update({name: float(value) for name, value in dict_to_log.items()})

    def log_video(self, name: str, video: torch.Tensor, step: int) -> None:
        """Pass a video to the sinks."""
        for sink in self._sinks:
            sink.log_video(name, video, step)

    def log_evaluation(self, rollouts: list[TensorDictBase], *args: Any, **kwargs: Any) -> None:
        """Log an evaluation, with metrics of the task's own where it has ``evaluation_info(steps)``."""
        super().log_evaluation(rollouts, *args, **kwargs)
        task = self._experiment.task
        if hasattr(task, "evaluation_info"):
            self.log(task.evaluation_info(torch.cat(rollouts)))  # cut where the first episodes end

    def commit(self) -> None:
        """End the iteration: record its row."""
        row = self._row()
        self._context.record(row)  # first: it refuses if the claim is lost
        for sink in self._sinks:
            sink.log(row)
        self._end_iteration(row)

    def finish(self) -> None:
        """Do nothing at BenchMARL's end of an experiment, which :meth:`logging` completes."""

    def _row(self) -> Row:
        now = time.monotonic()
        seconds, self._iteration_began = now - self._iteration_began, now
        self._wall_time += seconds
        metrics, self._metrics = self._metrics, {}
        frames = metrics["counters/current_frames"]
        training = metrics[COLLECTION_TIMER] + metrics[LEARNING_TIMER]
        if training > 0:  # BenchMARL measures them by a clock that can be set back
            metrics["speed/training_fps"] = frames / training
        metrics["speed/end_to_end_fps"] = frames / seconds
        metrics["system/peak_memory_mb"] = self._context.memory.peak_mb()
        iteration, total = int(metrics["counters/iter"]), int(metrics["counters/total_frames"])
        return Row(iteration, total, self._wall_time, metrics)


def hyperparameters(experiment: Experiment, user: Any) -> dict[str, Any]:
    """Return what BenchMARL gives its loggers, with ``user``, the run's own values of the experiment."""
    return {
        "critic_model_name": experiment.critic_model_name,
        "experiment_config": dict(user.__dict__),
        "algorithm_config": dict(experiment.algorithm_config.__dict__),
        "model_config": dict(experiment.model_config.__dict__),
        "critic_model_config": dict(experiment.critic_model_config.__dict__),
        "task_config": experiment.task.config,
        "continuous_actions": experiment.continuous_actions,
        "on_policy": experiment.on_policy,
        "algorithm_name": experiment.algorithm_name,
        "model_name": experiment.model_name,
        "task_name": experiment.task_name,
        "environment_name": experiment.environment_name,
        "seed": experiment.seed,
    }


def _without_loggers(config: Any) -> Any:
    config = copy.copy(config)
    config.loggers = []
    return config

"""A trainer made of a typed configuration and a learner: its `train`, `check` and `evaluate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

import torch

from jobs.check import Problem
from jobs.evaluate import EvaluationAnswer, EvaluationRequest
from jobs.hydra.typed_config import TypedConfig
from jobs.training.best_policy import policy_in
from jobs.training.checkpoints import read_payload
from jobs.training.context import Outcome, RunContext
from jobs.training.loop import Learner, Schedule, train_on_schedule
from jobs.training.parts import restore
from jobs.training.records.loggers import require_loggers
from jobs.training.time_budget import minutes_of
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run

T = TypeVar("T")


@dataclass(frozen=True)
class LearnerTrainer(Generic[T]):
    """The functions that a trainer's description names.

    ``learner``: build one from a configuration and a seed. ``schedule``: that of a configuration; a run's
    ``minutes`` come in by themselves. ``require_sense`` raises :class:`BadConfigError` for a configuration of
    right values that would fail.
    """

    config: TypedConfig[T]
    learner: Callable[[T, int], Learner]
    schedule: Callable[[T], Schedule]
    require_sense: Callable[[T], None] = lambda _: None

    def check(self, runs: Sequence[Run]) -> list[Problem]:
        """Return one problem per fault, each with the first run that has it."""
        return self.config.problems(runs, self._require_sense)

    def _require_sense(self, config: T) -> None:
        self.require_sense(config)
        require_loggers(self.schedule(config).loggers)

    def train(self, context: RunContext) -> Outcome:
        """Train a run to its end. Raises :class:`BadConfigError`, and what :func:`train_on_schedule` does."""
        run = context.run
        torch.set_num_threads(run.threads)
        config: Any = self.config.compose(run.overrides)
        self._require_sense(config)
        schedule, minutes = self.schedule(config), minutes_of(run)
        if minutes is not None:
            fixed = any(key in run.overrides for key in get_trainer(run.trainer).frames)
            schedule = replace(schedule, minutes=minutes, frames=schedule.frames if fixed else None)
        known = {**asdict(config), "seed": run.seed, "minutes": minutes}
        with self._learners(config, context) as build:
            # Computing may start threads, and the processes of a run are forked without any.
            return train_on_schedule(context, build, schedule, known, self.facts(config))

    @contextmanager
    def _learners(self, config: T, context: RunContext) -> Iterator[Callable[[], Learner]]:
        """Hold what a training needs beside its learner; yield what builds that."""
        yield lambda: self.learner(config, context.run.seed)

    def facts(self, config: T) -> Mapping[str, Any]:  # noqa: ARG002
        """Return what a run's result records beside its training."""
        return {}

    def evaluate(self, request: EvaluationRequest) -> EvaluationAnswer:
        """Play the episodes of a request as training evaluates.

        Raises :class:`OrchestrateError`, and ``FileNotFoundError`` if training removed the checkpoint.
        """
        run = request.run
        if request.film is not None:
            raise OrchestrateError(f"the trainer {run.trainer} makes no films", hint="leave out --render")
        if request.task is not None:
            raise OrchestrateError(
                f"the trainer {run.trainer} evaluates policies on the task of their training alone",
                hint="leave out --on-task",
            )
        torch.set_num_threads(run.threads)
        config = self.config.compose(run.overrides)
        usual = self.schedule(config).evaluation
        policy, frames = policy_in(read_payload(request.checkpoint), best=request.best)
        learner = self.learner(config, request.seed)
        restore(learner.policy, policy)
        deterministic = usual.deterministic if request.deterministic is None else request.deterministic
        began = time.monotonic()
        played = learner.play(request.episodes or request.times * usual.episodes, request.seed, deterministic)
        return EvaluationAnswer(
            frames,
            usual.task,
            deterministic,
            tuple(played.returns),
            tuple(played.lengths),
            time.monotonic() - began,
            played.figures,
        )

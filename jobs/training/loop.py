"""A training loop for trainers that write none: iterations, evaluations, checkpoints, metrics, the end.

A trainer gives a :class:`Learner` and a :class:`Schedule`. An interrupted run goes on from its last
checkpoint with the whole state. The last two checkpoints stay, and policies are kept at fixed intervals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from jobs.training.best_policy import BestPolicy
from jobs.training.checkpoint_clock import CheckpointClock
from jobs.training.checkpoints import MISFITS, CheckpointStore, Loaded, read_checkpoint, save_file
from jobs.training.context import Outcome, RunContext, UsualEvaluation
from jobs.training.forking import Fork, misfit, with_own_options
from jobs.training.parts import restore, state_of
from jobs.training.records.loggers import Logging, Sink, logging_to
from jobs.training.time_budget import TimeBudget
from orchestrator.config.returns import EPISODE_RETURN, EVALUATION_RETURN, EVALUATIONS
from orchestrator.planning.throughput.measure import (
    COLLECTION_TIMER,
    EVALUATION_TIMER,
    LEARNING_TIMER,
    training_seconds,
)
from orchestrator.rundir import ResumePoint, Row

if TYPE_CHECKING:
    import torch

# Keys of what is played, by shell-style patterns: a fork that changes one begins new episodes.
_PLAYED = ("task", "task.*", "seed", "envs", "mode", "actors", "rollout_steps", "device")
# Added to a run's seed for the episodes of its evaluations.
_EVALUATION = 2_000_003


@dataclass(frozen=True)
class Played:
    """Whole episodes: their returns, their lengths in steps, and further figures by name."""

    returns: Sequence[float]
    lengths: Sequence[int]
    figures: Mapping[str, float] = field(default_factory=dict)


class Learner(Protocol):
    """What is trained.

    ``frames_per_iteration``: environment steps; ``exactness`` as in :class:`Outcome`. The state is that of
    the ``policy``, of all else that learning changes (``learned``), such as an optimizer, and of what else is
    ``running``: environments, random generators. The latter two are parts (:mod:`jobs.training.parts`).
    """

    frames_per_iteration: int

    @property
    def exactness(self) -> str: ...

    @property
    def policy(self) -> torch.nn.Module: ...

    @property
    def learned(self) -> Any: ...

    @property
    def running(self) -> Any: ...

    def collect(self) -> Any:
        """Play the steps of an iteration; return what to learn from."""
        ...

    def learn(self, collected: Any, done: float) -> dict[str, float]:
        """Learn from it; return metrics. ``done``: the share of the training before, for schedules."""
        ...

    def play(self, episodes: int, seed: int, deterministic: bool) -> Played:
        """Play whole episodes with the policy, without a trace in the training."""
        ...


@dataclass(frozen=True)
class Schedule:
    """When a training ends, evaluates, keeps policies, and where it logs.

    ``frames``: environment steps to train, at least; ``minutes`` of the training clock instead, or whichever
    comes first. Intervals are in frames, 0 for none.
    """

    frames: int | None
    evaluation_interval: int
    evaluation: UsualEvaluation
    minutes: float | None = None
    policy_interval: int = 0
    loggers: Sequence[str] = ()
    project: str = ""


def train_on_schedule(
    context: RunContext,
    build: Callable[[], Learner],
    schedule: Schedule,
    config: Mapping[str, Any],
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Outcome:
    """Train a run to its end, from its newest whole checkpoint.

    ``config``: JSON values, for the result and the loggers; ``facts``: for the result alone. Raises
    :class:`DamagedFileError` for a checkpoint that does not fit, and what :class:`RunContext` raises.
    """
    store = CheckpointStore(context.run_dir, context.attempt, context.guard)
    loaded = store.newest(context.candidates())
    context.begin(ResumePoint(loaded.file.attempt, loaded.file.frames) if loaded else None)
    outcome = _Loop(context, build(), schedule, config, store, loaded).run()
    return replace(outcome, extra=facts)


def iterate(learner: Learner, done: float) -> dict[str, float]:
    """Collect and learn once; return metrics, with the seconds of both unless the learner measures them."""
    began = time.monotonic()
    found = learner.collect()
    collected = time.monotonic()
    metrics = learner.learn(found, done)
    ended = time.monotonic()
    return {COLLECTION_TIMER: collected - began, LEARNING_TIMER: ended - collected, **metrics}


class _Loop:
    """One attempt at a run."""

    def __init__(
        self,
        context: RunContext,
        learner: Learner,
        schedule: Schedule,
        config: Mapping[str, Any],
        store: CheckpointStore,
        loaded: Loaded | None,
    ) -> None:
        self._context, self._learner, self._schedule, self._store = context, learner, schedule, store
        self._config = config
        self._clock = CheckpointClock(0)
        self._time = TimeBudget(schedule.minutes, context.rows)
        self._best = BestPolicy()
        self._policies: list[Path] = context.run_dir.policies(below=context.attempt.number)
        self._sinks: list[Sink] = []
        self._logged = time.monotonic()
        for part in (learner.policy, learner.learned, learner.running):
            state_of(part)  # what has no state is refused now, not at the first checkpoint
        if loaded is not None:
            self._load(loaded)
        elif (init := context.init) is not None:
            self._begin_with(init)

    def run(self) -> Outcome:
        context, schedule = self._context, self._schedule
        where = Logging(schedule.loggers, schedule.project)
        with logging_to(where, context, self._config) as self._sinks:
            self._clock.start(self._frames)
            self._logged = time.monotonic()
            while not self._over:
                self._iterate()
            state = self._state(running=context.keeps_state)
        context.before_checkpoint()
        final = self._store.save(self._frames, state)
        context.checkpointed(self._frames)
        policy = save_file(context.attempt.policy, self._policy())
        return Outcome(
            frames=self._frames,
            iterations=context.rows[-1].iteration,
            exactness=self._learner.exactness,
            config=self._config,
            evaluation=schedule.evaluation if schedule.evaluation_interval else None,
            files=((final.path, True), (policy, True), *((path, False) for path in self._policies)),
            final_state=(final.path,) if context.keeps_state else (),
        )

    @property
    def _frames(self) -> int:
        rows = self._context.rows
        return rows[-1].frames if rows else 0

    @property
    def _over(self) -> bool:
        enough = self._schedule.frames is not None and self._frames >= self._schedule.frames
        return enough or self._time.over

    @property
    def _total(self) -> int | None:
        """The frames of the whole run, as far as they can be known."""
        known = (self._schedule.frames, self._time.total_frames(self._frames))
        return min((total for total in known if total is not None), default=None)

    def _iterate(self) -> None:
        context, before, total = self._context, self._context.rows[-1:], self._total
        frames = self._frames + self._learner.frames_per_iteration
        metrics = iterate(self._learner, min(1.0, self._frames / total) if total else 0.0)
        if self._due(self._schedule.evaluation_interval, frames):
            metrics |= self._evaluate()
        now = time.monotonic()
        seconds, self._logged = now - self._logged, now
        metrics["train/steps_per_sec"] = self._learner.frames_per_iteration / seconds
        metrics["system/peak_memory_mb"] = context.memory.peak_mb()
        iteration, wall_time = (before[0].iteration, before[0].wall_time) if before else (0, 0.0)
        row = Row(iteration + 1, frames, wall_time + seconds, metrics)
        if training := training_seconds(row):
            metrics["speed/training_fps"] = self._learner.frames_per_iteration / training
        keeps = self._due(self._schedule.policy_interval, frames)
        context.record(row)
        for sink in self._sinks:
            sink.log(row)
        self._time.spend(row)
        self._best.consider(row, self._policy)
        context.progress(frames, self._total, metrics.get(EVALUATION_RETURN, metrics.get(EPISODE_RETURN)))
        if keeps:
            self._keep_policy(frames)
        if not self._over and (keeps or context.stopping or self._clock.due(frames)):
            self._save()
        context.iteration_done()

    def _evaluate(self) -> dict[str, float]:
        began, usual = time.monotonic(), self._schedule.evaluation
        played = self._learner.play(usual.episodes, self._context.run.seed + _EVALUATION, usual.deterministic)
        return {
            EVALUATION_RETURN: fmean(played.returns),
            f"{EVALUATIONS}length": fmean(played.lengths),
            **{f"{EVALUATIONS}{name}": value for name, value in played.figures.items()},
            EVALUATION_TIMER: time.monotonic() - began,
        }

    def _due(self, interval: int, frames: int) -> bool:
        """Whether a multiple of the interval lies in an iteration that ends after ``frames``."""
        return interval > 0 and frames // interval > self._frames // interval

    def _save(self) -> None:
        began = time.monotonic()
        self._context.before_checkpoint()
        self._store.save(self._frames, self._state(running=True))
        self._context.checkpointed(self._frames)
        self._clock.written(self._frames, time.monotonic() - began)

    def _keep_policy(self, frames: int) -> None:
        path = self._context.attempt.kept_policy(frames)
        self._context.guard()
        save_file(path, self._state(running=False))
        self._policies = [*(one for one in self._policies if one.name != path.name), path]

    def _policy(self) -> dict[str, Any]:
        return state_of(self._learner.policy)

    def _state(self, *, running: bool) -> dict[str, Any]:
        learner, last = self._learner, self._context.rows[-1]
        return {
            "policy": self._policy(),
            "learned": state_of(learner.learned),
            "running": state_of(learner.running) if running else None,
            "best": self._best.save(),
            "counters": {"total_frames": last.frames, "iterations": last.iteration},
        }

    def _load(self, loaded: Loaded) -> None:
        payload, learner = loaded.payload, self._learner
        try:
            restore(learner.policy, payload["policy"])
            fork = Fork.at(self._context, loaded.file)
            learned = payload["learned"]
            restore(
                learner.learned, with_own_options(learned, state_of(learner.learned)) if fork else learned
            )
            if fork is not None and fork.changes(*_PLAYED):
                return
            if payload["running"] is not None:  # None: it was finished, but had no result
                restore(learner.running, payload["running"])
            self._best.load(payload["best"])
        except MISFITS as error:
            raise misfit(self._context, loaded.file.path, loaded.file.attempt, error) from error

    def _begin_with(self, init: Path) -> None:
        try:
            restore(self._learner.policy, read_checkpoint(init, init)["policy"])
        except MISFITS as error:
            raise misfit(self._context, init, 0, error) from error

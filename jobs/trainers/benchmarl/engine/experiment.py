"""BenchMARL's experiment, made to survive kills.

Training is BenchMARL's own loop, unchanged. Three of its seams are used: the logger (its ``commit`` ends an
iteration), the construction of environments (to follow their episodes), and the moment between seeding and
the first iteration (to restore a saved state).
"""

from __future__ import annotations

import functools
import gc
import logging
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from benchmarl.experiment import Experiment
from benchmarl.experiment import experiment as benchmarl_experiment
from benchmarl.utils import local_seed
from torchrl import logger as torchrl_logger

from jobs.trainers.benchmarl.configuration.config import Composed, compose
from jobs.trainers.benchmarl.configuration.registry import callbacks
from jobs.trainers.benchmarl.configuration.time_bound import TimeIsUp, unbounded
from jobs.trainers.benchmarl.engine.buffers import SavedRing
from jobs.trainers.benchmarl.engine.environments import Environments, logged
from jobs.trainers.benchmarl.engine.forking import load_fork, load_policy
from jobs.trainers.benchmarl.engine.iterations import IterationLogger
from jobs.trainers.benchmarl.engine.state import ITEMS, RESULT, load_state, save_state
from jobs.training.best_policy import BestPolicy
from jobs.training.checkpoint_clock import CheckpointClock
from jobs.training.checkpoints import (
    MISFITS,
    CheckpointStore,
    Loaded,
    Segment,
    pass_over,
    read_checkpoint,
)
from jobs.training.context import (
    EXACT,
    NO_PROGRESS_LOST,
    RESET,
    Outcome,
    RunContext,
    UsualEvaluation,
)
from jobs.training.forking import Fork, misfit
from jobs.training.time_budget import TimeBudget, minutes_of
from jobs.worker.failures import end_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Reason
from orchestrator.rundir import CheckpointFile, ResumePoint, Row

# Where environments cannot be saved, they restart every so many iterations, checkpoint or not.
RESET_ITERATIONS = 10


def train(context: RunContext) -> Outcome:
    """Train the run to its end.

    Raises :class:`BadConfigError`, and :class:`InterruptedRun` on a stop signal.
    """
    torch.set_num_threads(context.run.threads)
    composed = compose(context.run)
    store = CheckpointStore(context.run_dir, context.attempt, context.guard)
    unfit: OrchestrateError | None = None
    candidates = context.candidates()
    while True:
        loaded = store.newest(candidates)
        if loaded is None and unfit is not None:
            raise unfit  # only a person may decide to begin anew
        context.begin(ResumePoint(loaded.file.attempt, loaded.file.frames) if loaded else None)
        try:
            with _quiet():
                return ResumableExperiment(context, composed, store, loaded).train()
        except UnfitCheckpoint as error:
            assert loaded is not None
            found = misfit(context, loaded.file.path, loaded.file.attempt, error.cause)
            pass_over(str(found))
            candidates = candidates[candidates.index(loaded.file) + 1 :]
            unfit = unfit or found
        finally:
            shutil.rmtree(context.attempt.scratch, ignore_errors=True)
            gc.collect()  # replay buffers hold semaphores, and their tracker would warn into a finished log


class UnfitCheckpoint(Exception):
    """A whole checkpoint does not fit the experiment, because of the ``cause``."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ResumableExperiment(Experiment):
    """One attempt at a run."""

    callbacks: list[Any]

    def __init__(
        self, context: RunContext, composed: Composed, store: CheckpointStore, loaded: Loaded | None
    ) -> None:
        self.context, self.store, self.composed = context, store, composed
        self._loaded = loaded
        self._checkpoints = CheckpointClock(composed.experiment.checkpoint_interval)
        self._time = TimeBudget(minutes_of(context.run), context.rows)
        self.best: BestPolicy = BestPolicy()
        super().__init__(**composed.parts, config=self._own_config(), callbacks=callbacks())
        rings = enumerate(() if self.on_policy else self.replay_buffers.values())
        self.rings = [SavedRing(buffer, number) for number, buffer in rings]
        environment = self.rollout_env if self.config.collect_with_grad else self.collector.env
        self.training_environments = Environments(environment, repeat=True)
        self.evaluation_environments = Environments(self.test_env, repeat=False)
        self._restart_rollout_at: int | None = None
        self._final: tuple[Path, ...] = ()
        if self.config.collect_with_grad:
            self._wrap_rollout()

    @property
    def exactness(self) -> str:
        """Exactness of the result: reset where environments cannot be saved, exact on a CPU only.

        Kernels of a GPU may not repeat their bits.
        """
        parts = (self.training_environments, self.evaluation_environments)
        if self.config.collect_with_grad or not all(part.exact for part in parts):
            return RESET
        devices = (self.config.sampling_device, self.config.train_device)
        return EXACT if all(torch.device(device).type == "cpu" for device in devices) else NO_PROGRESS_LOST

    @property
    def reset_iterations(self) -> int | None:
        """Iterations between restarts of the environments; ``None`` if they never restart."""
        return RESET_ITERATIONS if self.exactness == RESET else None

    @property
    def finished(self) -> bool:
        """Whether the run has reached its frames, iterations or minutes."""
        return self._time.over or self.n_iters_performed >= self.config.get_max_n_iters(self.on_policy)

    def train(self) -> Outcome:
        """Train to the end. The last checkpoint holds all that a longer run needs, or what was learned."""
        self.run()
        final = self._final[0] if self._final else self._save_result()
        return Outcome(
            frames=self.total_frames,
            iterations=self.n_iters_performed,
            exactness=self.exactness,
            config=self.composed.plain,
            files=((final, True),),
            final_state=self._final,
            evaluation=UsualEvaluation(
                self.composed.task_name,
                self.composed.experiment.evaluation_episodes,
                self.composed.experiment.evaluation_deterministic_actions,
            ),
            extra={
                "config_hash": self.composed.config_hash,
                "reset_iterations": self.reset_iterations,
                **self._set_up(),
            },
        )

    def _set_up(self) -> dict[str, Any]:
        """Return the settings that decide speed: environments, devices of collection and training."""
        devices = dict.fromkeys((self.config.sampling_device, self.config.train_device))
        environments = self.config.n_envs_per_worker(self.on_policy)
        return {"environments": environments, "devices": [str(device) for device in devices]}

    def end_iteration(self, row: Row) -> None:
        """Complete an iteration, after its evaluation and its logs."""
        self._time.spend(row)
        self._tell(row)
        self.best.consider(row, self.policy.state_dict)
        if self._time.over:
            raise TimeIsUp
        boundary = self.exactness != RESET or self.n_iters_performed % RESET_ITERATIONS == 0
        if self.exactness == RESET and boundary:
            self._restart_environments()
        if self.finished:
            if boundary and self.context.keeps_state:
                self._final = self._save_checkpoint()
            return
        if boundary and (self.context.stopping or self._checkpoints.due(self.total_frames)):
            self._save_checkpoint()
        self.context.iteration_done()

    def load_rings(self) -> None:
        """Fill the replay buffers from the segments of the checkpoint resumed from."""
        assert self._loaded is not None
        for ring, buffer in zip(self.rings, self._loaded.payload["buffer_cursors"].values(), strict=False):
            ring.load(self.store, self._loaded.segments, buffer["added"])

    # BenchMARL's seams

    def _setup_name(self) -> None:
        # BenchMARL's own way to resume, which is not ours: it pickles callbacks.
        kept, self.callbacks = self.callbacks, []
        super()._setup_name()
        self.callbacks = kept
        (self.folder_name / "config.pkl").unlink()

    def _setup_task(self) -> None:
        original = self.task.get_env_fun
        self.task.get_env_fun = lambda *args, **kwargs: logged(original(*args, **kwargs))
        try:
            super()._setup_task()
        finally:
            del self.task.get_env_fun

    def _setup_logger(self) -> None:
        self.logger = IterationLogger(self, self.composed, self.context, self.end_iteration)

    def _collection_loop(self) -> None:
        if self._loaded is not None:
            self._resume(self._loaded)
        elif (init := self.context.init) is not None:
            self._begin_with(init)
        with self.logger.logging():
            self._checkpoints.start(self.total_frames)
            try:
                if self._time.over:  # it was killed between its end and its result
                    raise TimeIsUp
                super()._collection_loop()
            except TimeIsUp:
                self.close()

    def close(self) -> None:
        """Close the environments; an error in this never hides the error that led here."""
        reason = sys.exception()
        try:
            super().close()
        except Exception:
            if reason is None:
                raise
            traceback.print_exc()

    # Saving and resuming

    def _own_config(self) -> Any:
        """Return the run's configuration without BenchMARL's own files and checkpoints."""
        config = unbounded(self.composed.experiment, self.context.run, self.composed.on_policy)
        self.context.attempt.scratch.mkdir(exist_ok=True)
        config.save_folder = str(self.context.attempt.scratch)
        config.restore_file = None
        config.checkpoint_interval = 0
        config.checkpoint_at_end = False
        config.create_json = False
        config.loggers = ["csv"]  # without a logger BenchMARL never evaluates
        return config

    def _save_result(self) -> Path:
        """Write a checkpoint of what was learned; return its file."""
        self.context.before_checkpoint()
        final = self.store.save(self.total_frames, save_state(self, RESULT))
        self.context.checkpointed(self.total_frames)
        return final.path

    def _save_checkpoint(self) -> tuple[Path, ...]:
        """Write a checkpoint of the whole state; return its files, that of no buffer first."""
        began = time.monotonic()
        self.context.before_checkpoint()
        segments: list[Segment] = []
        for ring in self.rings:
            segments += ring.save(self.store, last=self.finished)
        state = save_state(self, ITEMS)
        if self.callbacks:
            self._on_state_dict(state.setdefault("callbacks", {}))
        checkpoint = self.store.save(self.total_frames, state, segments)
        self.context.checkpointed(self.total_frames)
        self._checkpoints.written(self.total_frames, time.monotonic() - began)
        return self._files_of(checkpoint)

    def _files_of(self, newest: CheckpointFile) -> tuple[Path, ...]:
        return newest.path, *(path for path in self.store.files if path != newest.path)

    def _resume(self, loaded: Loaded) -> None:
        """Restore the checkpoint's state. Raises :class:`UnfitCheckpoint` if it has another shape."""
        try:
            self._put_back(loaded)
        except MISFITS as error:
            # Memory can run out here, too, and an interruption can strike inside a library that renames it.
            if self.context.stopping or end_of(error).reason is not Reason.CODE_ERROR or "CUDA" in str(error):
                raise
            raise UnfitCheckpoint(error) from error

    def _put_back(self, loaded: Loaded) -> None:
        if "optimizers" not in loaded.payload:  # written when the run was finished, but not its result
            load_state(self, loaded.payload, RESULT)
            return
        if self.exactness == RESET:
            self.total_frames = loaded.file.frames
            self._restart_environments()
        if "callbacks" in loaded.payload:
            self._on_load_state_dict(loaded.payload["callbacks"])
        if (fork := Fork.at(self.context, loaded.file)) is not None:
            load_fork(self, loaded.payload, fork)
        else:
            load_state(self, loaded.payload, ITEMS)
        loaded.payload.clear()
        if self.finished:  # it was killed between its end and its result
            self._final = self._files_of(loaded.file)

    def _begin_with(self, init: Path) -> None:
        """Take the policy of a checkpoint. Raises :class:`BadConfigError` if it has another shape."""
        try:
            load_policy(self, read_checkpoint(init, init)["policy"])
        except MISFITS as error:
            raise misfit(self.context, init, 0, error) from error

    @local_seed()
    def _restart_environments(self) -> None:
        """Begin new episodes, the same in a resumed run as in an uninterrupted one."""
        seed = self.seed + self.total_frames
        self.test_env.set_seed(seed)
        if self.config.collect_with_grad:
            self._restart_rollout_at = seed
        else:
            self.collector.env.set_seed(seed)
            self.collector._make_shuttle()

    def _wrap_rollout(self) -> None:
        """Replace the observation that BenchMARL's loop carries over after a restart."""
        rollout = self.rollout_env.rollout

        @functools.wraps(rollout)
        def rollout_from_restart(**kwargs: Any) -> Any:
            if self._restart_rollout_at is not None:
                with local_seed():
                    self.rollout_env.set_seed(self._restart_rollout_at)
                    kwargs["tensordict"] = self.rollout_env.reset()
                self._restart_rollout_at = None
            return rollout(**kwargs)

        self.rollout_env.rollout = rollout_from_restart

    def _tell(self, row: Row) -> None:
        bound = self.config.get_max_n_frames(self.on_policy)
        total = min(bound, self._time.total_frames(row.frames) or bound)
        self.context.progress(row.frames, total, self.mean_return)


class _NoBar:
    """A stand-in for BenchMARL's progress bar."""

    def __init__(self, **_: Any) -> None: ...

    def set_description(self, *_: Any, **__: Any) -> None: ...

    def update(self) -> None: ...


@contextmanager
def _quiet() -> Iterator[None]:
    """Switch off the progress bar, as the worker shows progress, and TorchRL's messages about buffers."""
    torchrl_logger.setLevel(logging.WARNING)
    bar = benchmarl_experiment.tqdm
    benchmarl_experiment.tqdm = _NoBar
    try:
        yield
    finally:
        benchmarl_experiment.tqdm = bar

"""Evaluate a policy from a checkpoint with BenchMARL's environment and returns, without training.

All computing is on the CPU, for any training device: on machines of the same kind the same request has the
same answer, bit for bit.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from benchmarl.experiment import Experiment
from benchmarl.experiment.logger import Logger
from benchmarl.utils import seed_everything
from tensordict import TensorDictBase
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from jobs.evaluate import EvaluationAnswer, EvaluationRequest
from jobs.trainers.benchmarl.configuration.building import require_possible
from jobs.trainers.benchmarl.configuration.config import Composed, compose
from jobs.trainers.benchmarl.engine.spaces import require_same
from jobs.training.best_policy import policy_in
from jobs.training.checkpoints import read_payload
from jobs.training.config_errors import RefusedKeyError, bare_key
from jobs.training.context import BadConfigError
from jobs.training.loop import Played
from jobs.training.records.error_chain import reason
from jobs.training.records.headless_rendering import obstacle
from jobs.training.records.video import Film, Frame
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run

# Environments that play side by side at most: what they play is kept until they are through.
_AT_ONCE = 500


def evaluate(question: EvaluationRequest) -> EvaluationAnswer:
    """Play the episodes of a request.

    Raises :class:`OrchestrateError`, and ``FileNotFoundError`` if training removed the checkpoint.
    """
    torch.set_num_threads(question.run.threads)
    policy, frames = policy_in(read_payload(question.checkpoint), best=question.best)
    own = compose(question.run)
    require_possible(own)
    played = _compose_task(question) if question.task else own
    if played is not own:
        require_same(own, played)
    episodes = question.episodes or question.times * own.experiment.evaluation_episodes
    deterministic = own.experiment.evaluation_deterministic_actions
    if question.deterministic is not None:
        deterministic = question.deterministic
    began = time.monotonic()
    with contextlib.closing(Stage(played, episodes)) as stage:
        stage.take(policy)
        with contextlib.nullcontext() if question.film is None else Film(question.film) as film:
            found = stage.play(episodes, question.seed, deterministic, film)
    return EvaluationAnswer(
        frames,
        played.task_name,
        deterministic,
        tuple(found.returns),
        tuple(found.lengths),
        time.monotonic() - began,
        found.figures,
        stage.baselines(episodes, question.seed),
    )


def _compose_task(question: EvaluationRequest) -> Composed:
    """Compose the run on another task, or on its own with the requested changes."""
    run = question.run
    same = question.task == run.overrides.get("task")
    kept = {
        key: value
        for key, value in run.overrides.items()
        if bare_key(key) != "task"
        and not (bare_key(key).startswith("task.") and not same)
        and bare_key(key) not in question.changes
    }
    other = Run(run.run_id, run.trainer, {**kept, "task": question.task, **question.changes}, run.seed)
    try:
        composed = compose(other)
        require_possible(composed)
    except RefusedKeyError as error:  # of a task; the algorithm that trained the policy is what it is
        raise BadConfigError(str(error), hint=None if error.key == "algorithm" else error.hint) from error
    return composed


class Stage(Experiment):
    """The parts of BenchMARL's experiment needed to play: an evaluation environment and a policy."""

    test_env: EnvBase

    def __init__(self, composed: Composed, episodes: int) -> None:
        self._width = math.ceil(episodes / math.ceil(episodes / _AT_ONCE))
        on_cpu = dict.fromkeys(("sampling_device", "train_device", "buffer_device"), "cpu")
        config = replace(
            copy.deepcopy(composed.experiment), **on_cpu, evaluation_episodes=self._width, loggers=[]
        )
        config.create_json = False
        try:
            super().__init__(**composed.parts, config=config)
        except Exception as error:  # a library may raise anything for a task that it cannot build here
            raise BadConfigError(f"{composed.task_name} cannot be built: {reason(error)}") from error
        self._name = composed.task_name

    # BenchMARL's seams

    def _setup_name(self) -> None:
        """Make no folder and no files."""

    def _setup_algorithm(self) -> None:
        self.algorithm = self.algorithm_config.get_algorithm(experiment=self)
        self.test_env = self.algorithm.process_env_fun(lambda: self.test_env)()

    def _setup_collector(self) -> None:
        self.policy = self.algorithm.get_policy_for_collection()

    def _setup_logger(self) -> None:
        self.logger = _Tally(self)

    def close(self) -> None:
        """Close the environment."""
        with contextlib.suppress(Exception):  # what cannot be closed ends with this process
            self.test_env.close()

    # Playing

    def take(self, policy: Mapping[str, Any]) -> None:
        """Play this policy from now on."""
        try:
            self.policy.load_state_dict(policy)
        except (RuntimeError, KeyError) as error:
            raise BadConfigError(
                f"the policy does not fit the model that is built for {self._name}: {reason(error)}",
                hint="was it trained by another version of the code? `orchestrate status` says stale",
            ) from error

    @torch.no_grad()
    def play(self, episodes: int, seed: int, deterministic: bool, film: Film | None) -> Played:
        """Play episodes; film the first one. Figures are means over rounds, weighted by their steps."""
        seed_everything(seed)
        with contextlib.suppress(NotImplementedError):  # an environment that takes no seed
            self.test_env.set_seed(seed)
        kind = ExplorationType.DETERMINISTIC if deterministic else ExplorationType.RANDOM
        returns: list[float] = []
        lengths: list[int] = []
        sums: defaultdict[str, float] = defaultdict(float)
        steps: defaultdict[str, int] = defaultdict(int)
        with set_exploration_type(kind):
            while len(returns) < episodes:
                rollouts = self._rollouts(None if returns else film)
                self.logger.log_evaluation(rollouts, total_frames=0, step=0)  # cuts them where they end
                rollouts = rollouts[: episodes - len(returns)]
                returns += self.logger.returns[: len(rollouts)]
                lengths += [rollout.batch_size[0] for rollout in rollouts]
                played = torch.cat(rollouts)
                for name, value in self._figures(played):
                    sums[name] += value * len(played)
                    steps[name] += len(played)
        return Played(returns, lengths, {name: sums[name] / steps[name] for name in sums})

    def baselines(self, episodes: int, seed: int) -> dict[str, dict[str, float]]:
        """Return the figures of scripted players, if the task has ``baselines(episodes, seed)``."""
        found: dict[str, dict[str, float]] = {}
        if hasattr(self.task, "baselines"):
            found = self.task.baselines(episodes, seed)
        return found

    def _figures(self, steps: TensorDictBase) -> Iterator[tuple[str, float]]:
        """Yield the finite metrics that the task has of evaluations, named without ``eval/``."""
        if hasattr(self.task, "evaluation_info"):
            for name, value in self.task.evaluation_info(steps).items():
                if math.isfinite(value):
                    yield name.removeprefix("eval/"), float(value)

    def _rollouts(self, film: Film | None) -> list[TensorDictBase]:
        """Play one episode, or one in each environment side by side, as BenchMARL's evaluation does."""
        side_by_side = self.test_env.batch_size != ()
        begun = self.test_env.reset()
        with self._filming(film) as callback:
            rollout = self.test_env.rollout(
                max_steps=self.max_steps,
                policy=self.policy,
                callback=callback,
                auto_reset=False,
                tensordict=begun,
                auto_cast_to_device=True,
                break_when_any_done=not side_by_side,
            )
        return list(rollout.unbind(0)) if side_by_side else [rollout]

    @contextlib.contextmanager
    def _filming(self, film: Film | None) -> Iterator[Callable[[Any, TensorDictBase], None] | None]:
        """Provide the callback that draws the first environment until its episode ends."""
        if film is None:
            yield None
            return
        over = False

        def draw(_env: Any, step: TensorDictBase) -> None:
            nonlocal over
            done = step.get(("next", "done"), None)  # environments side by side have begun anew by now
            over = over or (done is not None and bool(done.flatten()[0]))
            if not over:
                film.add(self._picture())

        film.add(self._picture())
        yield draw
        if not over:
            film.add(self._picture())

    def _picture(self) -> Frame:
        if not self.task.has_render(self.test_env):
            raise OrchestrateError(f"{self._name} has no picture")
        try:
            picture = self.task.__class__.render_callback(self, self.test_env, None)
        except Exception as error:  # no display, no OpenGL, no pyglet: each has an error of its own
            why = obstacle(error)
            raise OrchestrateError(f"{self._name} cannot be drawn here: {why.found}", hint=why.fix) from error
        return np.ascontiguousarray(picture, dtype=np.uint8)


class _Tally(Logger):
    """Stands where BenchMARL's loggers and its JSON writer do: keeps the returns of each evaluation."""

    path = ""

    def __init__(self, stage: Stage) -> None:
        super().__init__("", "", stage.config, "", "", "", "", stage.group_map, stage.seed, "", {})
        self.loggers = [self]
        self.json_writer = self
        self.returns: list[float] = []

    def write(self, metrics: dict[str, torch.Tensor], **_: Any) -> None:
        self.returns = metrics["return"].tolist()

    def log(self, dict_to_log: dict[str, Any], step: int | None = None) -> None:
        """The summaries, of no use here."""

"""A trainer of the actor-critic kind: its `train`, `check` and `evaluate`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch

from jobs.check import ELSEWHERE, Problem, available_mb
from jobs.evaluate import EvaluationAnswer, EvaluationRequest
from jobs.trainers.actor_critic.config import ASYNCHRONOUS, ActorCriticConfig
from jobs.trainers.actor_critic.environments.families import build, family_of
from jobs.trainers.actor_critic.environments.keys import ProcgenConfig, seen_levels
from jobs.trainers.actor_critic.learner import build_network, play_policy
from jobs.trainers.actor_critic.memory import amounts_of, memory_warning
from jobs.trainers.actor_critic.processes.asynchronous import asynchronous_learner
from jobs.trainers.actor_critic.processes.launch import Build, learner_of_all
from jobs.trainers.amounts import excessive_amounts, misplaced_forks
from jobs.trainers.learner_trainer import LearnerTrainer
from jobs.training.best_policy import policy_in
from jobs.training.checkpoints import read_payload
from jobs.training.context import BadConfigError, RunContext, UsualEvaluation
from jobs.training.loop import Learner, Schedule
from jobs.training.records.operations import SLOW, operations_of, peak_of_core, slowdown
from jobs.training.records.video import Film
from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Run

C = TypeVar("C", bound=ActorCriticConfig)
# Batches of fewer rows are tiny, where an iteration has so many of them.
_FEW_ROWS, _MANY_BATCHES = 16, 32


def schedule_of(config: ActorCriticConfig) -> Schedule:
    """Return when a training ends, evaluates and keeps policies, and where it logs."""
    return Schedule(
        frames=config.steps,
        evaluation_interval=config.evaluation_interval,
        policy_interval=config.checkpoint_interval,
        loggers=config.loggers,
        project=config.project_name,
        evaluation=UsualEvaluation(
            config.task.name, config.evaluation_episodes, config.evaluation_deterministic
        ),
    )


def require_same_size(own: ActorCriticConfig, played: ActorCriticConfig) -> None:
    """Refuse to play a policy where observations or actions are others. Raises :class:`BadConfigError`."""
    with closing(build(own.task, 1, 0, "cpu")) as trained, closing(build(played.task, 1, 0, "cpu")) as other:
        if (trained.shape, trained.parts) == (other.shape, other.parts):
            return
    raise BadConfigError(
        f"the policy takes {_size(trained.shape)} numbers and returns actions of {list(trained.parts)} "
        f"choices; the environment has {_size(other.shape)} and {list(other.parts)}",
        hint="a policy plays environments of its own size, with as many learners",
    )


def levels_warning(run: Run, config: ActorCriticConfig) -> Problem | None:
    """Return a warning if a run on Procgen is evaluated on levels that it was trained on."""
    if not isinstance(config.task, ProcgenConfig) or not (seen := seen_levels(config.task)):
        return None
    after = config.task.start_level + config.task.num_levels
    return Problem(
        run.run_id,
        "task.test_num_levels",
        f"{seen:_} of the {config.task.test_num_levels:_} levels of evaluations are levels of training: "
        "returns are not those on unseen levels",
        hint=f"set task.test_start_level: {after}, or leave out task.test_num_levels for all levels",
        blocks=False,
    )


def precision_warning(run: Run, config: ActorCriticConfig) -> Problem | None:
    """Return a warning if products in 16 bits are slow here, or the target's processor is not known here."""
    if config.products == torch.float32 or config.device != "cpu":
        return None
    if ELSEWHERE in os.environ:
        found = (
            "processors without AVX-512 BF16 or AMX are many times slower with it, and those of the target "
        )
        found += "are not known here"
        hint = "`orchestrate doctor` measures it there, and so does each run, whose log says if it is slow"
    elif (times := slowdown(config.products)) > SLOW:
        found = f"this processor is {times:.0f} times slower with it than with fp32, as measured now"
        hint = "write precision: fp32, or train on a processor with AVX-512 BF16 or AMX"
    else:
        return None
    message = f"precision: found {config.precision}, and {found}"
    return Problem(run.run_id, "precision", message, hint=hint, blocks=False)


def batch_warning(run: Run, config: ActorCriticConfig) -> Problem | None:
    """Return a warning if a process learns from so few rows at a time that most of its time is overhead.

    A step of the optimizer by 4 rows of numbers takes as long as one by 64.
    """
    rows, taken = config.envs * config.rollout_steps // config.learning, config.pictures_at_once
    if taken >= _FEW_ROWS or rows < _MANY_BATCHES * taken:
        return None
    return Problem(
        run.run_id,
        None,
        f"a process learns from {taken} of its {rows:_} rows at a time: about as slow for each step of the "
        "optimizer as with 64",
        hint="set a larger batch_size (ppo) or batch_envs (impala)",
        blocks=False,
    )


def _size(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


@dataclass(frozen=True)
class ActorCriticTrainer(LearnerTrainer[C]):
    """A trainer of policies that can play other environments of the same size, on the CPU."""

    learner: Build[C]
    schedule: Callable[[C], Schedule] = schedule_of

    def check(self, runs: Sequence[Run]) -> list[Problem]:
        """Return one problem per fault; without faults, a misplaced fork and warnings.

        These are for the first run that is evaluated on levels of its training, the first one with a slow
        precision, the first one with tiny batches, the first too large one, and amounts that none can have.
        """
        if problems := super().check(runs):
            return problems
        configs = [(run, self.config.compose(run.overrides)) for run in runs]
        found = [(levels_warning(run, config) for run, config in configs)]
        found.append(precision_warning(run, config) for run, config in configs)
        found.append(batch_warning(run, config) for run, config in configs)
        if (available := available_mb()) is not None:
            found.append(memory_warning(run, config, available) for run, config in configs)
        first = [warning for warnings in found for warning in islice(filter(None, warnings), 1)]
        amounts = [(run, amounts_of(config)) for run, config in configs]
        return [*misplaced_forks(runs, amounts), *first, *excessive_amounts(amounts, available)]

    @contextmanager
    def _learners(self, config: C, context: RunContext) -> Iterator[Callable[[], Learner]]:
        nodes, spec = context.ranks.size, get_trainer(context.run.trainer)
        if nodes > 1 and (why := spec.refuses_nodes(context.run, nodes)):
            raise BadConfigError(f"found {nodes} nodes, and {why}")
        if config.processes == nodes == 1 and config.mode != ASYNCHRONOUS:
            yield lambda: self.learner(config, context.run.seed)
            return
        start = asynchronous_learner if config.mode == ASYNCHRONOUS else learner_of_all
        with start(config, context, self.learner) as build:
            yield build

    def facts(self, config: C) -> Mapping[str, Any]:
        """Return the number of processes, and of training by pictures on the CPU what a frame takes, and a
        core can do, in operations.
        """
        known = {"processes": config.processes}
        with closing(build(config.task, 1, 0, "cpu")) as environments:
            if config.device != "cpu" or len(environments.shape) < 3:
                return known
            network = build_network(config, environments)
            pictures = torch.zeros(environments.learners, *environments.shape, dtype=torch.uint8)
        if config.products != torch.float32 and (times := slowdown(config.products)) > SLOW:
            sys.stderr.write(
                f"warning: precision: {config.precision} is {times:.0f} times slower than fp32 here\n"
            )
        played, learned = operations_of(network, lambda: network(pictures))
        return {
            **known,
            "flop_per_frame": played + config.passes * learned,
            "machine_flops_per_core": peak_of_core(config.products),
        }

    def evaluate(self, request: EvaluationRequest) -> EvaluationAnswer:
        """Play the episodes of a request on the CPU.

        Raises :class:`OrchestrateError`, and ``FileNotFoundError`` if training removed the checkpoint.
        """
        torch.set_num_threads(request.run.threads)
        policy, frames = policy_in(read_payload(request.checkpoint), best=request.best)
        own = self._on_cpu(request.run.overrides)
        played = self._other(request, own)
        episodes = request.episodes or request.times * own.evaluation_episodes
        deterministic = own.evaluation_deterministic
        if request.deterministic is not None:
            deterministic = request.deterministic
        began = time.monotonic()
        require_same_size(own, played)
        with closing(build(own.task, 1, 0, "cpu")) as environments:
            network = build_network(own, environments)
        network.load_state_dict(policy)
        with nullcontext() if request.film is None else Film(request.film) as film:
            found = play_policy(played, network, episodes, request.seed, deterministic, film)
        return EvaluationAnswer(
            frames,
            played.task.name,
            deterministic,
            tuple(found.returns),
            tuple(found.lengths),
            time.monotonic() - began,
            found.figures,
            family_of(played.task.name).baselines(played.task, episodes, request.seed),
        )

    def _on_cpu(self, overrides: Any) -> C:
        config = self.config.compose(overrides)
        config.device = "cpu"
        return config

    def _other(self, request: EvaluationRequest, own: C) -> C:
        """Compose the run in another environment, which keeps the run's keys of its family, with changes."""
        task, overrides = request.task or own.task.name, request.run.overrides
        same = task.partition("/")[0] == own.task.name.partition("/")[0]
        kept = {key: value for key, value in overrides.items() if same or not key.startswith("task.")}
        return self._on_cpu({**kept, "task": task, **request.changes})

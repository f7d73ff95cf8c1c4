"""Train, check and evaluate runs of PPO on CartPole."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import torch

from jobs.check import Problem
from jobs.evaluate import EvaluationAnswer, EvaluationRequest
from jobs.hydra.typed_config import TypedConfig
from jobs.training.checkpoints import read_payload
from jobs.training.config_errors import unexpected
from jobs.training.context import Outcome, RunContext, UsualEvaluation
from jobs.training.loop import Schedule, policy_in, train_on_schedule
from my_trainer.learner import Config, Learner
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run

TASK = "CartPole-v1"
CONFIG = TypedConfig(name="cartpole", schema=lambda _: Config(), other_keys={"learning_rate": ("lr",)})


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return the faults of runs that would fail."""
    return CONFIG.problems(runs, require_sense)


def require_sense(config: Config) -> None:
    for key in ("frames", "rollout", "epochs", "batch_size", "lr", "evaluation_episodes"):
        if not getattr(config, key) > 0:
            raise unexpected(key, getattr(config, key), "a number above 0")


def train(context: RunContext) -> Outcome:
    """Train a run to its end, from where the last attempt left it."""
    torch.set_num_threads(context.run.threads)
    config = CONFIG.compose(context.run.overrides)
    schedule = Schedule(
        frames=config.frames,
        evaluation_interval=config.evaluation_interval,
        policy_interval=config.evaluation_interval,
        config=asdict(config),
        evaluation=UsualEvaluation(TASK, config.evaluation_episodes, deterministic=True),
    )
    return train_on_schedule(context, lambda: Learner(config, context.run.seed), schedule)


def evaluate(request: EvaluationRequest) -> EvaluationAnswer:
    """Play the episodes of a request with the policy of a run."""
    if request.task is not None or request.film is not None:
        raise OrchestrateError("this trainer has one task, and no film")
    config = CONFIG.compose(request.run.overrides)
    policy, frames = policy_in(read_payload(request.checkpoint), best=request.best)
    learner = Learner(config, request.seed)
    learner.actor.load_state_dict(policy)
    episodes = request.episodes or request.times * config.evaluation_episodes
    began, deterministic = time.monotonic(), request.deterministic is not False
    found = learner.returns(episodes, request.seed, deterministic)
    seconds = time.monotonic() - began
    return EvaluationAnswer(frames, TASK, deterministic, tuple(found), tuple(map(int, found)), seconds)

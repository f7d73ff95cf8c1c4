"""Evaluate a trained policy, in its own environment or another one of the same size."""

from __future__ import annotations

import time

import torch

from jobs.evaluate import EvaluationAnswer, EvaluationRequest
from jobs.trainers.ppo.config import CONFIG, PpoConfig
from jobs.trainers.ppo.environments import build, family_of
from jobs.trainers.ppo.interface import Environments
from jobs.trainers.ppo.playing import play
from jobs.trainers.ppo.training import FOR_ACTIONS, build_network
from jobs.training.checkpoints import read_payload
from jobs.training.context import BadConfigError
from jobs.training.loop import policy_in
from orchestrator.core.errors import OrchestrateError


def evaluate(question: EvaluationRequest) -> EvaluationAnswer:
    """Play the episodes of a request on the CPU.

    Raises :class:`OrchestrateError`, and ``FileNotFoundError`` if training removed the checkpoint.
    """
    if question.film is not None:
        raise OrchestrateError("environments of the trainer ppo have no picture", hint="leave out --film")
    torch.set_num_threads(question.run.threads)
    policy, frames = policy_in(read_payload(question.checkpoint), best=question.best)
    own = CONFIG.compose(question.run.overrides)
    own.device = "cpu"
    played = _other(question, own)
    episodes = question.episodes or question.times * own.evaluation_episodes
    deterministic = own.evaluation_deterministic
    if question.deterministic is not None:
        deterministic = question.deterministic
    began = time.monotonic()
    environments = build(played.task, episodes, question.seed, "cpu")
    _require_same_size(own, environments)
    network = build_network(own, environments)
    network.load_state_dict(policy)
    random = None if deterministic else torch.Generator().manual_seed(question.seed + FOR_ACTIONS)
    found = play(environments, network, random)
    return EvaluationAnswer(
        frames,
        played.task.name,
        deterministic,
        tuple(found.returns.tolist()),
        tuple(map(int, found.lengths.tolist())),
        time.monotonic() - began,
        found.figures,
        family_of(played.task.name).baselines(played.task, episodes, question.seed),
    )


def _other(question: EvaluationRequest, own: PpoConfig) -> PpoConfig:
    """Compose the run in another environment, which keeps the run's keys of its family, with the changes."""
    task, overrides = question.task or own.task.name, question.run.overrides
    same = task.partition("/")[0] == own.task.name.partition("/")[0]
    kept = {key: value for key, value in overrides.items() if same or not key.startswith("task.")}
    other = CONFIG.compose({**kept, "task": task, **question.changes})
    other.device = "cpu"
    return other


def _require_same_size(own: PpoConfig, played: Environments) -> None:
    trained = build(own.task, 1, 0, "cpu")
    if (trained.width, trained.parts) == (played.width, played.parts):
        return
    raise BadConfigError(
        f"the policy takes {trained.width} numbers and returns actions of {list(trained.parts)} choices; "
        f"the environment has {played.width} and {list(played.parts)}",
        hint="a policy plays environments of its own size, with as many learners",
    )

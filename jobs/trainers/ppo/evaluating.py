"""Evaluate a trained policy, in its own environment or another one of the same size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from jobs.evaluate import EvaluationAnswer, EvaluationRequest
from jobs.trainers.ppo.config import CONFIG, PpoConfig
from jobs.trainers.ppo.environments import Environments, build
from jobs.trainers.ppo.playing import play
from jobs.trainers.ppo.training import build_network, require_fit
from jobs.training.checkpoints import read_payload
from jobs.training.context import BadConfigError
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run


def evaluate(question: EvaluationRequest) -> EvaluationAnswer:
    """Play the episodes of a request on the CPU.

    Raises :class:`OrchestrateError`, and ``FileNotFoundError`` if training removed the checkpoint.
    """
    if question.film is not None:
        raise OrchestrateError("environments of the trainer ppo have no picture", hint="leave out --film")
    torch.set_num_threads(question.run.threads)
    payload = read_payload(question.checkpoint)
    policy, frames = _policy(question, payload)
    own = CONFIG.compose(question.run.overrides)
    own.device = "cpu"
    played = _other(question, own)
    episodes = question.episodes or question.times * own.evaluation_episodes
    deterministic = own.evaluation_deterministic
    if question.deterministic is not None:
        deterministic = question.deterministic
    began = time.monotonic()
    environments = build(played.task, episodes, question.seed, "cpu")
    network = build_network(own, environments)
    _require_same_size(question.run, own, environments)
    network.load_state_dict(policy)
    random = None if deterministic else torch.Generator().manual_seed(question.seed)
    found = play(environments, network, random)
    return EvaluationAnswer(
        frames,
        played.task.name,
        deterministic,
        tuple(found.returns.tolist()),
        tuple(map(int, found.lengths.tolist())),
        time.monotonic() - began,
    )


def _policy(question: EvaluationRequest, payload: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    if not question.best:
        return payload["policy"], payload["counters"]["total_frames"]
    best = payload["best"]
    if best["policy"] is None:
        raise OrchestrateError(
            f"{question.run.run_id} has not been evaluated in training, so that no policy is the best",
            hint="evaluate the newest: without --best",
        )
    return best["policy"], best["frames"]


def _other(question: EvaluationRequest, own: PpoConfig) -> PpoConfig:
    """Compose the run in another environment, or in its own with the requested changes."""
    if question.task is None and not question.changes:
        return own
    same = question.task in (None, own.task.name)
    kept = {
        key: value for key, value in question.run.overrides.items() if same or not key.startswith("task.")
    }
    task = question.task or own.task.name
    other = CONFIG.compose({**kept, "task": task, **question.changes})
    other.device = "cpu"
    require_fit(other)
    return other


def _require_same_size(run: Run, own: PpoConfig, played: Environments) -> None:
    trained = build(own.task, 1, 0, "cpu")
    if (trained.width, trained.parts) == (played.width, played.parts):
        return
    raise BadConfigError(
        f"the policy of {run.run_id} takes {trained.width} numbers and returns actions of "
        f"{list(trained.parts)} choices; the environment has {played.width} and {list(played.parts)}",
        hint="a policy plays environments of its own size, with as many learners",
    )

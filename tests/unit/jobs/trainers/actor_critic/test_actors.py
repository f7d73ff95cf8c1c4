"""Processes that only play: how far behind they are, and what those that learn get from them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs.trainers.actor_critic.actors import LAG, Exchange, RolloutsOfActors, play_for_learners
from jobs.trainers.actor_critic.group import ALONE, DisconnectedError
from jobs.trainers.actor_critic.learner import Games
from jobs.trainers.actor_critic.networks import ActorCritic
from jobs.trainers.actor_critic.rollout import Rollout
from jobs.trainers.actor_critic.shared_memory import SharedMemory
from jobs.trainers.impala.training import CONFIG, ImpalaConfig, ImpalaLearner
from jobs.training.ranks import RankError
from tests.helpers import kill

KEYS: dict[str, Any] = {
    "task": "bucket_brigade/hard",
    "task.opponents": 2,
    "mode": "parallel",
    "actors": 2,
    "learners": 1,
    "envs": 4,
    "batch_envs": 4,
    "rollout_steps": 8,
    "hidden": [8],
    "lr": 0.1,
    "actor_timeout": 60,
}


@contextmanager
def learning(**more: Any) -> Iterator[tuple[ImpalaLearner, list[int]]]:
    """A learner, and the processes that play for it."""
    config: ImpalaConfig = CONFIG.compose({**KEYS, **more})
    assert config.players is not None
    exchange = Exchange(config, config.players)
    actors = []
    for actor in range(config.actors):
        pid = os.fork()
        if pid == 0:
            try:
                torch.set_num_threads(1)
                with exchange.connections.of_actor(actor) as connection:
                    play_for_learners(config, 0, actor, exchange, connection)
            finally:
                os._exit(1)
        actors.append(pid)
    try:
        yield ImpalaLearner(config, 0, ALONE, RolloutsOfActors(config, 0, ALONE, exchange)), actors
    finally:
        for pid in actors:
            kill(pid)
            os.waitpid(pid, 0)
        exchange.close()


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_rollouts_are_of_a_policy_that_is_no_further_behind_than_allowed(lag: int) -> None:
    """Each actor's log-probabilities are those of one of the last policies: not torn, and not too old."""
    with learning(max_lag=lag) as (learner, _):
        policies: list[ActorCritic] = []
        for number in range(10):
            policies = [*policies[-lag:], deepcopy(learner.policy)] if lag else [deepcopy(learner.policy)]
            rollout, metrics = learner.collect()
            assert 0 <= metrics[LAG] <= min(lag, number)
            for rows in torch.arange(rollout.logs.shape[1]).chunk(2):
                own = rollout.of_rows(rows)
                assert any(torch.allclose(logs_of(policy, own), own.logs, atol=1e-4) for policy in policies)
            learner.learn((rollout, metrics), 0.0)


def logs_of(policy: ActorCritic, rollout: Rollout) -> Tensor:
    with torch.no_grad():
        logits, _ = policy(rollout.seen.flatten(0, 1))
        return policy.log_probabilities(logits, rollout.actions.flatten(0, 1))[0].view(rollout.logs.shape)


def test_an_actor_that_is_gone_or_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with learning() as (learner, actors):
        learner.learn(learner.collect(), 0.0)
        kill(actors[1])
        with pytest.raises(DisconnectedError):
            learn(learner, 3)
    monkeypatch.setattr(Games, "take_episodes", lambda _: 1 / 0)
    with learning() as (learner, _), pytest.raises(RankError, match=r"actor [01]: ZeroDivisionError"):
        learn(learner, 1)


def learn(learner: ImpalaLearner, times: int) -> None:
    for _ in range(times):
        learner.learn(learner.collect(), 0.0)


def test_memory_is_that_of_all_processes_and_locked_by_one() -> None:
    memory = SharedMemory()
    like = [torch.empty(3), torch.empty(2, 5, dtype=torch.uint8), torch.empty(1, dtype=torch.bool)]
    first, second = memory.tensors(like), memory.tensors(like)
    for one, other in zip(first, second, strict=True):
        assert not one.any()
        one.fill_(1)
        assert other.all()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with memory.locked():
                os.write(writing, b"l")
                signal.pause()
        finally:
            os._exit(0)
    assert os.read(reading, 1) == b"l"
    with pytest.raises(TimeoutError), memory.locked(0.05):
        pass
    kill(pid)
    os.waitpid(pid, 0)
    with memory.locked(5):
        assert second[0].all()
    memory.close()

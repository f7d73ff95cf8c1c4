"""Processes beside rank 0: how far behind they play, what is learned from it, and what they share."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs.trainers.a2c.training import CONFIG as A2C
from jobs.trainers.a2c.training import A2cConfig, A2cLearner
from jobs.trainers.actor_critic.group import ALONE, DisconnectedError, Group
from jobs.trainers.actor_critic.networks import ActorCritic
from jobs.trainers.actor_critic.processes.actors import (
    LAG,
    Connections,
    Exchange,
    PlayedElsewhere,
    RolloutsOfActors,
    play_for_learners,
)
from jobs.trainers.actor_critic.processes.asynchronous import (
    AsynchronousLearner,
    SharedTraining,
    SharingGroup,
    play_and_learn,
)
from jobs.trainers.actor_critic.processes.shared_memory import SharedMemory
from jobs.trainers.actor_critic.rollout import Games, Rollout
from jobs.trainers.impala.training import CONFIG as IMPALA
from jobs.trainers.impala.training import TRAINER, ImpalaConfig, ImpalaLearner
from jobs.training.processes.ranks import RankError
from orchestrator.config.trainers import get_trainer
from tests.helpers import kill

KEYS: dict[str, Any] = {
    "task": "bucket_brigade/hard",
    "task.opponents": 2,
    "mode": "parallel",
    "actors": 2,
    "envs": 4,
    "rollout_steps": 8,
    "hidden": [8],
    "lr": 0.1,
    "actor_timeout": 60,
}


@contextmanager
def actors(
    number: int, connections: Connections, work: Callable[[int, Connection], None]
) -> Iterator[list[int]]:
    """Processes that do this work."""
    pids = []
    for actor in range(number):
        pid = os.fork()
        if pid == 0:
            try:
                torch.set_num_threads(1)
                with connections.of_actor(actor) as connection:
                    work(actor, connection)
            finally:
                os._exit(1)
        pids.append(pid)
    connections.lead()
    try:
        yield pids
    finally:
        for pid in pids:
            kill(pid)
            os.waitpid(pid, 0)
        connections.close()


@contextmanager
def learning(**more: Any) -> Iterator[tuple[ImpalaLearner, list[int]]]:
    """A learner, and the processes that play for it."""
    keys = {**KEYS, "learners": 1, "batch_envs": 4, **more}
    if "task" in more:
        del keys["task.opponents"]
    config: ImpalaConfig = IMPALA.compose(keys)
    assert config.players is not None
    exchange = Exchange(config, config.players)
    play = partial(play_for_learners, config, 0, exchange)
    with actors(config.actors, exchange.connections, play) as pids:
        yield ImpalaLearner(config, 0, ALONE, RolloutsOfActors(config, 0, ALONE, exchange)), pids
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


@pytest.mark.parametrize(
    ("players", "learners", "nodes"), [(1, 4, 1), (2, 4, 1), (4, 2, 1), (3, 2, 1), (2, 4, 2), (6, 2, 2)]
)
def test_learners_have_equal_shares_of_what_all_actors_of_their_nodes_played(
    players: int, learners: int, nodes: int
) -> None:
    keys = {**KEYS, "actors": players, "learners": learners, "envs": 12, "batch_envs": 12}
    config: ImpalaConfig = IMPALA.compose(keys)
    assert config.players is not None
    exchanges = [Exchange(config, config.players, node, nodes) for node in range(nodes)]
    groups = [Group() for _ in range(learners)]
    for rank, group in enumerate(groups):
        group.rank, group.size = rank, learners
    shares = [
        RolloutsOfActors(config, 0, group, exchanges[group.rank * nodes // learners]) for group in groups
    ]
    for exchange in exchanges:
        for actor in exchange.actors:
            rows = exchange.rollouts(actor, shares[0].environments)[0].last_values
            rows.copy_(torch.arange(len(rows)) + actor * len(rows))
    taken = [share.rollout(0).last_values for share in shares]
    assert torch.equal(torch.cat(taken), torch.arange(24.0))
    assert {len(one) for one in taken} == {24 // learners}
    for exchange in exchanges:
        exchange.close()


def test_the_first_transition_of_an_actor_is_one_of_its_environments() -> None:
    with learning(task="gymnasium/CartPole-v1") as (learner, _):
        rollout, _ = learner.collect()
    position, speed = rollout.seen[0, :, 0], rollout.seen[0, :, 1]
    torch.testing.assert_close(rollout.seen[1, :, 0], position + 0.02 * speed)


def logs_of(policy: ActorCritic, rollout: Rollout) -> Tensor:
    with torch.no_grad():
        logits, _ = policy(rollout.seen.flatten(0, 1))
        return policy.log_probabilities(logits, rollout.actions.flatten(0, 1))[0].view(rollout.logs.shape)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"learners": 2}, "learners: found 2, expected 0 or 1 in mode sequential"),
        ({"learners": 1}, None),
        ({"max_lag": 100_000}, "max_lag: found 100000, expected a number from 0 to 100"),
        ({"max_lag": 100}, None),
        ({"mode": "parallel", "actors": 2, "learners": 2}, None),
    ],
)
def test_learners_and_lag_are_bounded(keys: dict[str, Any], told: str | None) -> None:
    run = get_trainer("impala").identify(
        {**KEYS, "mode": "sequential", "actors": 1, "batch_envs": 2, **keys}, 0, 1
    )
    problems = TRAINER.check([run])
    assert [problem.message for problem in problems] == ([told] if told else [])
    assert "sequential" not in str(told) or problems[0].hint == "write mode: parallel, or leave out learners"


def test_an_actor_that_is_gone_or_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with learning() as (learner, pids):
        learner.learn(learner.collect(), 0.0)
        kill(pids[1])
        with pytest.raises(DisconnectedError):
            learn(learner, 3)
    monkeypatch.setattr(Games, "take_episodes", lambda _: 1 / 0)
    with learning() as (learner, _), pytest.raises(RankError, match=r"actor [01]: ZeroDivisionError"):
        learn(learner, 1)


def learn(learner: ImpalaLearner, times: int) -> None:
    for _ in range(times):
        learner.learn(learner.collect(), 0.0)


def test_no_update_of_an_actor_that_learns_is_lost_and_none_is_half_done() -> None:
    config: A2cConfig = A2C.compose({**KEYS, "mode": "asynchronous", "actors": 3, "envs": 6})
    connections, memory = Connections(range(3), 60), SharedMemory()

    def learn(actor: int, connection: Connection) -> None:
        play_and_learn(config, 0, A2cLearner, SharingGroup(actor, memory), connection)

    with actors(3, connections, learn):
        own = A2cLearner(config, 0, ALONE, PlayedElsewhere(config, 0))
        learner = AsynchronousLearner(config, own, connections, memory)
        lags, last = [], 0.0
        for number in range(1, 20):
            before = deepcopy(dict(own.policy.named_parameters()))
            found = learner.learn(learner.collect(), 0.0)
            lags.append(found[LAG])
            steps = {float(state["step"]) for state in own.learned.state.values()}
            rows = int(own.policy.returns.count)
            assert len(steps) == 1
            step = steps.pop()
            assert 3 * number <= step <= 3 * number + 6
            assert 3 * number * 32 <= rows <= (3 * number + 6) * 32
            # Actors that are ahead may have learned nothing since the time before. Statistics of returns are
            # buffers, which are shared before the step.
            changed = any((before[name] != value).any() for name, value in own.policy.named_parameters())
            assert changed == (step > last)
            last = step
        assert max(lags) > 0
        assert found["train/total_episodes"] >= 0
    memory.close()


def test_what_a_killed_actor_left_half_written_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    config: A2cConfig = A2C.compose({**KEYS, "mode": "asynchronous", "actors": 2})
    connections, memory = Connections(range(2), 60), SharedMemory()
    own = A2cLearner(config, 0, ALONE, PlayedElsewhere(config, 0))
    learner, training = AsynchronousLearner(config, own, connections, memory), SharedTraining(own, memory)
    training.put()
    learner._training = training
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)
            group = SharingGroup(0, memory)
            actor = A2cLearner(config, 0, group)
            group.begin(actor)
            rollout, _ = actor.collect()
            # The step writes each tensor of the network and the optimizer by this function.
            of = SharedTraining._of
            monkeypatch.setattr(SharedTraining, "_of", lambda *given: killed_halfway(list(of(*given))))
            actor.improve(rollout, 0.0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    before = deepcopy(own.policy.state_dict())
    with pytest.raises(DisconnectedError):
        learner.learn([], 0.0)
    assert all(torch.equal(before[name], value) for name, value in own.policy.state_dict().items())
    with pytest.raises(DisconnectedError):
        SharingGroup(1, memory).begin(own)
    connections.close()
    memory.close()


def killed_halfway(pairs: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The tensors that are shared; the process is killed in the middle of writing them."""
    writes = inspect.stack()[1].function == "put"
    for number, pair in enumerate(pairs):
        if writes and number == len(pairs) // 2:
            kill(os.getpid())
        yield pair


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

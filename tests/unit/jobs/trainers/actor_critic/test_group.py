"""Several processes that train one network: the same step as that of one process with all rows."""

from __future__ import annotations

import os
import pickle
import re
import socket
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.distributed as dist

from jobs.trainers.a2c.training import CONFIG as A2C
from jobs.trainers.a2c.training import A2cLearner
from jobs.trainers.actor_critic.group import ALONE, FOREVER, ConnectedGroup, Group, Member, backend_of
from jobs.trainers.actor_critic.learner import ActorCriticLearner
from jobs.trainers.actor_critic.processes.launch import gpu_of
from jobs.trainers.impala.training import CONFIG as IMPALA
from jobs.trainers.impala.training import ImpalaLearner
from jobs.trainers.ppo.training import CONFIG as PPO
from jobs.trainers.ppo.training import PpoLearner
from jobs.training.context import BadConfigError

SAME: dict[str, Any] = {
    "task": "bucket_brigade/hard",
    "task.opponents": 3,
    "envs": 6,
    "rollout_steps": 8,
    "hidden": [8],
    "lr": 1e-2,
}
# In each, a step of learning takes all rows.
LEARNERS: dict[str, tuple[Any, type[ActorCriticLearner], dict[str, Any]]] = {
    "ppo": (PPO, PpoLearner, {"batch_size": 48, "epochs": 3}),
    "impala": (IMPALA, ImpalaLearner, {"batch_envs": 6}),
    "a2c": (A2C, A2cLearner, {}),
}


def in_processes(size: int, work: Callable[[Group], Any], gpu: str = "") -> list[Any]:
    """What the work returns in each of so many connected processes; this one is rank 0."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    pipes = []
    for rank in range(1, size):
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                listener.close()
                store = dist.TCPStore("127.0.0.1", port, wait_for_workers=False, timeout=FOREVER)
                found = work(ConnectedGroup(Member(rank, size, gpu), store, 60))
                with open(writing, "wb") as file:
                    pickle.dump(found, file)
            finally:
                os._exit(0)
        os.close(writing)
        pipes.append(reading)
    store = dist.TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    try:
        own = work(ConnectedGroup(Member(0, size, gpu), store, 60))
        found = [own]
        for reading in pipes:
            with open(reading, "rb") as file:
                found.append(pickle.load(file))
    finally:
        dist.destroy_process_group()
    return found


@pytest.mark.parametrize("trainer", LEARNERS)
@pytest.mark.parametrize("processes", [2, 3])
def test_the_gradients_of_all_are_those_of_one_with_all_rows(trainer: str, processes: int) -> None:
    keys, kind, own = LEARNERS[trainer]
    config = keys.compose({**SAME, **own, "mode": "parallel", "actors": processes})
    learner = kind(config, 0)
    learner.learn(
        learner.collect(), 0.0
    )  # gradients by observations that are all 0 hold nothing but rounding
    rollout, _ = learner.collect()
    update = kind.update(config, deepcopy(learner.policy), ALONE)
    losses = update(rollout, torch.Generator().manual_seed(0))

    def work(group: Group) -> tuple[dict[str, float], dict[str, Any]]:
        torch.set_num_threads(1)
        shared = kind.update(config.share(processes), deepcopy(learner.policy), group)
        rows = torch.arange(6).chunk(processes)[group.rank]
        found = shared(rollout.of_rows(rows), torch.Generator().manual_seed(1))
        return found, shared.network.state_dict()

    found = in_processes(processes, work)
    for shared_losses, state in found:
        assert shared_losses == pytest.approx(losses, rel=1e-3, abs=1e-5)
        torch.testing.assert_close(state, update.network.state_dict(), rtol=1e-4, atol=1e-5)
    for _, state in found[1:]:  # from equal values in, equal means out: bit for bit
        assert all(
            torch.equal(one, other) for one, other in zip(state.values(), found[0][1].values(), strict=True)
        )


def test_nccl_is_for_processes_with_a_gpu_of_their_own() -> None:
    nccl = "cpu:gloo,cuda:nccl"
    found = {
        gpus: backend_of(gpus)
        for gpus in [("0/0", "0/1"), ("0/1", "1/1"), ("0/1", "0/1"), ("0/0", ""), ("", "")]
    }
    assert [gpus for gpus, backend in found.items() if backend == nccl] == [("0/0", "0/1"), ("0/1", "1/1")]
    assert set(found.values()) == {nccl, "gloo"}
    # As two actors have it that share cuda:1: with NCCL this would fail.
    assert in_processes(2, lambda group: len(group.gather(0)), gpu="0/1") == [2, 0]


def test_the_gpu_of_a_process_is_the_one_that_is_asked_for_or_the_next() -> None:
    assert [gpu_of("cuda", local, 2) for local in range(3)] == [0, 1, 0]
    assert [gpu_of("cuda:1", local, 2) for local in range(2)] == [1, 1]
    node = re.escape(socket.gethostname())
    for device, gpus, told in (
        ("cuda", 0, "no GPU"),
        ("cuda:1", 1, "one GPU, cuda:0"),
        ("cuda:2", 2, "GPUs cuda:0 to"),
    ):
        with pytest.raises(BadConfigError, match=f"device: found {device}, and the node {node} has {told}"):
            gpu_of(device, 0, gpus)


def test_moments_are_those_of_all_rows() -> None:
    rows = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)) + 100
    _, mean, variance = ALONE.moments(rows)
    for count, own_mean, own_variance in in_processes(
        2, lambda group: group.moments(rows.chunk(2)[group.rank])
    ):
        assert count == 12
        torch.testing.assert_close(own_mean, mean)
        torch.testing.assert_close(own_variance, variance)

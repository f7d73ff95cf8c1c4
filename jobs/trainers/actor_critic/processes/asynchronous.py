"""A learner of several processes that do not wait for each other: each improves the same network by itself.

The asynchronous form of the algorithm of Mnih et al., 2016 (arXiv:1602.01783). Network and optimizer are in
shared memory. An actor plays with a copy, and takes the gradient of what it played by that copy. Then, under
a lock, it fetches what is shared, takes its step and puts the result back. Without the lock, steps of dense
networks would overwrite each other, and copies would be torn; holding it takes little of an actor's time.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from jobs.trainers.actor_critic.config import SEQUENTIAL, ActorCriticConfig
from jobs.trainers.actor_critic.group import ALONE, DisconnectedError, Group, packed, seed_of_attempt
from jobs.trainers.actor_critic.learner import ActorCriticLearner, means
from jobs.trainers.actor_critic.playing import Episodes, pooled
from jobs.trainers.actor_critic.processes.actors import LAG, Connections, PlayedElsewhere
from jobs.trainers.actor_critic.processes.children import LOST_THE_OTHERS, Children, bind_to_cores
from jobs.trainers.actor_critic.processes.launch import LEAVE_S, Build, named_causes
from jobs.trainers.actor_critic.processes.shared_memory import SharedMemory
from jobs.training.context import NO_PROGRESS_LOST, RunContext
from jobs.training.loop import Played
from orchestrator.planning.throughput.measure import (
    COLLECTION_TIMER,
    LEARNING_TIMER,
    TRAINING_CLOCK,
    WAITING_TIMER,
)

C = TypeVar("C", bound=ActorCriticConfig)

# Updates that an actor may make before rank 0 has counted them.
_AHEAD = 2
_DONE = struct.Struct("d")


class SharedTraining:
    """Network and optimizer of a learner, as they are in shared memory, with the number of updates so far.

    :meth:`fetch` and :meth:`put` need the lock. Both raise :class:`DisconnectedError` once a process that was
    putting is gone: what is shared is then half old and half new, and the kernel has freed its lock.
    """

    def __init__(self, learner: ActorCriticLearner, memory: SharedMemory) -> None:
        own = _tensors(learner)
        count = torch.zeros((), dtype=torch.int64)
        self.updates, self._half_written, *shared = memory.tensors([count, count, *own])
        self._pairs = {id(one): (one, other) for one, other in zip(own, shared, strict=True)}

    @torch.no_grad()
    def fetch(self, tensors: Iterable[Tensor] | None = None) -> None:
        """Copy what is shared into these tensors of the learner, by default all."""
        self._require_whole()
        for own, shared in self._of(tensors):
            own.copy_(shared)

    @torch.no_grad()
    def put(self, tensors: Iterable[Tensor] | None = None, updates: int = 0) -> None:
        """Share these tensors of the learner, by default all, after so many further updates."""
        self._require_whole()
        self._half_written.fill_(1)
        for own, shared in self._of(tensors):
            shared.copy_(own)
        self.updates += updates
        self._half_written.zero_()

    def _require_whole(self) -> None:
        if self._half_written:
            raise DisconnectedError

    def _of(self, tensors: Iterable[Tensor] | None) -> Iterable[tuple[Tensor, Tensor]]:
        return self._pairs.values() if tensors is None else [self._pairs[id(one)] for one in tensors]


def _tensors(learner: ActorCriticLearner) -> list[Tensor]:
    """Return all tensors that learning changes: the optimizer's begin as zeros."""
    optimizer, parameters = learner.learned, list(learner.policy.parameters())
    for one in parameters:
        if not optimizer.state[one]:
            optimizer.state[one] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(one),
                "exp_avg_sq": torch.zeros_like(one),
            }
    states = [value for one in parameters for value in optimizer.state[one].values()]
    return [*parameters, *learner.policy.buffers(), *states]


class SharingGroup(Group):
    """One actor: it averages with no other, and changes what all share under a lock."""

    def __init__(self, actor: int, memory: SharedMemory) -> None:
        self.rank, self._memory = actor, memory
        self._training: SharedTraining | None = None
        self._seen, self._waited = 0, 0.0
        # How many updates of others came between the copy that played and the step.
        self.lag = 0

    def begin(self, learner: ActorCriticLearner) -> None:
        """Share the training of this learner, which fetches it."""
        self._training = SharedTraining(learner, self._memory)
        with self._memory.locked():
            self._training.fetch()
            self._seen = int(self._training.updates)

    @contextmanager
    def changing(self, tensors: Iterable[Tensor], *, step: bool = False) -> Iterator[None]:
        training, tensors = self._training, list(tensors)
        assert training is not None, "a learner begins before it learns"
        began = time.perf_counter()
        with self._memory.locked():
            self._waited += time.perf_counter() - began
            training.fetch(tensors)
            yield
            if step:
                self.lag = int(training.updates) - self._seen
            training.put(tensors, updates=int(step))
            if step:
                self._seen = int(training.updates)

    def take_seconds(self) -> dict[str, float]:
        waited, self._waited = self._waited, 0.0
        return {WAITING_TIMER: waited}


class AsynchronousLearner:
    """The learner of rank 0, as :class:`jobs.training.loop.Learner`: it counts, evaluates and saves.

    An iteration has as many updates as there are actors, whichever made them.
    """

    exactness = NO_PROGRESS_LOST

    def __init__(
        self,
        config: ActorCriticConfig,
        own: ActorCriticLearner,
        connections: Connections,
        memory: SharedMemory,
    ) -> None:
        self._config, self._own = config, own
        self._connections, self._memory = connections, memory
        self.policy, self.learned, self.running = own.policy, own.learned, {"episodes": own.episodes}
        self.frames_per_iteration = config.envs * config.rollout_steps
        self._training: SharedTraining | None = None
        self._done = self._began = 0.0

    def collect(self) -> list[dict[str, Any]]:
        """Wait for the updates of an iteration; return the actors' messages."""
        self._began = time.perf_counter()
        actors = range(self._config.actors)
        if self._training is None:
            self._training = SharedTraining(self._own, self._memory)
            self._training.put()
            for actor in [*actors] * _AHEAD:
                self._count(actor)
        found = []
        for _ in actors:
            actor, message = self._connections.receive(actors)
            self._count(actor)
            found.append(message)
        return found

    def learn(self, collected: list[dict[str, Any]], done: float) -> dict[str, float]:
        """Fetch what the actors have learned; return their metrics."""
        assert self._training is not None, "collecting comes first"
        self._done = done
        try:
            with self._memory.locked(self._config.actor_timeout):
                self._training.fetch()
        except TimeoutError:
            raise DisconnectedError("actor", range(self._config.actors)) from None
        ended = pooled([Episodes(**one["episodes"]) for one in collected])
        metrics = {**self._own.episodes.metrics(ended), **means([one["metrics"] for one in collected])}
        return {**metrics, TRAINING_CLOCK: time.perf_counter() - self._began}

    def play(self, episodes: int, seed: int, deterministic: bool) -> Played:
        """Play episodes, here alone."""
        return self._own.play(episodes, seed, deterministic)

    def _count(self, actor: int) -> None:
        """Let an actor make a further update."""
        self._connections.send(actor, _DONE.pack(self._done))


@contextmanager
def asynchronous_learner(
    config: C, context: RunContext, build: Build[C]
) -> Iterator[Callable[[], AsynchronousLearner]]:
    """Start the actors of a run; yield what builds rank 0's learner.

    Raises :class:`RankError` if one of them ends before the run does, or does not answer.
    """
    connections, memory = Connections(range(config.actors), config.actor_timeout), SharedMemory()
    children, run = Children(), context.run
    seed = seed_of_attempt(run.seed, context.attempt.number)
    actors = _Actors(config, seed, run.threads, build, connections, memory)
    try:
        for actor in range(config.actors):
            children.fork(f"actor {actor}", partial(actors.learn, actor))
        connections.lead()
        with named_causes(children, context, config):
            games = PlayedElsewhere(config, run.seed)
            yield lambda: AsynchronousLearner(
                config, build(config, run.seed, ALONE, games), connections, memory
            )
    finally:
        children.end(LEAVE_S)
        connections.close()
        memory.close()


@dataclass(frozen=True)
class _Actors(Generic[C]):
    """The actors of a run, each a process with so many ``threads``."""

    config: C
    seed: int
    threads: int
    build: Build[C]
    connections: Connections
    memory: SharedMemory

    def learn(self, actor: int) -> int:
        """Be an actor, until it is killed or fails."""
        bind_to_cores(actor * self.threads, self.threads)
        group = SharingGroup(actor, self.memory)
        with self.connections.of_actor(actor) as connection:
            try:
                play_and_learn(self.config, self.seed, self.build, group, connection)
            except DisconnectedError:  # rank 0 finds out which one is gone
                return LOST_THE_OTHERS
        return 1


def play_and_learn(
    config: C, seed: int, build: Build[C], group: SharingGroup, connection: Connection
) -> None:
    """Play an actor's share of the environments and learn from it, update after update."""
    share = config.envs // config.actors
    learner = build(replace(config, mode=SEQUENTIAL, actors=1, envs=share), seed, group)
    (done,) = _DONE.unpack(connection.recv_bytes())
    group.begin(learner)
    while True:
        began = time.perf_counter()
        rollout, seconds = learner.collect()
        collected = time.perf_counter()
        losses = learner.improve(rollout, done)
        learned = time.perf_counter()
        metrics = {
            **losses,
            **seconds,
            **group.take_seconds(),
            COLLECTION_TIMER: collected - began,
            LEARNING_TIMER: learned - collected,
            LAG: float(group.lag),
        }
        connection.send_bytes(packed({"episodes": vars(learner.games.take_episodes()), "metrics": metrics}))
        (done,) = _DONE.unpack(connection.recv_bytes())

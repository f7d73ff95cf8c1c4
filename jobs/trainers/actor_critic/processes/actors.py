"""Processes that only play, for others that learn: rollouts and parameters in shared memory.

Each update learns from one rollout of each actor. Before an actor begins its rollout k, it waits for the
parameters after k - L updates or later, where L is the largest lag allowed. So L + 1 slots are enough, and no
slot is written while another process reads it: rollout k is in slot k mod (L + 1) of its actor, which the
update k - L - 1 has read; the parameters after v updates are in slot v mod (L + 1), and those that
take their place are written after the rollout of each actor that needs v at least.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor, nn

from jobs.trainers.actor_critic.config import ActorCriticConfig, Players
from jobs.trainers.actor_critic.environments.families import build
from jobs.trainers.actor_critic.environments.interface import Environments
from jobs.trainers.actor_critic.group import (
    DisconnectedError,
    Group,
    packed,
    seed_of,
    unpacked,
)
from jobs.trainers.actor_critic.learner import build_network, means
from jobs.trainers.actor_critic.playing import Episodes, pooled
from jobs.trainers.actor_critic.processes.shared_memory import SharedMemory
from jobs.trainers.actor_critic.rollout import FOR_ACTIONS, Games, Rollout
from jobs.training.context import NO_PROGRESS_LOST
from jobs.training.processes.ranks import RankError
from jobs.worker.failures import end_of
from orchestrator.core.types import Reason
from orchestrator.planning.throughput.measure import ACTOR_WAITING_TIMER, WAITING_TIMER

# A metric of an iteration.
LAG = "train/policy_lag"
_LOOK_S = 1.0


class Connections:
    """Connections of the process that leads these actors, which are forked later. Messages are plain values.

    An actor that owes a message for ``patience`` seconds hangs.
    """

    def __init__(self, actors: Collection[int], patience: float) -> None:
        self._pairs = {actor: Pipe() for actor in actors}
        self._patience, self._since = patience, dict.fromkeys(actors, 0.0)

    def lead(self) -> None:
        """Close what is not the leading process's."""
        for _, theirs in self._pairs.values():
            theirs.close()

    @contextmanager
    def of_actor(self, actor: int) -> Iterator[Connection]:
        """Close all but this actor's connection; report what the block raises to the leading process."""
        for number, (leads, theirs) in self._pairs.items():
            leads.close()
            if number != actor:
                theirs.close()
        connection = self._pairs[actor][1]
        try:
            yield connection
        except Exception as error:
            traceback.print_exc()
            end = end_of(error)
            reason = end.reason or Reason.CODE_ERROR
            connection.send_bytes(packed({"error": end.message, "reason": reason.value}))

    def close(self) -> None:
        """Close all."""
        for pair in self._pairs.values():
            for one in pair:
                one.close()

    def send(self, actor: int, message: bytes) -> None:
        """Send to an actor, which owes a message from now on."""
        self._since[actor] = time.monotonic()
        try:
            self._pairs[actor][0].send_bytes(message)
        except OSError as error:
            raise DisconnectedError from error

    def receive(self, wanted: Collection[int]) -> tuple[int, Any]:
        """Wait for a message of any of these actors; return its number and the message.

        Raises :class:`RankError` for one that failed, :class:`DisconnectedError` for one that is gone or
        hangs.
        """
        connections = {actor: self._pairs[actor][0] for actor in wanted}
        while True:
            able = wait(list(connections.values()), _LOOK_S)
            ready = [actor for actor, one in connections.items() if one in able]
            late = time.monotonic() - self._patience
            if hanging := [one for one in wanted if one not in ready and self._since[one] < late]:
                raise DisconnectedError("actor", hanging)
            if ready:
                return ready[0], self._message(ready[0])

    def _message(self, actor: int) -> Any:
        self._since[actor] = time.monotonic()
        try:
            message = unpacked(self._pairs[actor][0].recv_bytes())
        except (EOFError, OSError) as error:
            raise DisconnectedError from error
        if "error" in message:
            raise RankError(f"actor {actor}: {message['error']}", Reason(message["reason"]))
        return message


class Exchange:
    """What learners and ``actors`` of a node share. It exists before they are forked."""

    def __init__(self, config: ActorCriticConfig, players: Players, node: int = 0, nodes: int = 1) -> None:
        number = players.number // nodes
        self.players, self.actors = players, range(node * number, (node + 1) * number)
        self.connections = Connections(self.actors, config.actor_timeout)
        self._envs, self._steps, self._slots = (
            config.envs // players.number,
            config.rollout_steps,
            players.max_lag + 1,
        )
        self._rollouts = {actor: SharedMemory() for actor in self.actors}
        self._parameters = SharedMemory()

    def close(self) -> None:
        """Close what the leading process has of it."""
        self.connections.close()
        for one in (*self._rollouts.values(), self._parameters):
            one.close()

    def rollouts(self, actor: int, environments: Environments) -> list[Rollout]:
        """Return the slots for the rollouts of an actor, which plays environments such as these."""
        # Without a reset: the actor plays on from what it has seen.
        shape, rows = environments.shape, self._envs * environments.learners
        kind = torch.uint8 if len(shape) == 3 else torch.float32
        seen = torch.empty(rows, *shape, dtype=kind, device="meta")
        like = vars(Rollout.empty(self._steps, seen, len(environments.parts)))
        flat = self._rollouts[actor].tensors([*like.values()] * self._slots)
        size = len(like)
        return [
            Rollout(**dict(zip(like, flat[slot * size : (slot + 1) * size], strict=True)))
            for slot in range(self._slots)
        ]

    def parameters(self, network: nn.Module) -> list[list[Tensor]]:
        """Return the slots for the parameters of a network and its moments."""
        like = list(network.state_dict().values())
        flat = self._parameters.tensors(like * self._slots)
        return [flat[slot * len(like) : (slot + 1) * len(like)] for slot in range(self._slots)]


def play_for_learners(
    config: ActorCriticConfig, seed: int, exchange: Exchange, actor: int, connection: Connection
) -> None:
    """Play on the CPU, rollout after rollout, as long as the leading process lives."""
    own = replace(config, envs=config.envs // exchange.players.number, device="cpu")
    games = Games(own, seed_of(seed, actor))
    network = build_network(own, games.environments)
    slots, parameters = exchange.rollouts(actor, games.environments), exchange.parameters(network)
    version = -1
    for number in count():
        began = time.perf_counter()
        while version < max(0, number - exchange.players.max_lag) or connection.poll():
            connection.recv_bytes()
            version += 1
        waited = time.perf_counter() - began
        _copy(parameters[version % len(parameters)], network.state_dict().values())
        # No learner reads this slot: the parameters came after the update that did.
        _, timers = games.collect(network, slots[number % len(slots)])
        episodes = vars(games.take_episodes())
        seconds = {**timers, ACTOR_WAITING_TIMER: waited}
        connection.send_bytes(packed({"version": version, "episodes": episodes, "seconds": seconds}))


def _copy(source: Collection[Tensor], target: Collection[Tensor]) -> None:
    for own, other in zip(target, source, strict=True):
        own.copy_(other)


class PlayedElsewhere:
    """In place of :class:`Games` where other processes play: sizes of the environments, random numbers."""

    exactness = NO_PROGRESS_LOST

    def __init__(self, config: ActorCriticConfig, seed: int) -> None:
        self.environments = build(config.task, 1, seed, "cpu")
        self.random = torch.Generator(config.device).manual_seed(seed + FOR_ACTIONS)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of random numbers: episodes begin anew."""
        return {"random": self.random.get_state()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self.random.set_state(saved["random"].cpu())


class RolloutsOfActors(PlayedElsewhere):
    """One learner's share of the rollouts of its node's actors, which the first learner there leads."""

    def __init__(self, config: ActorCriticConfig, seed: int, group: Group, exchange: Exchange) -> None:
        super().__init__(config, group.own_seed(seed))
        self._group, self._exchange, self._device = group, exchange, config.device
        # This learner's rows of those of all actors side by side, actor by actor.
        rows = config.envs * self.environments.learners
        each, share = rows // exchange.players.number, rows // group.size
        begin = group.rank * share
        self._leads = begin == exchange.actors.start * each
        self._parts = [
            (exchange.rollouts(actor, self.environments), slice(max(0, first), min(each, first + share)))
            for actor in exchange.actors
            if -share < (first := begin - actor * each) < each
        ]
        self._updates = 0
        self._episodes: list[Episodes] = []

    def collect(self, network: nn.Module) -> tuple[Rollout, dict[str, float]]:
        """Return the next rollouts of the actors side by side, and metrics of them where they are led.

        The network is what actors play from now on.
        """
        number, self._updates = self._updates, self._updates + 1
        metrics = self._attend(network, number) if self._leads else {}
        self._group.wait()
        return self.rollout(number), metrics

    def rollout(self, number: int) -> Rollout:
        """Return a copy of this learner's share of the rollouts of this number."""
        played = [slots[number % len(slots)].between(rows) for slots, rows in self._parts]
        joined = {
            name: torch.cat([getattr(one, name) for one in played], min(1, value.dim() - 1)).to(self._device)
            for name, value in vars(played[0]).items()
        }
        return Rollout(**joined)

    def take_episodes(self) -> Episodes:
        """Return the episodes that ended in the actors' last rollouts, where these are led."""
        taken, self._episodes = self._episodes, []
        return pooled(taken) if taken else Episodes(torch.empty(0), torch.empty(0), {})

    def _attend(self, network: nn.Module, number: int) -> dict[str, float]:
        """Give the actors the parameters after so many updates; wait until all have played a rollout."""
        connections, slots = self._exchange.connections, self._exchange.parameters(network)
        _copy(network.state_dict().values(), slots[number % len(slots)])
        for actor in self._exchange.actors:
            connections.send(actor, b"\0")
        began, missing, found = time.perf_counter(), set(self._exchange.actors), []
        while missing:
            actor, message = connections.receive(missing)
            missing.remove(actor)
            found.append(message)
        self._episodes = [Episodes(**one["episodes"]) for one in found]
        metrics = means([one["seconds"] for one in found])
        metrics[WAITING_TIMER] = time.perf_counter() - began
        metrics[LAG] = sum(number - one["version"] for one in found) / len(found)
        return metrics

"""A learner that several processes are: each plays environments of its own, and all average gradients.

Rank 0 gives orders, which the others follow; so schedules, signals and files are its own matter.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from jobs.trainers.actor_critic.group import ConnectedGroup
from jobs.trainers.actor_critic.learner import ActorCriticLearner
from jobs.trainers.actor_critic.rollout import Rollout
from jobs.training.context import NO_PROGRESS_LOST
from jobs.training.loop import Played
from jobs.training.parts import restore, state_of


class _Order(enum.IntEnum):
    END = 0
    COLLECT = 1
    LEARN = 2
    SAVE = 3
    LOAD = 4


class LeadingLearner:
    """The learner of rank 0, as :class:`jobs.training.loop.Learner`, in the name of all."""

    def __init__(self, own: ActorCriticLearner, group: ConnectedGroup) -> None:
        self._own, self._group = own, group
        self.policy, self.learned = own.policy, own.learned
        self.running = {"episodes": own.episodes, "ranks": self}
        self.frames_per_iteration, self.exactness = own.frames_per_iteration, own.exactness

    def collect(self) -> tuple[Rollout, dict[str, float]]:
        """Have all play; return the own rollout."""
        self._order(_Order.COLLECT)
        return self._own.collect()

    def learn(self, collected: tuple[Rollout, dict[str, float]], done: float) -> dict[str, float]:
        """Have all learn from what they played; return metrics of all."""
        self._order(_Order.LEARN, done)
        return self._own.learn(collected, done)

    def play(self, episodes: int, seed: int, deterministic: bool) -> Played:
        """Play episodes, here alone."""
        return self._own.play(episodes, seed, deterministic)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the environments and random numbers of all."""
        self._order(_Order.SAVE)
        return {str(rank): state for rank, state in enumerate(self._group.gather(state_of(self._own.games)))}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`; the others take over this process's network and optimizer."""
        self._order(_Order.LOAD)
        shared = state_of(self.policy), state_of(self.learned)
        self._group.give([(*shared, saved[str(rank)]) for rank in range(1, self._group.size)])
        restore(self._own.games, saved["0"])
        if NO_PROGRESS_LOST in self._group.gather(self._own.exactness):
            self.exactness = NO_PROGRESS_LOST

    def _order(self, order: _Order, number: float = 0.0) -> None:
        _give_order(self._group, order, number)


def end_all(group: ConnectedGroup) -> None:
    """Have the other processes leave."""
    _give_order(group, _Order.END)


def _give_order(group: ConnectedGroup, order: _Order, number: float = 0.0) -> None:
    group.give([(int(order), number)] * (group.size - 1))


def follow(own: ActorCriticLearner, group: ConnectedGroup) -> None:
    """Do what rank 0 orders, until the end."""
    collected = None
    while True:
        code, number = group.take()
        match _Order(code):
            case _Order.COLLECT:
                collected = own.collect()
            case _Order.LEARN:
                assert collected is not None, "an order to collect comes first"
                own.learn(collected, number)
                collected = None  # its memory is for the next rollout
            case _Order.SAVE:
                group.gather(state_of(own.games))
            case _Order.LOAD:
                policy, learned, games = group.take()
                restore(own.policy, policy)
                restore(own.learned, learned)
                restore(own.games, games)
                group.gather(own.exactness)
            case _Order.END:
                return

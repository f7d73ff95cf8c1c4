"""How agents behave, from recorded nights: how much they work, for whom, and whether their signals are true.

A recording is R nights: the states before and after each of them, and the rules with a row for each. The
state after a night holds the actions of all agents in it. Observations give states: :func:`game.seen_state`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.game import WORK, GameState
from jobs.training.games.bucket_brigade.opponents import ARCHETYPES, work_probability
from jobs.training.games.bucket_brigade.scenarios import Parameters

# Between these two archetypes the free-riding index is measured: 0 and 1.
_WORKER, _FREE_RIDER = "firefighter", "free_rider"


def behaviour(rules: Parameters, before: GameState, after: GameState) -> dict[str, Tensor]:
    """Return all measures of a recording by name, each (N), a number for each agent."""
    actions = after.actions
    return {
        "work_rate": work_rate(actions),
        "honesty": honesty(actions),
        "own_house_share": own_house_share(rules, actions),
        "free_riding": free_riding(rules, before, actions),
    }


def work_rate(actions: Tensor) -> Tensor:
    """Return the share (N) of nights in which each agent works."""
    return actions[..., 1].double().mean(0)


def honesty(actions: Tensor) -> Tensor:
    """Return the share (N) of nights in which an agent's signal says what it does."""
    return (actions[..., 2] == actions[..., 1]).double().mean(0)


def own_house_share(rules: Parameters, actions: Tensor) -> Tensor:
    """Return the share (N) of an agent's work that goes into its own houses; NaN without work."""
    house, mode, _ = actions.unbind(-1)
    own = house % rules.agents == torch.arange(rules.agents, device=house.device)
    works = mode == WORK
    return (own & works).double().sum(0) / works.double().sum(0)


def free_riding(rules: Parameters, before: GameState, actions: Tensor) -> Tensor:
    """Return each agent's free-riding index (N), by its work in these nights.

    0: it works as much as a firefighter would have in its place, 1: as little as a free rider; below 0 and
    above 1 it does more or less than either.
    """
    worker, free_rider = (_expected_work(rules, before, name) for name in (_WORKER, _FREE_RIDER))
    return (worker - work_rate(actions)) / (worker - free_rider)


def _expected_work(rules: Parameters, before: GameState, archetype: str) -> Tensor:
    """Return the share (N) of these nights in which an archetype would have worked."""
    traits = torch.tensor(ARCHETYPES[archetype], device=before.houses.device)
    every = traits.expand(len(before.houses), rules.agents, -1)
    return work_probability(rules, before, every).double().mean(0)

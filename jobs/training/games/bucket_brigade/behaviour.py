"""How agents behave: how much they work, for whom, and whether their signals are true.

Measures of single nights are summed, and the sums give figures. The state after a night holds the actions
of all agents in it. Observations give states: :func:`game.seen_state`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.game import GameState
from jobs.training.games.bucket_brigade.opponents import ARCHETYPES, work_probability
from jobs.training.games.bucket_brigade.scenarios import Parameters

# Between these two archetypes the free-riding index is measured: 0 and 1.
_WORKER, _FREE_RIDER = "firefighter", "free_rider"


def measures(rules: Parameters, before: GameState, after: GameState) -> Tensor:
    """Return five numbers (5, B, N) for each agent in each of B nights, for :func:`behaviour`.

    Whether it works, whether its signal says what it does, whether it works at a house of its own; the
    probabilities that a firefighter and a free rider would have worked in its place.
    """
    house, mode, signal = after.actions.unbind(-1)
    own = house % rules.agents == torch.arange(rules.agents, device=house.device)
    would = (_work_probability(rules, before, name) for name in (_WORKER, _FREE_RIDER))
    return torch.stack((mode, (signal == mode).to(mode.dtype), own * mode, *would))


def behaviour(sums: Tensor, nights: float) -> dict[str, Tensor]:
    """Return the figures of behaviour (...) by name, from sums of :func:`measures` (5, ...) over ``nights``.

    ``work_rate``: the share of nights in which an agent works. ``honesty``: that in which its signal says
    what it does. ``own_house_share``: the share of its work that goes into its own houses; NaN without work.
    ``free_riding``: 0 if it works as much as a firefighter would have in its place, 1 if as little as a
    free rider; below 0 and above 1 it does more or less than either.
    """
    works, true, own, worker, free_rider = sums
    return {
        "work_rate": works / nights,
        "honesty": true / nights,
        "own_house_share": own / works,
        "free_riding": (worker - works) / (worker - free_rider),
    }


def _work_probability(rules: Parameters, before: GameState, archetype: str) -> Tensor:
    """Return the probability (B, N) that an archetype works after these states."""
    traits = torch.tensor(ARCHETYPES[archetype], device=before.houses.device)
    return work_probability(rules, before, traits.expand(len(before.houses), rules.agents, -1))

"""The players of a batch of games: learners, and scripted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.catalogue import ScenarioError
from jobs.training.games.bucket_brigade.game import GameState
from jobs.training.games.bucket_brigade.opponents import (
    ARCHETYPES,
    DRAWS,
    RANDOM,
    TRAITS,
    archetype_actions,
    specialist_actions,
)
from jobs.training.games.bucket_brigade.scenarios import Parameters, by_column

LEARNER, SPECIALIST = "learner", "specialist"
PLAYERS = (LEARNER, SPECIALIST, RANDOM, *ARCHETYPES)
# The opponents that a number stands for: its first so many.
USUAL_OPPONENTS = (RANDOM, RANDOM, "firefighter", "coordinator")


@dataclass(frozen=True)
class Seats:
    """A player's name for each agent, with the traits (N, 10) of archetypes.

    ``learners`` and ``random`` are the numbers of such agents.
    """

    names: tuple[str, ...]
    archetypes: Tensor
    learners: Tensor
    random: Tensor
    is_specialist: Tensor

    def to(self, device: torch.device) -> Seats:
        """Return the same on a device."""
        tensors = ("archetypes", "learners", "random", "is_specialist")
        return replace(self, **{name: getattr(self, name).to(device) for name in tensors})

    @property
    def draws_to_begin(self) -> int:
        """The number of draws that :meth:`traits` needs for a game."""
        return len(self.random) * len(TRAITS)

    @property
    def draws(self) -> int:
        """The number of draws that :meth:`actions` needs for a game."""
        return len(self.names) * DRAWS if {RANDOM, *ARCHETYPES}.intersection(self.names) else 0

    def traits(self, draws: Tensor) -> Tensor:
        """Return the traits (B, N, 10) of players for new episodes: those of random ones are drawn."""
        fixed = by_column(self.archetypes.expand(len(draws), -1, -1))
        if not self.draws_to_begin:
            return fixed
        return fixed.index_copy(1, self.random, _by_player(draws))

    def new_traits(self, traits: Tensor, draws: Tensor, games: Tensor) -> Tensor:
        """Return the traits (B, N, 10) with new ones in the games where ``games`` (B, 1) is 1.0, not 0.0."""
        if not self.draws_to_begin:
            return traits
        drawn = torch.lerp(traits.index_select(1, self.random), _by_player(draws), games[..., None])
        return traits.index_copy(1, self.random, drawn)

    def actions(
        self, rules: Parameters, state: GameState, traits: Tensor, learned: Tensor, draws: Tensor
    ) -> Tensor:
        """Return the actions (B, N, 3) of all agents; ``learned`` (B, L, 3) are those of learners."""
        if not self.draws and SPECIALIST not in self.names:
            return learned
        actions = specialist_actions(rules, state) if SPECIALIST in self.names else learned
        if self.draws:
            drawn = draws.unflatten(1, (len(self.names), DRAWS))
            played = archetype_actions(rules, state, traits, drawn)
            actions = torch.where(self.is_specialist, actions, played) if SPECIALIST in self.names else played
        return actions.index_copy(1, self.learners, learned.to(actions.dtype))


def _by_player(draws: Tensor) -> Tensor:
    return draws.unflatten(1, (-1, len(TRAITS)))


def seats(opponents: int | Sequence[str], agents: int) -> Seats:
    """Return the seats of a game against these opponents.

    A number stands for the first of "random", "random", "firefighter" and "coordinator". They are the last
    agents, learners the first; a name "learner" makes a place for one elsewhere.

    Raises :class:`ScenarioError` for unknown names and for more opponents than agents.
    """
    if isinstance(opponents, int):
        most = min(agents, len(USUAL_OPPONENTS))
        if not 0 <= opponents <= most:
            raise ScenarioError(f"{opponents} opponents: expected 0 to {most} in a game of {agents} agents")
        opponents = USUAL_OPPONENTS[:opponents]
    for name in opponents:
        if name not in PLAYERS:
            near = get_close_matches(name, PLAYERS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(PLAYERS)}"
            raise ScenarioError(f"no player named {name!r}; {hint}")
    if len(opponents) > agents:
        raise ScenarioError(f"{len(opponents)} opponents do not fit into a game of {agents} agents")
    names = (LEARNER,) * (agents - len(opponents)) + tuple(opponents)
    learners = [seat for seat, name in enumerate(names) if name == LEARNER]
    nothing = (0.0,) * len(TRAITS)
    return Seats(
        names=names,
        archetypes=torch.tensor([ARCHETYPES.get(name, nothing) for name in names]),
        learners=torch.tensor(learners, dtype=torch.int64),
        random=torch.tensor([seat for seat, name in enumerate(names) if name == RANDOM], dtype=torch.int64),
        is_specialist=torch.tensor([[name == SPECIALIST] for name in names]),
    )

"""Running games for trainers on tensors: a game that is over begins anew by itself.

    batch = GameBatch(["rest_trap"], 1024, opponents=3, seeds=[7])
    seen = batch.reset()                                    # (B, H + 4 N + 12), the same for every agent
    rewards, terminated, truncated = batch.step(actions)    # actions (B, L, 3): [house, mode, signal]
    seen = batch.observations()

B games, N agents, L of them learners (``batch.learners``), H houses; ``rewards`` are
(B, N), the other two (B). Nothing is copied to the host, and no loop goes over games, houses or agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade import game
from jobs.training.games.bucket_brigade.catalogue import AGENTS, NIGHTS, ScenarioError, scenario
from jobs.training.games.bucket_brigade.game import GameState
from jobs.training.games.bucket_brigade.scenarios import Parameters, parameters
from jobs.training.games.bucket_brigade.seats import Seats, seats

_ONE = 0x3F800000  # the bits of 1.0 as a float
_STATE = tuple(one.name for one in fields(GameState))


@dataclass(frozen=True)
class Episodes:
    """Episodes as they stand: each game's state, the ``traits`` (B, N, 10) of its players, and the sum of
    ``rewards`` (B, N) so far."""

    state: GameState
    traits: Tensor
    rewards: Tensor


class GameBatch:
    """A batch of running games, of several scenarios and seeds.

    ``scenarios`` and ``seeds`` divide the games into equal blocks: a block for each seed, and in it one for
    each scenario. A seed's games are the same alone and among others. ``opponents``: scripted players, a
    number or names (:func:`seats.seats`). Episodes are truncated after ``nights``.

    ``ended`` are the :class:`Episodes` at the end of the last step, before games that are over began anew:
    ``ended.rewards`` are the episodes' rewards, ``ended.state.night`` (B, 1) is their length, and
    ``observations(ended.state)`` what agents saw last.

    Raises :class:`ScenarioError` for unknown names, and for numbers that do not fit.
    """

    def __init__(
        self,
        scenarios: Sequence[str],
        games: int,
        *,
        opponents: int | Sequence[str] = 0,
        nights: int = NIGHTS,
        seeds: Sequence[int] = (0,),
        device: torch.device | str = "cpu",
    ) -> None:
        self.block, rest = divmod(games, len(seeds))
        if rest or not games or self.block % len(scenarios):
            raise ScenarioError(
                f"{games} games cannot be dealt evenly to {len(scenarios)} scenarios and {len(seeds)} seeds"
            )
        self.scenarios, self.seeds, self.games, self.nights = tuple(scenarios), tuple(seeds), games, nights
        self.device = torch.device(device)
        each = torch.arange(len(scenarios)).repeat_interleave(self.block // len(scenarios))
        self.scenario_of_game = each.repeat(len(seeds)).to(self.device)
        rules = parameters([scenario(name) for name in scenarios], AGENTS)
        self.rules: Parameters = rules.take(self.scenario_of_game)
        self.seats: Seats = seats(opponents, AGENTS).to(self.device)
        self._generators = [torch.Generator(self.device).manual_seed(seed) for seed in seeds]
        self.reset()
        self.ended = self.episodes

    @property
    def agents(self) -> int:
        """N, learners and opponents."""
        return self.rules.agents

    @property
    def learners(self) -> tuple[int, ...]:
        """The numbers of the agents that :meth:`step` expects actions of."""
        return tuple(self.seats.learners.tolist())

    @property
    def actions(self) -> tuple[int, int, int]:
        """The number of choices in each part of an action."""
        return self.rules.houses, 2, 2

    @property
    def width(self) -> int:
        """The width of an observation."""
        return game.observation_width(self.rules)

    def reset(self, games: Tensor | None = None) -> Tensor:
        """Begin games anew, all or those of a mask (B); return what is seen."""
        draws = self._draw(_widths(self.rules, self.seats)[0])
        if games is None:
            self.episodes = begin(self.rules, self.seats, draws)
        else:
            self.episodes = _begin_anew(games[:, None], self.rules, self.seats, draws, self.episodes)
        return self.observations()

    def seed(self, seed: int) -> None:
        """Draw from now on as with this seed, and those after it if there are several."""
        for number, generator in enumerate(self._generators):
            generator.manual_seed(seed + number)

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Play a night with the learners' actions (B, L, 3): rewards (B, N), terminated and truncated (B)."""
        draws = self._draw(sum(_widths(self.rules, self.seats)))
        self.episodes, self.ended, *night = advance(
            self.rules, self.seats, self.episodes, actions, draws, self.nights
        )
        rewards, terminated, truncated = night
        return rewards, terminated, truncated

    def observations(self, state: GameState | None = None) -> Tensor:
        """Return what every agent sees (B, H + 4 N + 12) now, or in ``state``."""
        return game.observations(self.rules, state or self.episodes.state)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that a batch built alike needs to continue, bit for bit; tensors are not copied."""
        state = {f"state.{name}": getattr(self.episodes.state, name) for name in _STATE}
        generators = {f"generator.{n}": one.get_state() for n, one in enumerate(self._generators)}
        return {**state, "traits": self.episodes.traits, "rewards": self.episodes.rewards, **generators}

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Continue from ``saved``, of a batch built alike. Raises :class:`ValueError` for another one."""
        found = {name: tuple(value.shape) for name, value in saved.items()}
        expected = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        if found != expected:
            raise ValueError(f"the saved games are of another batch: found {found}, expected {expected}")
        there = {name: value.to(self.device, copy=True) for name, value in saved.items()}
        state = GameState(**{name: there[f"state.{name}"] for name in _STATE})
        self.episodes = Episodes(state, there["traits"], there["rewards"])
        for number, generator in enumerate(self._generators):
            generator.set_state(saved[f"generator.{number}"].cpu())

    def _draw(self, width: int) -> Tensor:
        """Return numbers (B, width), uniform in [0, 1)."""
        blocks = [self._bits(width, one) for one in self._generators]
        bits = torch.cat(blocks, 1) if len(blocks) > 1 else blocks[0]
        bits &= 2**23 - 1
        bits |= _ONE  # now those of floats in [1, 2)
        return bits.view(torch.float32).sub_(1.0).T

    def _bits(self, width: int, generator: torch.Generator) -> Tensor:
        """Return random bits (width, games of a seed), 32 in each number; two numbers a draw."""
        pairs = torch.empty(-(-width * self.block // 2), dtype=torch.int64, device=self.device)
        pairs.random_(-(2**63), None, generator=generator)
        return pairs.view(torch.int32)[: width * self.block].view(width, self.block)


def begin(rules: Parameters, seats: Seats, draws: Tensor) -> Episodes:
    """Return episodes at their beginning; ``draws`` are uniform in [0, 1)."""
    state = game.first_night(rules, draws[:, : rules.houses])
    traits = seats.traits(draws[:, rules.houses :])
    return Episodes(state, traits, torch.zeros_like(rules.own_reward))


def advance(
    rules: Parameters, seats: Seats, episodes: Episodes, actions: Tensor, draws: Tensor, nights: int
) -> tuple[Episodes, Episodes, Tensor, Tensor, Tensor]:
    """Play one night: episodes after it and at its end, rewards, terminated and truncated."""
    beginning, night, scripted = draws.split(_widths(rules, seats), 1)
    actions = seats.actions(rules, episodes.state, episodes.traits, actions, scripted)
    state, rewards, over = game.play_night(rules, episodes.state, actions, night)
    ended = Episodes(state, episodes.traits, episodes.rewards + rewards)
    late = state.night >= nights
    after = _begin_anew(over | late, rules, seats, beginning, ended)
    return after, ended, rewards, over.squeeze(1), (late & ~over).squeeze(1)


def _begin_anew(
    games: Tensor, rules: Parameters, seats: Seats, draws: Tensor, episodes: Episodes
) -> Episodes:
    """Return the episodes, with new ones for the games of a mask (B, 1)."""
    state, new = episodes.state, games.to(draws.dtype)
    old = 1 - new
    traits = seats.new_traits(episodes.traits, draws[:, rules.houses :], new)
    state = GameState(
        houses=torch.lerp(state.houses, game.first_houses(rules, draws[:, : rules.houses]), new),
        progress=state.progress * old if rules.any_continuous else state.progress,
        actions=state.actions * old[..., None],
        night=state.night * old,
    )
    return Episodes(state, traits, episodes.rewards * old)


def _widths(rules: Parameters, seats: Seats) -> tuple[int, int, int]:
    """Return how many draws a game needs to begin anew, for the rules of a night, and for its players."""
    return rules.houses + seats.draws_to_begin, rules.houses, seats.draws

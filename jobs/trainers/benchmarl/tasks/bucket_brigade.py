"""Bucket Brigade, a task for each scenario: every agent learns, or some play against scripted opponents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from benchmarl.environments import TaskClass
from tensordict import TensorDictBase
from torchrl.data import Composite
from torchrl.envs import EnvBase

from jobs.training.config_errors import RefusedKeyError, unexpected
from jobs.training.games.bucket_brigade.baselines import (
    RETURN,
    TEAM_REWARD,
    baseline_figures,
    behaviour_figures,
    with_gap,
)
from jobs.training.games.bucket_brigade.batch import GameBatch
from jobs.training.games.bucket_brigade.behaviour import measures
from jobs.training.games.bucket_brigade.catalogue import AGENTS, ScenarioError, scenario
from jobs.training.games.bucket_brigade.environment import GROUP, BucketBrigadeEnv
from jobs.training.games.bucket_brigade.game import one_hot_state, seen_state
from jobs.training.games.bucket_brigade.scenarios import parameters
from jobs.training.games.bucket_brigade.seats import seats

_ONE_HOT = "one_hot"
_OBSERVATIONS = ("plain", _ONE_HOT)


@dataclass
class BucketBrigadeConfig:
    """How a scenario is played.

    ``max_steps``: nights after which an episode is truncated. ``opponents``: scripted players, a number or
    names (:func:`seats`); all other agents learn. ``observation``: "plain" or "one_hot". ``shared_reward``:
    each agent earns the mean over agents. ``reward_scale``: what rewards are multiplied by.
    """

    max_steps: int
    opponents: Any
    observation: str
    shared_reward: bool
    reward_scale: float

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise unexpected("task.max_steps", self.max_steps, "a whole number from 1")
        if self.observation not in _OBSERVATIONS:
            raise unexpected("task.observation", self.observation, " or ".join(_OBSERVATIONS))
        if not self.reward_scale > 0:
            raise unexpected("task.reward_scale", self.reward_scale, "a number above 0")
        if not isinstance(self.opponents, int | list):
            raise unexpected("task.opponents", repr(self.opponents), "a number or a list of players' names")
        try:
            learners = seats(self.opponents, AGENTS).learners
        except ScenarioError as error:
            raise RefusedKeyError("task.opponents", f"task.opponents: {error}") from error
        if not len(learners):
            raise unexpected("task.opponents", self.opponents, "fewer opponents than agents: nothing learns")


class BucketBrigade(TaskClass):
    """One group, ``agents``; discrete actions; a state that every agent sees."""

    def get_env_fun(
        self,
        num_envs: int,
        continuous_actions: bool,  # noqa: ARG002 (there are none)
        seed: int | None,
        device: Any,
    ) -> Callable[[], EnvBase]:
        config = BucketBrigadeConfig(**self.config)

        def build() -> EnvBase:
            games = GameBatch(
                [self.name.lower()],
                num_envs,
                opponents=config.opponents,
                nights=config.max_steps,
                seeds=[seed or 0],
                device=device,
            )
            return BucketBrigadeEnv(
                games,
                one_hot=config.observation == _ONE_HOT,
                shared_reward=config.shared_reward,
                reward_scale=config.reward_scale,
            )

        return build

    def supports_continuous_actions(self) -> bool:
        return False

    def supports_discrete_actions(self) -> bool:
        return True

    def has_render(self, env: EnvBase) -> bool:  # noqa: ARG002 (nothing to draw)
        return False

    def max_steps(self, env: EnvBase) -> int:  # noqa: ARG002 (the same for all)
        return int(self.config["max_steps"])

    def group_map(self, env: EnvBase) -> dict[str, list[str]]:
        found: dict[str, list[str]] = env.group_map
        return found

    def observation_spec(self, env: EnvBase) -> Composite:
        return Composite({GROUP: env.full_observation_spec_unbatched[GROUP].clone()})

    def info_spec(self, env: EnvBase) -> Composite:
        return Composite({"info": env.full_observation_spec_unbatched["info"].clone()})

    def state_spec(self, env: EnvBase) -> Composite:
        return Composite({"state": env.full_observation_spec_unbatched["state"].clone()})

    def action_spec(self, env: EnvBase) -> Composite:
        return env.full_action_spec_unbatched

    def action_mask_spec(self, env: EnvBase) -> None:  # noqa: ARG002 (every action is always allowed)
        return None

    def log_info(self, batch: TensorDictBase) -> dict[str, float]:
        """Return measures of behaviour in a batch, means over the learners."""
        return self._behaviour(batch.flatten(), "collection")

    def evaluation_info(self, episodes: TensorDictBase) -> dict[str, float]:
        """Return these measures of evaluation, the reward of all agents per night, and the gap closed."""
        team = {TEAM_REWARD: episodes["next", "info", "team_reward"].mean().item()}
        figures = with_gap(team, self.name.lower(), self.config["max_steps"])
        return {
            **{f"eval/{name}": value for name, value in figures.items()},
            **self._behaviour(episodes, "eval"),
        }

    def baselines(self, episodes: int, seed: int) -> dict[str, dict[str, float]]:
        """Return the figures of scripted players in the places of the learners."""
        name, nights = self.name.lower(), self.config["max_steps"]
        players = seats(self.config["opponents"], AGENTS).names
        found = baseline_figures(name, players, episodes, seed, nights)
        for figures in found.values():
            own = figures.pop(RETURN)
            if not self.config["shared_reward"]:
                figures[RETURN] = own * self.config["reward_scale"]
        return {player: with_gap(figures, name, nights) for player, figures in found.items()}

    def _behaviour(self, nights: TensorDictBase, when: str) -> dict[str, float]:
        rules = parameters([scenario(self.name.lower())])
        seen = nights["state"]
        rules = rules.take(torch.zeros(len(seen), dtype=torch.int64, device=seen.device))
        learners = seats(self.config["opponents"], AGENTS).learners.to(seen.device)
        read = one_hot_state if self.config["observation"] == _ONE_HOT else seen_state
        counted = measures(rules, read(rules, seen), read(rules, nights["next", "state"]))
        sums = counted[..., learners].sum(1, dtype=torch.float64)
        return {f"{when}/{name}": value for name, value in behaviour_figures(sums, len(seen)).items()}

    @staticmethod
    def env_name() -> str:
        return "bucket_brigade"

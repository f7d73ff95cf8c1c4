"""Bucket Brigade in plain Python, one game at a time: what a batch of games is measured against."""

from __future__ import annotations

import random
from collections.abc import Sequence

from jobs.training.games.bucket_brigade.catalogue import AGENTS, PerAgent, Scenario

SAFE, BURNING, RUINED = 0, 1, 2
WORK = 1
Action = tuple[int, int, int]


class PlainGame:
    """One game. ``actions`` are [house, mode, signal] of each agent."""

    def __init__(self, rules: Scenario, seed: int) -> None:
        self.rules, self.random = rules, random.Random(seed)
        self.reset()

    def reset(self) -> list[float]:
        """Begin anew; return what is seen."""
        rules = self.rules
        self.houses = [
            int(self.random.random() < rules.prob_house_catches_fire) for _ in range(rules.num_houses)
        ]
        self.progress = [0.0] * rules.num_houses
        self.last: Sequence[Action] = [(0, 0, 0)] * AGENTS
        self.night = 0
        return self.observation()

    def step(self, actions: Sequence[Action]) -> tuple[list[float], list[float], bool]:
        """Play a night: what is seen after it, each agent's reward, and whether the game is over."""
        before = list(self.houses)
        self.last = actions
        self._put_out(actions)
        self._catch_fire()
        rewards = rewards_of(self.rules, before, self.houses, actions)
        done = is_over(self.rules, self.houses, self.night)
        self.night += 1
        return self.observation(), rewards, done

    def observation(self) -> list[float]:
        """Return houses, signals, locations, last actions and the scenario."""
        rules, last = self.rules, self.last
        seen = [float(house) for house in self.houses]
        seen += [float(signal) for _, _, signal in last]
        seen += [float(house) for house, _, _ in last]
        for house, mode, _ in last:
            seen += [float(house), float(mode)]
        seen += [
            rules.prob_fire_spreads_to_neighbor,
            rules.prob_solo_agent_extinguishes_fire,
            rules.team_reward_house_survives,
            rules.team_penalty_house_burns,
            rules.cost_to_work_one_night,
            rules.prob_house_catches_fire,
            float(rules.min_nights),
            float(AGENTS),
            *(mean(each) for each in (rules.reward_own_house_survives, rules.reward_other_house_survives)),
            *(mean(each) for each in (rules.penalty_own_house_burns, rules.penalty_other_house_burns)),
        ]
        return seen

    def _put_out(self, actions: Sequence[Action]) -> None:
        rules = self.rules
        for house in range(rules.num_houses):
            if self.houses[house] != BURNING:
                continue
            workers = sum(1 for place, mode, _ in actions if place == house and mode == WORK)
            if rules.extinguish_mode == "continuous":
                self.progress[house] += workers * rules.suppression_per_worker
                out = self.progress[house] >= 1
            else:
                out = self.random.random() < 1 - (1 - rules.prob_solo_agent_extinguishes_fire) ** workers
                self.houses[house] = RUINED
            if out:
                self.houses[house], self.progress[house] = SAFE, 0.0

    def _catch_fire(self) -> None:
        rules, number = self.rules, self.rules.num_houses
        burning = [house for house in range(number) if self.houses[house] == BURNING]
        for house in burning:
            for near in ((house - 1) % number, (house + 1) % number):
                if self.houses[near] == SAFE and self.random.random() < rules.prob_fire_spreads_to_neighbor:
                    self.houses[near] = BURNING
        for house in range(number):
            if self.houses[house] == SAFE and self.random.random() < rules.prob_house_catches_fire:
                self.houses[house], self.progress[house] = BURNING, 0.0


def rewards_of(
    rules: Scenario, before: Sequence[int], after: Sequence[int], actions: Sequence[Action]
) -> list[float]:
    """Return each agent's reward of a night, from the houses before and after it."""
    number, homes = rules.num_houses, rules.homes(AGENTS)
    safe, ruined = list(after).count(SAFE), list(after).count(RUINED)
    team = rules.team_reward_house_survives * safe / number - rules.team_penalty_house_burns * ruined / number
    found = []
    for agent, (place, mode, _) in enumerate(actions):
        apart = abs(homes[agent] - place)
        distance = min(apart, number - apart)
        reward = rules.reward_rest
        if mode == WORK:
            reward = -(rules.cost_to_work_one_night + rules.distance_cost_alpha * distance)
        for house in range(number):
            own = house % AGENTS == agent
            if before[house] != SAFE and after[house] == SAFE:
                gains = rules.reward_own_house_survives if own else rules.reward_other_house_survives
                reward += of_agent(gains, agent)
            if after[house] == RUINED:
                losses = rules.penalty_own_house_burns if own else rules.penalty_other_house_burns
                reward -= of_agent(losses, agent)
        found.append(reward + team)
    return found


def is_over(rules: Scenario, houses: Sequence[int], night: int) -> bool:
    """Whether a game is over after a night, counted from 0."""
    return night >= rules.min_nights and BURNING not in houses


def of_agent(value: PerAgent, agent: int) -> float:
    """Return a parameter's value for an agent."""
    return value[agent] if isinstance(value, tuple) else value


def mean(value: PerAgent) -> float:
    """Return a parameter's mean over agents."""
    return sum(value) / len(value) if isinstance(value, tuple) else value

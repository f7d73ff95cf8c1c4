"""The keys of environments, and their names, without what builds them: typing errors are found at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from jobs.training.games.bucket_brigade.catalogue import NIGHTS
from jobs.training.games.procgen import EASY, GAMES, HARD

CLASSIC_CONTROL = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0")


@dataclass
class BucketBrigadeConfig:
    """The keys of the game.

    ``name``: the environment, as in a grid. ``opponents``: how many, or the names of scripted players; the
    other agents learn, with one policy. ``nights``: episodes are cut after so many. ``identity``: learners
    see which agent they are, if several learn.
    """

    name: str
    opponents: Any = 3
    nights: int = NIGHTS
    identity: bool = True


@dataclass
class GymnasiumConfig:
    """The keys of the task. ``name``: the environment, as in a grid."""

    name: str


def gymnasium_names() -> list[str]:
    """Return the ids of all environments, the newest version of each first."""
    try:
        from gymnasium import registry
    except ModuleNotFoundError:  # building one says what is missing
        return list(CLASSIC_CONTROL)
    return sorted(registry, key=lambda name: (registry[name].name, -(registry[name].version or 0)))


# How to name an environment that is not registered here.
NAME_A_MODULE = (
    "name the module that registers it, such as gymnasium/minigrid:MiniGrid-Empty-5x5-v0; "
    "for an environment of your own add plugins: ./my_envs"
)


def names_module(name: str) -> bool:
    """Return whether the name has the module that registers it, as in ``minigrid:MiniGrid-Empty-5x5-v0``."""
    return re.fullmatch(r"[\w.]+:.+", name) is not None


@dataclass
class ProcgenConfig:
    """The keys of a game. ``name``: the environment, as in a grid.

    Training plays ``num_levels`` levels from ``start_level`` on, evaluations ``test_num_levels`` from
    ``test_start_level`` on; 0 for all levels there are.
    """

    name: str
    mode: str = EASY
    num_levels: int = 200
    start_level: int = 0
    test_num_levels: int = 0
    test_start_level: int = 0


def tested_levels(config: ProcgenConfig) -> ProcgenConfig:
    """Return the keys of the environments in which policies are evaluated."""
    return replace(config, num_levels=config.test_num_levels, start_level=config.test_start_level)


def seen_levels(config: ProcgenConfig) -> int:
    """Return how many levels of evaluations are among those of training, where both are limited."""
    first, tested = config.start_level, config.test_start_level
    last = min(first + config.num_levels, tested + config.test_num_levels)
    return max(0, last - max(first, tested)) if config.num_levels and config.test_num_levels else 0


def other_games() -> dict[str, str]:
    """Return what other programs call the games."""
    spellings = (
        *("{0}", "{0}-v0", "{0}easy-v0"),
        *("procgen-{0}", "procgen-{0}-v0", "procgen:procgen-{0}-v0", "procgen:{0}", "procgen_{0}"),
    )
    hard = {f"{game}hard-v0": f"{game} with task.mode: {HARD}" for game in GAMES}
    return {spelling.format(game): game for game in GAMES for spelling in spellings} | hard

"""The environments of actor-critic trainers, by their names in a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.trainers.actor_critic.environments.interface import Environments
from jobs.trainers.actor_critic.environments.keys import (
    NAME_A_MODULE,
    BucketBrigadeConfig,
    GymnasiumConfig,
    ProcgenConfig,
    gymnasium_names,
    names_module,
    other_games,
    tested_levels,
)
from jobs.training.context import BadConfigError
from jobs.training.games.bucket_brigade.catalogue import ScenarioError, scenario_names
from jobs.training.games.procgen import GAMES
from jobs.training.plugins import Plugin


@dataclass(frozen=True)
class Family:
    """Environments of one kind. ``names``: those after the slash; ``config``: their keys, by their name.

    ``build``: environments from keys, their number, a seed and a device. ``baselines``: the figures of
    scripted players in the places of learners, in so many episodes of a seed. ``tested``: the keys of the
    environments in which policies are evaluated. ``other_names``: what other programs call them.
    ``has_other``: whether there is an environment of a name that is not among ``names``; ``other_hint``: how
    to name one.
    """

    names: Callable[[], Sequence[str]]
    config: Callable[[str], Any]
    build: Callable[[Any, int, int, str], Environments]
    baselines: Callable[[Any, int, int], dict[str, dict[str, float]]] = lambda *_: {}
    tested: Callable[[Any], Any] = lambda keys: keys
    other_names: Callable[[], Mapping[str, str]] = dict
    has_other: Callable[[str], bool] = lambda _: False
    other_hint: str | None = None


# Imported when they are built: a check of keys needs none of them.


def _bucket_brigade(keys: Any, envs: int, seed: int, device: str) -> Environments:
    from jobs.trainers.actor_critic.environments.bucket_brigade import BucketBrigade

    return BucketBrigade(keys, envs, seed, device)


def _bucket_brigade_baselines(keys: Any, episodes: int, seed: int) -> dict[str, dict[str, float]]:
    from jobs.trainers.actor_critic.environments.bucket_brigade import bucket_brigade_baselines

    return bucket_brigade_baselines(keys, episodes, seed)


def _gymnasium(keys: Any, envs: int, seed: int, device: str) -> Environments:
    from jobs.trainers.actor_critic.environments.gymnasium_envs import Gymnasium

    return Gymnasium(keys, envs, seed, device)


def _procgen(keys: Any, envs: int, seed: int, device: str) -> Environments:
    from jobs.trainers.actor_critic.environments.procgen import Procgen

    return Procgen(keys, envs, seed, device)


ENVIRONMENTS: Mapping[str, Family] = {
    "bucket_brigade": Family(
        scenario_names,
        BucketBrigadeConfig,
        _bucket_brigade,
        _bucket_brigade_baselines,
    ),
    "gymnasium": Family(
        gymnasium_names,
        GymnasiumConfig,
        _gymnasium,
        has_other=names_module,
        other_hint=NAME_A_MODULE,
    ),
    "procgen": Family(
        lambda: GAMES,
        ProcgenConfig,
        _procgen,
        tested=tested_levels,
        other_names=other_games,
    ),
}


def environment_names() -> list[str]:
    """Return the names of all environments, as in a grid."""
    return [f"{family}/{name}" for family, found in ENVIRONMENTS.items() for name in found.names()]


def is_other_environment(name: str) -> bool:
    """Return whether a name in a grid that is not among :func:`environment_names` is an environment's."""
    family, _, rest = name.partition("/")
    if rest.lower() in other_names():  # another program's module, which is not needed
        return False
    return family in ENVIRONMENTS and ENVIRONMENTS[family].has_other(rest)


def hint_of_other(name: str) -> str | None:
    """Return how to name an environment that is not among :func:`environment_names`."""
    family = ENVIRONMENTS.get(name.partition("/")[0])
    return family.other_hint if family is not None else None


def other_names() -> dict[str, str]:
    """Return other programs' names of environments, each with ours."""
    return {
        theirs: f"{family}/{ours}"
        for family, found in ENVIRONMENTS.items()
        for theirs, ours in found.other_names().items()
    }


def family_of(name: str) -> Family:
    """Return the family of an environment, by its name in a grid."""
    return ENVIRONMENTS[name.partition("/")[0]]


def build(config: Any, envs: int, seed: int, device: str) -> Environments:
    """Build environments side by side. Raises :class:`BadConfigError` for keys that do not fit."""
    try:
        return family_of(config.name).build(config, envs, seed, device)
    except (ScenarioError, TypeError) as error:
        raise BadConfigError(f"task: {config.name}: {error}") from error


def take_plugin(name: str, plugin: Plugin, conf: Path) -> None:  # noqa: ARG001 (as for any trainer)
    """Take a plug-in that registers environments with Gymnasium, which it did when it was imported.

    Raises :class:`BadConfigError` for one of another trainer.
    """
    if plugin != Plugin():
        raise BadConfigError(
            f"plug-in {name}: its tasks, models and algorithms are those of benchmarl",
            hint="for this trainer write plugin = Plugin(), and register environments with Gymnasium",
        )

"""Compare observations and actions of tasks: whether a policy of one task can play another."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from benchmarl.environments import TaskClass, task_config_registry
from benchmarl.experiment import Experiment
from torchrl.data import Composite
from torchrl.envs import Compose, TransformedEnv

from jobs.trainers.benchmarl.configuration.config import Composed
from jobs.training.context import BadConfigError
from jobs.training.records.error_chain import reason


@dataclass(frozen=True)
class Spaces:
    """A task's spaces. ``agents``: group → how many. ``sides``: an agent's observations, actions, by key."""

    agents: Mapping[str, int]
    sides: Mapping[str, str]

    def differences(self, other: Spaces, *, any_number: bool) -> list[str]:
        """Describe what ``other`` has in another way; ``any_number``: the number of agents may differ."""
        if set(self.agents) != set(other.agents):
            return [f"groups of agents: {_listed(other.agents)} instead of {_listed(self.agents)}"]
        pairs = [(key, self.sides.get(key), other.sides.get(key)) for key in {**self.sides, **other.sides}]
        if not any_number:
            pairs += [(f"agents in {key}", str(n), str(other.agents[key])) for key, n in self.agents.items()]
        return [f"{key}: {b or 'nothing'} instead of {a or 'nothing'}" for key, a, b in pairs if a != b]


def require_same(own: Composed, other: Composed) -> None:
    """Raise :class:`BadConfigError` unless a policy trained on ``own``'s task fits ``other``'s."""
    any_number = bool(own.experiment.share_policy_params)
    wanted = _spaces(own)
    found = wanted.differences(_spaces(other), any_number=any_number)
    if found:
        families = {outline.task_name.partition("/")[0] for outline in (own, other)}
        fitting = _fitting(own, families, wanted, any_number)
        raise BadConfigError(
            f"{other.task_name} has other spaces than {own.task_name}, which the policy was trained on: "
            + "; ".join(found),
            hint=f"of the same spaces: {', '.join(fitting)}" if fitting else None,
        )


def _spaces(composed: Composed) -> Spaces:
    """Build one environment of the task. Raises :class:`BadConfigError` if that fails."""
    try:
        return _spaces_of(composed.task, _continuous(composed))
    except Exception as error:  # a library may raise anything
        raise BadConfigError(f"{composed.task_name} cannot be built: {reason(error)}") from error


def _spaces_of(task: TaskClass, continuous: bool) -> Spaces:
    plain = task.get_env_fun(num_envs=1, continuous_actions=continuous, seed=0, device="cpu")()
    env = TransformedEnv(plain, Compose(*task.get_env_transforms(plain)))
    try:
        masks = task.action_mask_spec(env)
        sides = {
            **_words(task.observation_spec(env), bounds=False),
            **_words(task.action_spec(env), bounds=True),
            **(_words(masks, bounds=False) if masks is not None else {}),
        }
        return Spaces({group: len(agents) for group, agents in task.group_map(env).items()}, sides)
    finally:
        env.close()


def _words(spec: Composite, *, bounds: bool) -> dict[str, str]:
    """Describe each leaf for one agent: its shape without that of the group, its type, its limits."""
    found = {}
    for key, leaf in spec.items(include_nested=True, leaves_only=True):
        shape = "×".join(str(size) for size in leaf.shape[1:])
        kind = str(leaf.dtype).removeprefix("torch.")
        one_of = getattr(leaf.space, "n", None)
        if bounds and one_of is not None:
            found["/".join(key)] = f"one of {one_of}"
            continue
        words = f"{shape or 'a number'} ({kind})"
        if bounds:
            words += f" from {float(leaf.space.low.min()):g} to {float(leaf.space.high.max()):g}"
        found["/".join(key)] = words
    return found


def _continuous(composed: Composed) -> bool:
    """Whether BenchMARL takes the continuous actions of a task that has both kinds."""
    asked: Any = SimpleNamespace(
        task=composed.task, algorithm_config=composed.algorithm, config=composed.experiment
    )
    Experiment._set_action_type(asked)
    return bool(asked.continuous_actions)


def _fitting(own: Composed, families: Collection[str], wanted: Spaces, any_number: bool) -> list[str]:
    """Return the tasks of these families that fit without any changes."""
    found = []
    for name, task in task_config_registry.items():
        if name.partition("/")[0] not in families or name == own.task_name:
            continue
        with contextlib.suppress(Exception):  # one that cannot be built here does not fit
            spaces = _spaces_of(task.get_from_yaml(), _continuous(own))
            if not wanted.differences(spaces, any_number=any_number):
                found.append(name)
    return found


def _listed(agents: Mapping[str, int]) -> str:
    return ", ".join(sorted(agents))

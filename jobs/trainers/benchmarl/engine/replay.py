"""Resume PettingZoo environments by replaying their current episode from its reset.

Their state may live in a physics engine that cannot be saved. So every environment logs the random states
before its last reset and the actions since; a resumed run repeats them and checks that it gets the
observations of the saved run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from jobs.trainers.benchmarl.engine.random_states import (
    GENERATORS,
    load_generator,
    load_numpy_random,
    load_python_random,
    save_generator,
    save_numpy_random,
    save_python_random,
)
from jobs.trainers.benchmarl.engine.tensors import Plain

_DEPTH = 12


class ReplayError(Exception):
    """A replayed episode differs from the saved one."""


class EpisodeLog:
    """Follows one TorchRL ``PettingZooWrapper`` from its construction on."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._groups = list(env.group_map)
        self._reset, self._step = env._reset, env._step
        self._begin: Plain = None
        self._actions: list[dict[str, torch.Tensor]] = []
        self._draws: dict[int, Plain] = {}
        self._seen: dict[str, torch.Tensor] = {}
        env._reset, env._step = self._logged_reset, self._logged_step

    def save(self) -> Plain:
        """Return the episode so far, and the states of the generators."""
        actions = {}
        if self._actions:
            actions = {group: torch.stack([step[group] for step in self._actions]) for group in self._groups}
        return {
            "begin": self._begin,
            "actions": actions,
            "draws": self._draws,
            "seen": self._seen,
            "generators": save_generators(self._env._env),
        }

    def load(self, saved: Plain, *, repeat: bool) -> None:
        """Repeat the saved episode; without ``repeat``, before a reset, only set the generators."""
        if repeat:
            self._repeat(saved)
        load_generators(self._env._env, saved["generators"])
        self._begin, self._draws, self._seen = saved["begin"], dict(saved["draws"]), dict(saved["seen"])
        self._actions = list(_steps(saved["actions"]))

    def _repeat(self, saved: Plain) -> None:
        begin = saved["begin"]
        load_generators(self._env._env, begin["generators"])
        _load_globals(begin["global"])
        seen, count = self._reset(None, **begin["kwargs"]), 0
        for count, actions in enumerate(_steps(saved["actions"]), start=1):
            if count - 1 in saved["draws"]:
                _load_globals(saved["draws"][count - 1])
            step = {(group, "action"): action for group, action in actions.items()}
            seen = self._step(TensorDict(step, batch_size=self._env.batch_size, device=self._env.device))
        for group, observation in self._observations(seen).items():
            if not torch.equal(observation, saved["seen"][group].to(observation.device)):
                raise ReplayError(
                    f"the episode of {type(self._env._env).__name__} replayed for {count} steps "
                    "is not the one that was saved: it depends on more than its generators and actions"
                )

    def _logged_reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self._begin = {
            "generators": save_generators(self._env._env),
            "global": _save_globals(),
            "kwargs": dict(kwargs),
        }
        self._actions, self._draws = [], {}
        result = self._reset(tensordict, **kwargs)
        self._seen = self._observations(result)
        return result

    def _logged_step(self, tensordict: TensorDictBase) -> TensorDictBase:
        before: Any = np.random.get_state()
        actions = {group: tensordict.get((group, "action")).detach().clone() for group in self._groups}
        result = self._step(tensordict)
        after: Any = np.random.get_state()
        if before[2] != after[2] or not np.array_equal(before[1], after[1]):
            # This environment draws from NumPy's global generator; most have their own.
            self._draws[len(self._actions)] = {"numpy": save_numpy_random(before), "python": None}
        self._actions.append(actions)
        self._seen = self._observations(result)
        return result

    def _observations(self, result: TensorDictBase) -> dict[str, torch.Tensor]:
        return {group: result.get((group, "observation")).detach().clone() for group in self._groups}


def _steps(actions: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield stacked actions step by step."""
    count = max((len(stacked) for stacked in actions.values()), default=0)
    for number in range(count):
        yield {group: stacked[number] for group, stacked in actions.items()}


def save_generators(root: Any) -> Plain:
    """Return the state of every generator below ``root``, by its path."""
    return {path: save_generator(generator) for path, generator in _generators(root)}


def load_generators(root: Any, saved: Plain) -> None:
    """Restore the state of every generator below ``root``. Raises :class:`ReplayError`."""
    found = dict(_generators(root))
    missing = sorted(set(saved) - set(found))
    if missing:
        raise ReplayError(f"no generator at {', '.join(missing)} in the environment built anew")
    for path, state in saved.items():
        load_generator(found[path], state)


def _generators(root: Any) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    waiting = [("", root, 0)]
    while waiting:
        path, value, depth = waiting.pop()
        if isinstance(value, GENERATORS):
            if id(value) not in seen:
                seen.add(id(value))
                yield path, value
        elif id(value) not in seen and depth < _DEPTH:
            seen.add(id(value))
            waiting.extend((f"{path}/{name}", item, depth + 1) for name, item in _members(value))


def _members(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        items = [(str(number), item) for number, item in enumerate(value)]
    elif isinstance(value, dict):
        items = [(key, item) for key, item in value.items() if isinstance(key, str)]
    elif isinstance(value, type | torch.Tensor | np.ndarray) or callable(value):
        return []
    else:
        items = list(getattr(value, "__dict__", {}).items())
    return [(name, item) for name, item in items if not isinstance(item, int | float | str | bool | None)]


def _save_globals() -> Plain:
    return {
        "numpy": save_numpy_random(np.random.get_state()),
        "python": save_python_random(random.getstate()),
    }


def _load_globals(saved: Plain) -> None:
    np.random.set_state(load_numpy_random(saved["numpy"]))
    if saved["python"] is not None:
        random.setstate(load_python_random(saved["python"]))

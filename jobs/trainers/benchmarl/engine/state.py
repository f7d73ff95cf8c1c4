"""Everything that decides how a BenchMARL training goes on, item by item.

Each item is needed: a test leaves every one out in turn and finds a difference. They are loaded in this
order; the random states come last because building and replaying environments draws numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from benchmarl.experiment import Experiment
from torchrl.objectives.utils import HardUpdate

from jobs.trainers.benchmarl.engine import buffers
from jobs.trainers.benchmarl.engine.random_states import (
    load_numpy_random,
    load_python_random,
    load_vmas_random,
    save_numpy_random,
    save_python_random,
    save_vmas_random,
)
from jobs.trainers.benchmarl.engine.tensors import Plain, from_tensordict, to_tensordict


@dataclass(frozen=True)
class StateItem:
    """One part of the state: how to take it from an experiment, and how to put it into a new one."""

    name: str
    save: Callable[[Experiment], Plain]
    load: Callable[[Experiment, Plain], None]


def save_state(experiment: Experiment, items: Iterable[StateItem]) -> dict[str, Plain]:
    """Return these items. Tensors are not copied; the contents of replay buffers are segments."""
    return {item.name: item.save(experiment) for item in items}


def load_state(experiment: Experiment, saved: dict[str, Plain], items: Iterable[StateItem]) -> None:
    """Restore these items."""
    for item in items:
        item.load(experiment, saved[item.name])


def _of_groups(
    name: str, parts: str, save: Callable[[Any], Plain], load: Callable[[Any, Plain], None]
) -> StateItem:
    """Return an item for the attribute ``parts`` of experiments, which has a value for each agent group."""

    def save_all(experiment: Experiment) -> Plain:
        return {group: save(part) for group, part in getattr(experiment, parts).items()}

    def load_all(experiment: Experiment, saved: Plain) -> None:
        for group, part in getattr(experiment, parts).items():
            load(part, saved[group])

    return StateItem(name, save_all, load_all)


def _of_collector(name: str, save: Callable[[Any], Plain], load: Callable[[Any, Plain], None]) -> StateItem:
    """Return an item of the collector, which a training that collects with gradients lacks."""

    def save_any(experiment: Experiment) -> Plain:
        return None if experiment.config.collect_with_grad else save(experiment.collector)

    def load_any(experiment: Experiment, saved: Plain) -> None:
        if saved is not None:
            load(experiment.collector, saved)

    return StateItem(name, save_any, load_any)


def _of_part(name: str) -> StateItem:
    """Return an item for an attribute of experiments that saves and loads itself."""

    def load(experiment: Experiment, saved: Plain) -> None:
        getattr(experiment, name).load(saved)

    return StateItem(name, lambda experiment: getattr(experiment, name).save(), load)


# Counters


def _save_counters(experiment: Experiment) -> Plain:
    names = ("total_time", "total_frames", "n_iters_performed", "mean_return")
    return {name: getattr(experiment, name) for name in names}


def _load_counters(experiment: Experiment, saved: Plain) -> None:
    for name, value in saved.items():
        setattr(experiment, name, value)


# Learning


def _load_loss(loss: torch.nn.Module, saved: Plain) -> None:
    loss.load_state_dict(saved)


def _states_of(optimizers: Mapping[str, Any]) -> Plain:
    return {name: optimizer.state_dict() for name, optimizer in optimizers.items()}


def _restore_each(optimizers: Mapping[str, Any], saved: Plain) -> None:
    for name, optimizer in optimizers.items():
        optimizer.load_state_dict(saved[name])


def _load_policy(experiment: Experiment, saved: Plain) -> None:
    experiment.policy.load_state_dict(saved)
    if not experiment.config.collect_with_grad:
        experiment.collector.update_policy_weights_()  # its own copy, where it samples on another device


def _save_target_counters(experiment: Experiment) -> Plain:
    updaters = experiment.target_updaters.items()
    return {group: updater.counter for group, updater in updaters if isinstance(updater, HardUpdate)}


def _load_target_counters(experiment: Experiment, saved: Plain) -> None:
    for group, counter in saved.items():
        experiment.target_updaters[group].counter = counter


# Collecting


def _save_collector(collector: Any) -> Plain:
    return {"frames": collector._frames, "iter": collector._iter}


def _load_collector(collector: Any, saved: Plain) -> None:
    collector._frames, collector._iter = saved["frames"], saved["iter"]


def _load_carrier(collector: Any, saved: Plain) -> None:
    collector._carrier = to_tensordict(saved)


def _cuda_states() -> list[Any]:
    states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [state.cpu() for state in states]


ITEMS = (
    StateItem("counters", _save_counters, _load_counters),
    _of_groups("losses", "losses", lambda loss: loss.state_dict(), _load_loss),
    StateItem("policy", lambda experiment: experiment.policy.state_dict(), _load_policy),
    _of_part("best"),
    _of_groups("optimizers", "optimizers", _states_of, _restore_each),
    StateItem("target_counters", _save_target_counters, _load_target_counters),
    StateItem(
        "buffer_contents",
        lambda _: None,  # in the segments, which the checkpoint names
        lambda experiment, _: experiment.load_rings(),
    ),
    _of_groups("buffer_cursors", "replay_buffers", buffers.save_cursor, buffers.load_cursor),
    _of_groups("samplers", "replay_buffers", buffers.save_sampler, buffers.load_sampler),
    _of_collector("collector", _save_collector, _load_collector),
    _of_collector("carrier", lambda collector: from_tensordict(collector._carrier), _load_carrier),
    _of_collector(
        "trajectories",
        lambda collector: collector._traj_pool._traj_id,
        lambda collector, saved: collector._traj_pool._traj_id.copy_(saved),
    ),
    _of_part("training_environments"),
    _of_part("evaluation_environments"),
    StateItem("vmas_random", lambda _: save_vmas_random(), lambda _, saved: load_vmas_random(saved)),
    StateItem(
        "python_random",
        lambda _: save_python_random(random.getstate()),
        lambda _, saved: random.setstate(load_python_random(saved)),
    ),
    StateItem(
        "numpy_random",
        lambda _: save_numpy_random(np.random.get_state()),
        lambda _, saved: np.random.set_state(load_numpy_random(saved)),
    ),
    StateItem(
        "torch_random",
        lambda _: torch.random.get_rng_state(),
        lambda _, saved: torch.random.set_rng_state(saved),
    ),
    StateItem(
        "cuda_random",
        lambda _: _cuda_states(),
        lambda _, saved: torch.cuda.set_rng_state_all(saved) if saved else None,
    ),
)
RESULT = tuple(item for item in ITEMS if item.name in ("counters", "losses", "policy", "best"))

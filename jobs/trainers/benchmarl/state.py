"""Everything that decides how a BenchMARL training goes on, item by item.

Each item is needed: a test leaves every one out in turn and finds a difference. They are loaded in this
order; the random states come last because building and replaying environments draws numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torchrl.objectives.utils import HardUpdate

from jobs.trainers.benchmarl import buffers
from jobs.trainers.benchmarl.best import BestPolicy
from jobs.trainers.benchmarl.environments import Environments
from jobs.trainers.benchmarl.snapshot import load_vmas_random, save_vmas_random
from jobs.trainers.benchmarl.tensors import (
    Plain,
    from_tensordict,
    load_numpy_random,
    load_python_random,
    save_numpy_random,
    save_python_random,
    to_tensordict,
)

if TYPE_CHECKING:
    from jobs.trainers.benchmarl.experiment import ResumableExperiment as Experiment

# 2 has the best policy.
FORMAT = 2


@dataclass(frozen=True)
class StateItem:
    """One part of the state: how to take it from an experiment, and how to put it into a new one."""

    name: str
    save: Callable[[Experiment], Plain]
    load: Callable[[Experiment, Plain], None]


def save_state(experiment: Experiment) -> dict[str, Plain]:
    """Return all items but the contents of replay buffers, which are segments. Tensors are not copied."""
    return {"format": FORMAT, **{item.name: item.save(experiment) for item in ITEMS}}


def load_state(experiment: Experiment, saved: dict[str, Plain]) -> None:
    """Restore all items."""
    for item in ITEMS:
        item.load(experiment, _item(saved, item.name))


def save_result(experiment: Experiment) -> dict[str, Plain]:
    """Return the items of a finished training: the networks, and counters that say it is finished."""
    return {"format": FORMAT, **{item.name: item.save(experiment) for item in RESULT}}


def load_result(experiment: Experiment, saved: dict[str, Plain]) -> None:
    """Restore the items of a finished training."""
    for item in RESULT:
        item.load(experiment, _item(saved, item.name))


def _item(saved: dict[str, Plain], name: str) -> Plain:
    """Return a saved item. Format 1 had no best policy: evaluations count from there on."""
    if name == "best" and saved["format"] == 1:
        return {**BestPolicy().save(), "since": saved["counters"]["total_frames"]}
    return saved[name]


# Counters


def _save_counters(experiment: Experiment) -> Plain:
    return {
        "total_time": experiment.total_time,
        "total_frames": experiment.total_frames,
        "n_iters_performed": experiment.n_iters_performed,
        "mean_return": experiment.mean_return,
    }


def _load_counters(experiment: Experiment, saved: Plain) -> None:
    for name, value in saved.items():
        setattr(experiment, name, value)


# Learning


def _save_losses(experiment: Experiment) -> Plain:
    return {group: loss.state_dict() for group, loss in experiment.losses.items()}


def _load_losses(experiment: Experiment, saved: Plain) -> None:
    for group, loss in experiment.losses.items():
        loss.load_state_dict(saved[group])


def _load_policy(experiment: Experiment, saved: Plain) -> None:
    experiment.policy.load_state_dict(saved)
    if not experiment.config.collect_with_grad:
        experiment.collector.update_policy_weights_()  # its own copy, where it samples on another device


def _save_optimizers(experiment: Experiment) -> Plain:
    return {
        group: {name: optimizer.state_dict() for name, optimizer in optimizers.items()}
        for group, optimizers in experiment.optimizers.items()
    }


def _load_optimizers(experiment: Experiment, saved: Plain) -> None:
    for group, optimizers in experiment.optimizers.items():
        for name, optimizer in optimizers.items():
            optimizer.load_state_dict(saved[group][name])


def _save_target_counters(experiment: Experiment) -> Plain:
    updaters = experiment.target_updaters.items()
    return {group: updater.counter for group, updater in updaters if isinstance(updater, HardUpdate)}


def _load_target_counters(experiment: Experiment, saved: Plain) -> None:
    for group, counter in saved.items():
        experiment.target_updaters[group].counter = counter


def _save_cursors(experiment: Experiment) -> Plain:
    return {group: buffers.save_cursor(buffer) for group, buffer in experiment.replay_buffers.items()}


def _load_cursors(experiment: Experiment, saved: Plain) -> None:
    for group, buffer in experiment.replay_buffers.items():
        buffers.load_cursor(buffer, saved[group])


def _save_samplers(experiment: Experiment) -> Plain:
    return {group: buffers.save_sampler(buffer) for group, buffer in experiment.replay_buffers.items()}


def _load_samplers(experiment: Experiment, saved: Plain) -> None:
    for group, buffer in experiment.replay_buffers.items():
        buffers.load_sampler(buffer, saved[group])


# Collecting


def _save_collector(experiment: Experiment) -> Plain:
    if experiment.config.collect_with_grad:
        return None
    return {"frames": experiment.collector._frames, "iter": experiment.collector._iter}


def _load_collector(experiment: Experiment, saved: Plain) -> None:
    if saved is not None:
        experiment.collector._frames, experiment.collector._iter = saved["frames"], saved["iter"]


def _save_carrier(experiment: Experiment) -> Plain:
    if experiment.config.collect_with_grad:
        return None
    return from_tensordict(experiment.collector._carrier)


def _load_carrier(experiment: Experiment, saved: Plain) -> None:
    if saved is not None:
        experiment.collector._carrier = to_tensordict(saved)


def _save_trajectories(experiment: Experiment) -> Plain:
    if experiment.config.collect_with_grad:
        return None
    return experiment.collector._traj_pool._traj_id


def _load_trajectories(experiment: Experiment, saved: Plain) -> None:
    if saved is not None:
        experiment.collector._traj_pool._traj_id.copy_(saved)


# Environments


def _training(experiment: Experiment) -> Environments:
    return experiment.training_environments


def _evaluation(experiment: Experiment) -> Environments:
    return experiment.evaluation_environments


def _cuda_states() -> list[Any]:
    states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [state.cpu() for state in states]


ITEMS = (
    StateItem("counters", _save_counters, _load_counters),
    StateItem("losses", _save_losses, _load_losses),
    StateItem("policy", lambda experiment: experiment.policy.state_dict(), _load_policy),
    StateItem(
        "best", lambda experiment: experiment.best.save(), lambda experiment, it: experiment.best.load(it)
    ),
    StateItem("optimizers", _save_optimizers, _load_optimizers),
    StateItem("target_counters", _save_target_counters, _load_target_counters),
    StateItem(
        "buffer_contents",
        lambda _: None,  # in the segments, which the checkpoint names
        lambda experiment, _: experiment.load_rings(),
    ),
    StateItem("buffer_cursors", _save_cursors, _load_cursors),
    StateItem("samplers", _save_samplers, _load_samplers),
    StateItem("collector", _save_collector, _load_collector),
    StateItem("carrier", _save_carrier, _load_carrier),
    StateItem("trajectories", _save_trajectories, _load_trajectories),
    StateItem(
        "training_environments",
        lambda experiment: _training(experiment).save(),
        lambda experiment, saved: _training(experiment).load(saved),
    ),
    StateItem(
        "evaluation_environments",
        lambda experiment: _evaluation(experiment).save(),
        lambda experiment, saved: _evaluation(experiment).load(saved),
    ),
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

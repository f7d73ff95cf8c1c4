"""Start from another run: from its whole state with other keys, or from its policy alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from benchmarl.experiment import Experiment

from jobs.trainers.benchmarl.engine.state import ITEMS, load_state, save_state
from jobs.trainers.benchmarl.engine.tensors import Plain
from jobs.training.context import BadConfigError
from jobs.training.forking import Fork, with_own_options

# Keys of what is played, by shell-style patterns, and the items of the state that such a fork leaves out.
_PLAYED = (
    "task",
    "task.*",
    "seed",
    "experiment.*_n_envs_per_worker",
    "experiment.parallel_collection",
    "experiment.sampling_device",
)
_EPISODES = {"best", "carrier", "trajectories", "training_environments", "evaluation_environments"}
_RANDOM = {"vmas_random", "python_random", "numpy_random", "torch_random", "cuda_random"}
# Buffers of modules that explore which do not change in training.
_FIXED = ("eps_init", "eps_end", "sigma_init", "sigma_end")


def load_fork(experiment: Experiment, saved: dict[str, Plain], fork: Fork) -> None:
    """Restore the state of the run that this one forks from; settings stay those of its own keys.

    With other environments new episodes begin, with another seed other random numbers. Raises
    :class:`BadConfigError` for another size of iterations, which are counted.
    """
    counters = saved["counters"]
    batch = experiment.config.collected_frames_per_batch(experiment.on_policy)
    if counters["total_frames"] != batch * counters["n_iters_performed"]:
        raise BadConfigError(
            f"the run has {batch:_} frames per iteration, and the run that it forks from had other ones",
            hint="leave experiment.*_collected_frames_per_batch as it was",
        )
    left = _EPISODES if fork.changes(*_PLAYED) else set()
    left = left | _RANDOM if fork.changes("seed") else left
    settings = [(buffer, buffer.clone()) for buffer in _settings(experiment)]
    own = save_state(experiment, (item for item in ITEMS if item.name == "optimizers"))
    saved = {**saved, **with_own_options({"optimizers": saved["optimizers"]}, own)}
    load_state(experiment, saved, (item for item in ITEMS if item.name not in left))
    for buffer, value in settings:
        buffer.copy_(value)


def load_policy(experiment: Experiment, saved: Mapping[str, Any]) -> None:
    """Give the experiment a policy; targets of shared networks follow, and exploration begins anew."""
    fresh = {f"{name}.{one}" for name, module in _exploring(experiment) for one in module.state_dict()}
    kept = {key: value for key, value in experiment.policy.state_dict().items() if key in fresh}
    experiment.policy.load_state_dict({**saved, **kept})
    if not experiment.config.collect_with_grad:
        experiment.collector.update_policy_weights_()
    for loss in experiment.losses.values():
        learned = dict(loss.named_parameters())
        for name, target in loss.named_buffers():
            if (source := learned.get(name.removeprefix("target_"))) is not None:
                target.copy_(source.detach())


def _settings(experiment: Experiment) -> Iterator[torch.Tensor]:
    """Yield the buffers that hold values of the configuration, such as a discount."""
    for loss in experiment.losses.values():
        yield from (one for name, one in loss.named_buffers() if one.dim() == 0 and "_params." not in name)
    for _, module in _exploring(experiment):
        yield from (getattr(module, name) for name in _FIXED if hasattr(module, name))


def _exploring(experiment: Experiment) -> Iterator[tuple[str, torch.nn.Module]]:
    modules = experiment.policy.named_modules()
    return ((name, module) for name, module in modules if hasattr(module, "annealing_num_steps"))

"""Rules for the values of BenchMARL's experiment beyond their types."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from importlib.metadata import version

import torch
from benchmarl.experiment import ExperimentConfig
from torchrl.data.replay_buffers import samplers

from jobs.trainers.amounts import Amounts
from jobs.trainers.benchmarl.configuration import values
from jobs.training.config_errors import RefusedKeyError, bare_key
from jobs.training.devices import Cuda
from orchestrator.core.types import Value

# Fields of ExperimentConfig that are right or wrong together, or amounts.
READ_TOGETHER = (
    "evaluation",
    "evaluation_interval",
    "evaluation_episodes",
    "on_policy_collected_frames_per_batch",
    "off_policy_collected_frames_per_batch",
    "checkpoint_interval",
    "keep_checkpoints_num",
    "max_n_frames",
    "max_n_iters",
    "off_policy_memory_size",
    "off_policy_use_prioritized_replay_buffer",
    "sampling_device",
    "train_device",
    "buffer_device",
)
# Of the experiment's keys, those that change what is built.
DECIDE_BUILD = frozenset(
    f"experiment.{name}"
    for name in (
        "share_policy_params",
        "prefer_continuous_actions",
        "collect_with_grad",
        "render",
        "adam_extra_kwargs",
    )
)
_FIELDS = frozenset(field.name for field in fields(ExperimentConfig))


def check_value(key: str, value: Value) -> None:
    """Refuse a value of the right type that cannot work. Raises :class:`RefusedKeyError`."""
    values.check_value(key, value)
    name = bare_key(key)
    if name in values.DEVICES and value != "disk":
        try:
            torch.device(value)
        except (RuntimeError, TypeError) as error:  # spelled well, and not a device of this PyTorch
            why = str(error).splitlines()[0]
            raise RefusedKeyError(key, f"{name}: found {value!r}, which PyTorch refuses: {why}") from error


def check_together(config: ExperimentConfig, on_policy: bool, keys: frozenset[str]) -> None:
    """Run BenchMARL's own validation, and add the fix. ``keys`` are those that the run sets."""
    kind = "on_policy" if on_policy else "off_policy"
    batch_key = f"experiment.{kind}_collected_frames_per_batch"
    batch = config.collected_frames_per_batch(on_policy)
    for field in ("evaluation_interval", "checkpoint_interval"):
        key, interval = f"experiment.{field}", getattr(config, field)
        if field == "evaluation_interval" and not config.evaluation:
            continue
        if field == "checkpoint_interval" and interval == 0:
            continue
        if interval < 1:
            hint = (
                "experiment.evaluation: false turns it off"
                if field == "evaluation_interval"
                else "0 turns it off"
            )
            raise RefusedKeyError(key, f"{key}: found {interval}, expected frames from 1", hint=hint)
        if interval % batch:
            raise RefusedKeyError(
                key if key in keys else batch_key,
                f"{key}: found {interval:_}, "
                f"expected a multiple of the {batch:_} frames of an iteration ({batch_key})",
                hint=f"write {_multiples(interval, batch)}",
            )
    _validate(config, on_policy)
    _check_priorities(config, on_policy)
    _check_gpus(config, keys)


def amounts_of(config: ExperimentConfig, on_policy: bool) -> Amounts:
    """Return the amounts of a valid configuration; without what a GPU or a disk holds."""
    held_by = "on_policy_collected_frames_per_batch" if on_policy else "off_policy_memory_size"
    return Amounts(
        frames=config.get_max_n_frames(on_policy),
        batch=config.collected_frames_per_batch(on_policy),
        held=config.replay_buffer_memory_size(on_policy) if config.buffer_device == "cpu" else 0,
        held_by=(held_by,),
        evaluation_interval=config.evaluation_interval if config.evaluation else 0,
        evaluation_episodes=config.evaluation_episodes,
        checkpoint_interval=config.checkpoint_interval,
        prefix="experiment.",
    )


def can_prioritize() -> bool:
    """Whether the compiled part of TorchRL, which prioritized replay needs, loads here."""
    return samplers.SumSegmentTreeFp32 is not None


def never_read(on_policy: bool) -> str:
    """Return the prefix of the keys that an algorithm of this kind never reads."""
    return "experiment.off_policy_" if on_policy else "experiment.on_policy_"


def twin_error(key: str, algorithm: str) -> RefusedKeyError:
    """Build the error for runs that differ only in a key that their algorithm never reads."""
    kind = "off-policy" if "off_policy_" in key else "on-policy"
    return RefusedKeyError(
        key,
        f"{bare_key(key)}: {algorithm} never reads it, "
        "so runs that differ only in it train the same thing twice",
        hint=f"it is for {kind} algorithms: keep one of its values for {algorithm} and exclude the others",
    )


def for_the_other_kind(name: str) -> str | None:
    """Return the same setting for algorithms of the other kind; ``None`` if they have none."""
    head, dot, field = name.partition(".")
    kind, other = (
        ("off_policy_", "on_policy_") if field.startswith("off_policy_") else ("on_policy_", "off_policy_")
    )
    twin = field.replace(kind, other, 1)
    return f"{head}{dot}{twin}" if twin in _FIELDS else None


def idle_error(key: str, meant: str, algorithms: Sequence[str]) -> RefusedKeyError:
    """Build the error for a key that none of these algorithms reads, while they read ``meant``."""
    name = bare_key(key)
    kind = "off-policy" if ".off_policy_" in name else "on-policy"
    others = "algorithm is" if len(algorithms) == 1 else "algorithms are"
    return RefusedKeyError(
        key,
        f"{name} is for {kind} algorithms, and the grid's {others} {', '.join(algorithms)}: nothing reads it",
        hint=f"write {meant}",
    )


def _validate(config: ExperimentConfig, on_policy: bool) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config.validate(on_policy)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise RefusedKeyError(None, f"experiment: {error}") from error


def _check_priorities(config: ExperimentConfig, on_policy: bool) -> None:
    if on_policy or not config.off_policy_use_prioritized_replay_buffer or can_prioritize():
        return
    key = "experiment.off_policy_use_prioritized_replay_buffer"
    raise RefusedKeyError(
        key,
        f"{key}: SumSegmentTreeFp32 is not available: the compiled part of TorchRL {version('torchrl')} "
        f"does not load with PyTorch {version('torch')}",
        hint="leave it out, or install a TorchRL that is built for this PyTorch",
    )


def _check_gpus(config: ExperimentConfig, keys: frozenset[str]) -> None:
    set_here = {bare_key(key) for key in keys}
    for name in values.DEVICES:
        device = getattr(config, name.partition(".")[2])
        problem = None if device == "disk" else _cuda().why_not(device)
        if problem is not None:
            why, hint = problem
            raise RefusedKeyError(name if name in set_here else "experiment", f"{name}: {why}", hint=hint)


@cache
def _cuda() -> Cuda:
    return Cuda.here()


def _multiples(value: int, step: int) -> str:
    below = value // step * step
    return f"{below + step:_}" if below == 0 else f"{below:_} or {below + step:_}"

"""Rules for single values of BenchMARL's keys beyond their types. Loads no PyTorch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from jobs.trainers.benchmarl.configuration.people import CLASSES
from jobs.training.config_errors import bare_key, unexpected
from orchestrator.core.types import Value

DEVICES = ("experiment.sampling_device", "experiment.train_device", "experiment.buffer_device")
LOGGERS = ("csv", "tensorboard", "wandb")  # jobs.training.records.loggers has them, and loads PyTorch
# Torch's devices that a grid is likely to name, and other names for them.
_DEVICE = re.compile(r"(?:cpu|cuda|mps|xpu|hpu|mtia|xla|meta|hip|ipu|vulkan|privateuseone)(?::\d{1,3})?")
_CALLED = {"gpu": "cuda", "nvidia": "cuda", "amd": "cuda", "rocm": "cuda", "metal": "mps", "apple": "mps"}
_COUNTS = (
    "_collected_frames_per_batch",
    "_n_envs_per_worker",
    "_n_minibatch_iters",
    "_minibatch_size",
    "_n_optimizer_steps",
    "_train_batch_size",
    "_memory_size",
    ".max_n_frames",
    ".max_n_iters",
    ".evaluation_episodes",
    ".keep_checkpoints_num",
)
# Bounds of other numbers, both included, and their description in a message.
_BETWEEN: Mapping[str, tuple[float, float, str]] = {
    "experiment.lr": (0, float("inf"), "a number from 0"),
    "experiment.adam_eps": (0, float("inf"), "a number from 0"),
    "experiment.clip_grad_val": (0, float("inf"), "a number from 0"),
    "experiment.gamma": (0, 1, "a number from 0 to 1"),
    "experiment.polyak_tau": (0, 1, "a number from 0 to 1"),
    "experiment.exploration_eps_init": (0, 1, "a number from 0 to 1"),
    "experiment.exploration_eps_end": (0, 1, "a number from 0 to 1"),
    "experiment.off_policy_init_random_frames": (0, float("inf"), "a whole number from 0"),
    "algorithm.clip_epsilon": (0, float("inf"), "a number from 0"),
    "algorithm.lmbda": (0, 1, "a number from 0 to 1"),
    "task.n_agents": (1, float("inf"), "a whole number from 1"),
    "task.max_steps": (1, float("inf"), "a whole number from 1"),
    "task.max_cycles": (1, float("inf"), "a whole number from 1"),
    "task.n_walkers": (1, float("inf"), "a whole number from 1"),
}


def check_value(key: str, value: Any) -> None:
    """Refuse a value of the right type that cannot work. Raises :class:`RefusedKeyError`."""
    name = bare_key(key)
    if name in DEVICES:
        check_device(key, value)
    elif name == "experiment.loggers":
        _check_loggers(key, value)
    elif name.startswith("experiment.") and name.endswith(_COUNTS) and value is not None and value < 1:
        raise unexpected(key, value, "a whole number from 1")
    elif name.endswith("_class") and isinstance(value, str) and "." not in value:
        meant = CLASSES.get(re.sub(r"[^a-z]", "", value.lower()))
        raise unexpected(key, repr(value), "a class with its module, such as torch.nn.Tanh", meant=meant)
    elif name in _BETWEEN and isinstance(value, int | float) and not isinstance(value, bool):
        low, high, expected = _BETWEEN[name]
        if not low <= value <= high:
            raise unexpected(key, value, expected)


def check_device(key: str, value: Value) -> None:
    """Check the spelling of a device, not whether it exists."""
    if bare_key(key) == "experiment.buffer_device" and value == "disk":
        return
    if not (isinstance(value, str) and _DEVICE.fullmatch(value)):
        meant = _device_meant(str(value).lower())
        raise unexpected(key, repr(value), "a device such as cpu, cuda or cuda:0", meant=meant)


def _device_meant(text: str) -> str | None:
    head, _, number = text.partition(":")
    if match := re.fullmatch(r"([a-z]+)[-_ ]?(\d+)", head):
        head, number = match.groups()
    called = _CALLED.get(head, head)
    meant = f"{called}:{number}" if number else called
    if _DEVICE.fullmatch(meant):
        return meant
    known = ["cpu", "cuda", "cuda:0", "cuda:1", "mps", "disk"]
    return next(iter(difflib.get_close_matches(text, known, 1)), None)


def _check_loggers(key: str, value: Any) -> None:
    for name in value:
        if name not in LOGGERS:
            near = next(iter(difflib.get_close_matches(str(name), LOGGERS, 1)), None)
            raise unexpected(key, repr(name), f"some of: {', '.join(LOGGERS)}", meant=near)

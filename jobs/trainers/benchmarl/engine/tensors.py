"""Tensordicts and random states as plain values that ``torch.load(weights_only=True)`` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

Plain = Any  # None, numbers, text, tensors, and lists, tuples and dicts of them


def from_tensordict(data: TensorDictBase) -> Plain:
    """Return the same tree as dicts; every leaf owns its memory, so no view drags its base into a file."""
    if isinstance(data, LazyStackedTensorDict):
        return {"stack": data.stack_dim, "parts": [from_tensordict(part) for part in data.tensordicts]}
    entries = {}
    for key, value in data.items():
        is_tree = isinstance(value, TensorDictBase)
        entries[key] = from_tensordict(value) if is_tree else value.detach().clone()
    device = None if data.device is None else str(data.device)
    return {"entries": entries, "batch": list(data.batch_size), "device": device}


def to_tensordict(saved: Plain) -> TensorDictBase:
    """Invert :func:`from_tensordict`."""
    if "stack" in saved:
        parts = [to_tensordict(part) for part in saved["parts"]]
        return LazyStackedTensorDict(*parts, stack_dim=saved["stack"])
    entries = {
        key: to_tensordict(value) if isinstance(value, Mapping) else value
        for key, value in saved["entries"].items()
    }
    return TensorDict(entries, batch_size=saved["batch"], device=saved["device"])


def tensor_bytes(value: Plain) -> int:
    """Return the bytes of all tensors in a tree, each piece of memory counted once."""
    found: dict[int, int] = {}

    def visit(item: Plain) -> None:
        if isinstance(item, torch.Tensor):
            found[item.untyped_storage().data_ptr()] = item.untyped_storage().nbytes()
        elif isinstance(item, Mapping):
            for part in item.values():
                visit(part)
        elif isinstance(item, list | tuple):
            for part in item:
                visit(part)

    visit(value)
    return sum(found.values())


# Random states


def save_python_random(state: tuple[Any, ...]) -> Plain:
    """Return Python's random state as plain values."""
    version, words, gauss = state
    return [version, torch.tensor(words, dtype=torch.int64), gauss]


def load_python_random(saved: Plain) -> tuple[Any, ...]:
    """Invert :func:`save_python_random`."""
    version, words, gauss = saved
    return version, tuple(words.tolist()), gauss


def save_numpy_random(state: Any) -> Plain:
    """The state of NumPy's global generator, as ``numpy.random.get_state()`` gives it."""
    name, words, *rest = state
    return [name, torch.from_numpy(words.astype(np.int64)), *rest]


def load_numpy_random(saved: Plain) -> tuple[Any, ...]:
    """Invert :func:`save_numpy_random`."""
    name, words, *rest = saved
    return name, words.numpy().astype(np.uint32), *rest

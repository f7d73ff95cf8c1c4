"""Tensordicts as plain values that ``torch.load(weights_only=True)`` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

"""The state of the parts that a learner consists of, as tensors and plain values.

A part is an object with ``state_dict`` and ``load_state_dict``, such as a module or an optimizer; a random
generator of PyTorch or NumPy; or a mapping of parts by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def state_of(part: Any) -> dict[str, Any]:
    """Return the state of a part. Raises ``TypeError`` for an object that is none."""
    if isinstance(part, Mapping):
        return {name: state_of(one) for name, one in part.items()}
    if isinstance(part, torch.Generator):
        return {"state": part.get_state()}
    if isinstance(part, np.random.Generator):
        return {"state": _plain(part.bit_generator.state)}
    if hasattr(part, "state_dict"):
        return dict(part.state_dict())
    raise TypeError(
        f"a {type(part).__name__} is no part of a state: it has no methods state_dict and load_state_dict"
    )


def restore(part: Any, saved: Mapping[str, Any]) -> None:
    """Give a part the state that :func:`state_of` returned."""
    if isinstance(part, Mapping):
        for name, one in part.items():
            restore(one, saved[name])
    elif isinstance(part, torch.Generator):
        part.set_state(saved["state"].cpu())
    elif isinstance(part, np.random.Generator):
        part.bit_generator.state = saved["state"]
    else:
        part.load_state_dict(dict(saved))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value

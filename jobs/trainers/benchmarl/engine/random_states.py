"""The states of random generators as plain values that ``torch.load(weights_only=True)`` accepts."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import torch

from jobs.trainers.benchmarl.engine.tensors import Plain

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_VMAS_ENVIRONMENT = "vmas.simulator.environment.environment"


def save_generator(generator: Any) -> Plain:
    """Return the state of one generator."""
    if isinstance(generator, np.random.RandomState):
        return save_numpy_random(generator.get_state())
    if isinstance(generator, np.random.Generator):
        return _plain_state(generator.bit_generator.state)
    if isinstance(generator, random.Random):
        return save_python_random(generator.getstate())
    return generator.get_state()


def load_generator(generator: Any, saved: Plain) -> None:
    """Restore the state of one generator."""
    if isinstance(generator, np.random.RandomState):
        generator.set_state(load_numpy_random(saved))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = _numpy_state(saved)
    elif isinstance(generator, random.Random):
        generator.setstate(load_python_random(saved))
    else:
        generator.set_state(saved)


def _plain_state(state: Any) -> Plain:
    if isinstance(state, dict):
        return {key: _plain_state(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        return {"array": torch.from_numpy(state.astype(np.int64)), "dtype": str(state.dtype)}
    if isinstance(state, int) and not isinstance(state, bool):
        return {"integer": hex(state)}  # 128 bits and more
    return state


def _numpy_state(saved: Plain) -> Any:
    if isinstance(saved, dict) and "integer" in saved:
        return int(saved["integer"], 16)
    if isinstance(saved, dict) and "array" in saved:
        return saved["array"].numpy().astype(saved["dtype"])
    if isinstance(saved, dict):
        return {key: _numpy_state(value) for key, value in saved.items()}
    return saved


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


def save_vmas_random() -> Plain:
    """Return VMAS's random state, one list for all its environments; ``None`` if VMAS is not loaded."""
    vmas = sys.modules.get(_VMAS_ENVIRONMENT)
    if vmas is None:
        return None
    torch_state, numpy_state, python_state = vmas.Environment.vmas_random_state
    return {
        "torch": torch_state,
        "numpy": save_numpy_random(numpy_state),
        "python": save_python_random(python_state),
    }


def load_vmas_random(saved: Plain) -> None:
    """Restore VMAS's random state."""
    vmas = sys.modules.get(_VMAS_ENVIRONMENT)
    if saved is None or vmas is None:
        return
    # In place: VMAS's methods hold the list itself.
    vmas.Environment.vmas_random_state[:] = [
        saved["torch"].cpu(),
        load_numpy_random(saved["numpy"]),
        load_python_random(saved["python"]),
    ]

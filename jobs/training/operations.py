"""Floating-point operations: those that a network takes, and those that a core does in a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

_SIZE = 1024
_SECONDS, _LEAST_TIMES = 0.05, 4


def operations_of(network: nn.Module, outputs: Callable[[], Sequence[Tensor]]) -> tuple[int, int]:
    """Return the operations of computing a network's outputs, and of that with gradients by its parameters.

    Counted are products of matrices and convolutions, a multiplication with its addition as two.
    """
    with torch.no_grad(), FlopCounterMode(display=False) as forward:
        outputs()
    with FlopCounterMode(display=False) as both:
        torch.autograd.grad([output.sum() for output in outputs()], list(network.parameters()))
    return forward.get_total_flops(), both.get_total_flops()


def peak_of_core(precision: torch.dtype) -> float:
    """Measure the operations per second of a product of two matrices on one core: the fastest of several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    matrix = torch.ones(_SIZE, _SIZE, dtype=precision)
    seconds: list[float] = []
    while len(seconds) < _LEAST_TIMES or sum(seconds) < _SECONDS:
        began = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    return 2 * _SIZE**3 / min(seconds)

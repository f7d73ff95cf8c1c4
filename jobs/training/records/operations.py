"""Floating-point operations: those that a network takes, and those that a core does in a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

_SIZE = 1024
_SECONDS, _LEAST_TIMES, _MOST_SECONDS = 0.05, 4, 0.5
# A product that takes so many times as long in 16 bits is slow; less may be noise of a busy machine.
SLOW = 1.5
_REPEATS = 3


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
    while sum(seconds) < (_SECONDS if len(seconds) >= _LEAST_TIMES else _MOST_SECONDS):
        began = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    return 2 * _SIZE**3 / min(seconds)


def slowdown(precision: torch.dtype) -> float:
    """Measure how many times as long as in single precision a convolution learns here, on one core.

    Takes about a tenth of a second. Processors compute in 16 bits with instructions of their own, or slowly.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    fastest = {torch.float32: math.inf, precision: math.inf}
    for number in range(1 + _REPEATS):
        for kind in fastest:
            seconds = _seconds_of_convolution(kind)
            fastest[kind] = min(fastest[kind], seconds if number else math.inf)  # the first one prepares
    torch.set_num_threads(threads)
    return fastest[precision] / fastest[torch.float32]


def _seconds_of_convolution(precision: torch.dtype) -> float:
    pictures = torch.ones(4, 16, 32, 32, dtype=precision).to(memory_format=torch.channels_last)
    weights = torch.ones(32, 16, 3, 3, dtype=precision, requires_grad=True)
    began = time.perf_counter()
    torch.nn.functional.conv2d(pictures, weights, padding=1).sum().backward()  # type: ignore[no-untyped-call]
    return time.perf_counter() - began

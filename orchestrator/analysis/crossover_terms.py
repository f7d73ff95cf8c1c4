"""Outcomes of a crossover of CPU and GPU, and numbers as sentences about one have them."""

from __future__ import annotations

import math
from enum import Enum


class Winner(Enum):
    """What CPU and GPU are to each other where both were measured."""

    ONE_DEVICE = "only one of them was measured"
    APART = "they were measured with different numbers of environments"
    EVEN = "nowhere a clear difference"
    GPU_NEVER = "the GPU never wins"
    GPU_ALWAYS = "the GPU always wins"
    GPU_FROM = "the GPU wins from some number of environments"
    GPU_UNTIL = "the GPU wins up to some number of environments"
    SEVERAL = "they change places more than once"


def threads_text(threads: int) -> str:
    return f"{threads} thread{'s' * (threads != 1)}"


def environments_text(first: int, last: int | None = None) -> str:
    span = f"{first:,}" if last in (None, first) else f"{first:,} to {last:,}"
    return f"{span} environment{'s' * (span != '1')}"


def about_text(count: float) -> str:
    """Two digits are all that such a crossing can bear."""
    digits = max(0, math.floor(math.log10(count)) - 1)
    return f"{round(count / 10**digits) * 10**digits:,}"

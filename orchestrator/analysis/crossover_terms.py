"""Outcomes of a comparison of CPU and GPU, and number formats for sentences about it."""

from __future__ import annotations

import math
from enum import Enum


class Winner(Enum):
    """Result of comparing CPU and GPU over the numbers of environments measured on both."""

    ONE_DEVICE = "only one of them was measured"
    APART = "they were measured with different numbers of environments"
    EVEN = "nowhere a clear difference"
    GPU_NEVER = "the GPU never wins"
    GPU_ALWAYS = "the GPU always wins"
    GPU_FROM = "the GPU wins from some number of environments"
    GPU_UNTIL = "the GPU wins up to some number of environments"
    SEVERAL = "they change places more than once"


def threads_text(threads: int) -> str:
    """Format a number of threads."""
    return f"{threads} thread{'s' * (threads != 1)}"


def environments_text(first: int, last: int | None = None) -> str:
    """Format a number of environments, or a range."""
    span = f"{first:,}" if last in (None, first) else f"{first:,} to {last:,}"
    return f"{span} environment{'s' * (span != '1')}"


def about_text(count: float) -> str:
    """Round a crossing to two digits: it is no more precise."""
    digits = max(0, math.floor(math.log10(count)) - 1)
    return f"{round(count / 10**digits) * 10**digits:,}"

"""A training held against the length that it declared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.worker.failures import IncompleteRun, require_complete
from orchestrator.rundir import Row


def check(frames: list[int], total: int | None) -> None:
    require_complete([Row(n, done, float(n)) for n, done in enumerate(frames)], total, Path(os.devnull))


@pytest.mark.parametrize(
    ("frames", "total"),
    [
        ([10, 20, 30], None),
        ([100], 100),
        ([50, 104], 100),  # it finished an iteration
        ([0, 2048, 4096, 6144, 8192], 10_000),  # whole iterations alone, as 10_000 // 2048 says
        ([20_480, 40_960, 61_440, 81_920], 100_000),  # it writes every tenth of them
        ([2048, 4096, 5000, 6144, 8192, 9900], 10_240),  # it writes evaluations in between
        ([*range(0, 100_000, 1_000)], 100_000),  # it writes a line as each iteration begins
        ([*range(256, 98_305, 256)], 100_000),  # iterations of 2,048, a line every 256 frames
        ([498_700, 498_900, 499_187], 500_000),  # episodes of any length
        ([99_999], 100_000),
    ],
)
def test_a_whole_training_is_complete(frames: list[int], total: int | None) -> None:
    check(frames, total)


@pytest.mark.parametrize(
    ("frames", "total"),
    [
        ([10, 20, 30], 100),
        ([60], 100),
        ([10, 20, 30, 40, 50, 60, 70, 80, 90], 100),
        ([0], 100),
        ([], 100),
        ([0, 50_001], 100_000),
        ([0, 60_000, 60_001, 60_002], 100_000),
        ([25_000, *range(26_000, 81_000, 1_000)], 100_000),  # random steps first
    ],
)
def test_one_that_ended_before_is_not(frames: list[int], total: int) -> None:
    with pytest.raises(IncompleteRun, match=r"stopped at [\d,]+ of [\d,]+ frames"):
        check(frames, total)

"""Times and memory in Slurm's syntax. The values are what Slurm 22.05 itself makes of these texts."""

from __future__ import annotations

import pytest

from orchestrator.core.units import ALL_MEMORY, megabytes, memory, seconds, span


@pytest.mark.parametrize(
    ("time", "expected"),
    [("90", 5400), ("1:30", 90), ("5:75", 375), ("2:00:00", 7200), ("1:2:3", 3723), ("0:00:01", 1),
     ("0-1", 3600), ("1-0", 86400), ("1-12", 129600), ("1-12:30", 131400), ("1-12:30:15", 131415),
     ("1-25", 176400)],
)  # fmt: skip
def test_times_mean_what_they_mean_to_slurm(time: str, expected: int) -> None:
    assert seconds(time) == expected


@pytest.mark.parametrize(
    ("mem", "expected"),
    [("4000", 4000), ("3M", 3), ("1K", 1), ("1024K", 1), ("1025K", 2), ("4G", 4096), ("4g", 4096),
     ("2T", 2 * 1024 * 1024), ("100GB", 102400), ("4gib", 4096), ("5Kb", 1),
     ("0", ALL_MEMORY), ("0G", ALL_MEMORY)],
)  # fmt: skip
def test_memory_means_what_it_means_to_slurm(mem: str, expected: int) -> None:
    assert megabytes(mem) == expected
    assert megabytes(memory(expected)) == expected


@pytest.mark.parametrize(
    "time",
    ["", "0", "0:00", "0-0", "1h", "-5", "1-", "1:", ":1", "1:2:3:4", "1-2:3:4:5", "UNLIMITED", "1.5",
     " 1", "1\n", "١", "9" * 5000],
)  # fmt: skip
def test_other_times_are_refused(time: str) -> None:
    with pytest.raises(ValueError, match="found"):
        seconds(time)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("6h", 21600), ("1.5 d", 129600), ("90min", 5400), ("90m", 5400), ("30s", 30), ("6:00:00", 21600),
     (" 2h ", 7200)],
)  # fmt: skip
def test_people_say_times_with_units(text: str, expected: float) -> None:
    assert span(text) == expected


@pytest.mark.parametrize(
    "text", ["", "6", "0h", "-1h", "1 week", "h", "nan h", "1e9h", "٦h", "9" * 5000 + "h"]
)
def test_a_time_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="found"):
        span(text)


@pytest.mark.parametrize(
    "mem", ["", "B", "4B", "04G", "-4G", "1.5G", "4 G", "4GX", "4P", "G", "4G\n", "٤G", "9" * 5000]
)
def test_other_amounts_are_refused(mem: str) -> None:
    with pytest.raises(ValueError, match="found"):
        megabytes(mem)

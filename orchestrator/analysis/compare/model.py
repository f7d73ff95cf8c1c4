"""Data types of a comparison by a key. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.comparability import ReturnTerms
from orchestrator.analysis.ratios import Ratio
from orchestrator.analysis.stats import Estimate, counted_rows, states_of
from orchestrator.planning.throughput.measure import TRAINING

if TYPE_CHECKING:
    from orchestrator.analysis.stats import Floats


@dataclass(frozen=True, eq=False)
class ReturnCurve:
    """Returns along ``x``, frames or seconds of wall time, of shape (points,); ``scores``: runs × points.

    Bands are estimated only when drawn, as that takes time: see :func:`orchestrator.analysis.stats.bands_of`.
    """

    x: Floats
    scores: Floats


@dataclass(frozen=True)
class Members:
    """Runs that differ only in their seed: their rows of the table of runs."""

    rows: tuple[Mapping[str, Any], ...]

    @property
    def states(self) -> dict[str, int]:
        """Number of runs in each state."""
        return states_of(self.rows)

    def counted(self) -> tuple[list[Mapping[str, Any]], str]:
        """Return the runs that count, and a note on those left out."""
        return counted_rows(self.rows)


@dataclass(frozen=True)
class ComparedValue:
    """One combination with one value of the key.

    ``training_fps`` and ``end_to_end_fps`` are each run's throughputs, ``memory`` its peak in MiB. ``speed``
    is the ratio to the baseline by the comparison's ``figure``, ``end_to_end`` that of the end-to-end
    throughput; ``efficiency`` is a ratio over that of the cost. ``at_frames`` and ``at_time`` are returns
    where all values of the combination still train. ``returns`` are the final returns of the runs, ``terms``
    their conditions. ``None``: unknown.
    """

    value: str
    members: Members
    training_fps: tuple[float, ...]
    end_to_end_fps: tuple[float, ...]
    memory: tuple[float, ...]
    speed: Ratio | None
    end_to_end: Ratio | None
    efficiency: float | None
    final: Estimate | None
    at_frames: Estimate | None
    at_time: Estimate | None
    over_frames: ReturnCurve | None
    over_time: ReturnCurve | None
    note: str
    returns: tuple[float, ...]
    terms: ReturnTerms

    @property
    def n(self) -> int:
        """Number of runs that count."""
        return len(self.members.counted()[0])

    @property
    def middle_training_fps(self) -> float | None:
        """Median training throughput."""
        return median(self.training_fps) if self.training_fps else None

    @property
    def middle_end_to_end_fps(self) -> float | None:
        """Median end-to-end throughput."""
        return median(self.end_to_end_fps) if self.end_to_end_fps else None

    @property
    def peak_memory_mb(self) -> float | None:
        """Median peak memory in MiB."""
        return median(self.memory) if self.memory else None


@dataclass(frozen=True)
class Combination:
    """Runs that differ in nothing but the key and the seed.

    ``frames`` and ``seconds`` are the equal frames and the equal wall time at which returns are compared.
    """

    label: str
    point: Mapping[str, Any]
    cells: tuple[ComparedValue, ...]
    frames: float | None
    seconds: float | None

    @property
    def task(self) -> str:
        """The task, empty if the grid names none."""
        return str(self.point.get("task", ""))

    def cell(self, value: str) -> ComparedValue | None:
        """Return the part with this value of the key, if there is one."""
        return next((cell for cell in self.cells if cell.value == value), None)


@dataclass(frozen=True)
class Overall:
    """One value over all combinations: geometric means of the ratios to the baseline."""

    value: str
    speed: Ratio | None
    end_to_end: Ratio | None
    efficiency: float | None
    memory: Ratio | None


@dataclass(frozen=True)
class KeyComparison:
    """Values of ``key`` against the ``baseline``, one of them.

    ``short`` is the key as people write it; ``together`` are keys that change with it and may explain the
    differences; ``per`` is the divisor of efficiency: "thread", "dollar", or nothing. ``figure`` is the
    compared throughput, a column of the table of runs. Efficiency per dollar is by end-to-end throughput in
    any case, as evaluations are paid for.
    """

    sweeps: tuple[str, ...]
    key: str
    short: str
    values: tuple[str, ...]
    baseline: str
    together: tuple[str, ...]
    per: str
    combinations: tuple[Combination, ...]
    overall: tuple[Overall, ...]
    figure: str = TRAINING

    def named(self, value: str) -> str:
        """Format a value for a sentence: numbers with the key before them."""
        alone = not value[:1].isdigit() and value not in ("true", "false", "null")
        return value if alone else f"{self.short}={value}"

"""What a comparison by a key holds. Frozen values."""

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

    Whoever draws it estimates it, as that takes time: see :func:`orchestrator.analysis.stats.bands_of`.
    """

    x: Floats
    scores: Floats


@dataclass(frozen=True)
class Members:
    """Runs that differ only in their seed: their rows of the table of runs."""

    rows: tuple[Mapping[str, Any], ...]

    @property
    def states(self) -> dict[str, int]:
        return states_of(self.rows)

    def counted(self) -> tuple[list[Mapping[str, Any]], str]:
        """Those whose results count, and what is left out."""
        return counted_rows(self.rows)


@dataclass(frozen=True)
class ComparedValue:
    """One combination with one value of the key.

    ``training_fps`` and ``end_to_end_fps`` are each run's throughputs, ``memory`` its peak in MiB. ``speed``
    is the ratio to the baseline's cell by the comparison's ``figure``, ``end_to_end`` that of the end-to-end
    throughput; ``efficiency`` is a ratio over that of what was spent. ``at_frames`` and ``at_time`` are
    returns where all cells of the combination still train; ``None``: nothing is known. ``returns`` are the
    final returns of its runs and ``terms`` how they came about.
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
        return len(self.members.counted()[0])

    @property
    def middle_training_fps(self) -> float | None:
        return median(self.training_fps) if self.training_fps else None

    @property
    def middle_end_to_end_fps(self) -> float | None:
        return median(self.end_to_end_fps) if self.end_to_end_fps else None

    @property
    def peak_memory_mb(self) -> float | None:
        return median(self.memory) if self.memory else None


@dataclass(frozen=True)
class Combination:
    """What is compared with each other: runs that differ in nothing but the key and the seed.

    ``frames`` and ``seconds`` are the equal frames and the equal wall time of its returns.
    """

    label: str
    point: Mapping[str, Any]
    cells: tuple[ComparedValue, ...]
    frames: float | None
    seconds: float | None

    @property
    def task(self) -> str:
        return str(self.point.get("task", ""))

    def cell(self, value: str) -> ComparedValue | None:
        return next((cell for cell in self.cells if cell.value == value), None)


@dataclass(frozen=True)
class Overall:
    """One value over all combinations: geometric means of what its runs have over the baseline's."""

    value: str
    speed: Ratio | None
    end_to_end: Ratio | None
    efficiency: float | None
    memory: Ratio | None


@dataclass(frozen=True)
class KeyComparison:
    """Values of ``key`` against the ``baseline``, one of them.

    ``short`` is the key as people write it; ``together`` are keys that change with it, so that what differs
    may be their doing; ``per`` is what efficiency divides by: "thread", "dollar", or nothing. ``figure`` is
    the throughput by which speeds are compared, a column of the table of runs. Efficiency per dollar is by
    end-to-end throughput all the same: evaluations are paid for.
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
        """A value as it stands in a sentence: numbers with the key before them."""
        alone = not value[:1].isdigit() and value not in ("true", "false", "null")
        return value if alone else f"{self.short}={value}"

"""Data types of a comparison by a key. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.groups.comparability import ReturnTerms, classes
from orchestrator.analysis.groups.curves import ReturnCurve
from orchestrator.analysis.groups.grouping import Members
from orchestrator.analysis.groups.variants import Variant
from orchestrator.analysis.statistics.bootstrap import Estimate, middle
from orchestrator.analysis.statistics.pairs import difference_within
from orchestrator.analysis.statistics.ratios import Ratio
from orchestrator.core.labels import Point
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING

# Figures of a run beside the two throughputs. Dollars are for a million frames at the end-to-end throughput.
MEMORY, DOLLARS = "peak_memory_mb", "dollars_per_million_frames"


@dataclass(frozen=True)
class ValueRatios:
    """Ratios of one value to the baseline, ``None`` where unknown.

    ``speed`` is by the comparison's ``figure``, ``end_to_end`` by the end-to-end throughput; ``efficiency``
    is by throughput over cost.
    """

    value: str
    speed: Ratio | None
    end_to_end: Ratio | None
    efficiency: Ratio | None
    memory: Ratio | None


@dataclass(frozen=True)
class ComparedValue(ValueRatios):
    """One combination with one value of the key.

    ``figures`` maps the two throughputs, ``MEMORY`` and ``DOLLARS`` to a number per run. ``at_frames`` and
    ``at_time`` are returns where all values of the combination still train. ``returns`` are the final returns
    of the runs, ``terms`` their conditions. ``None``: unknown.
    """

    members: Members
    figures: Mapping[str, tuple[float, ...]]
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
    def variant(self) -> Variant:
        """The final returns as those of a variant, in a task without a name."""
        return Variant(self.value, 0, 0, {"": self.returns}, {"": self.terms})

    @property
    def trained(self) -> bool:
        """Whether the speed of a run is known."""
        return bool(self.figures[END_TO_END])

    def middle(self, figure: str) -> float | None:
        """Median of a figure."""
        return middle(self.figures[figure])


@dataclass(frozen=True)
class Combination:
    """Runs that differ in nothing but the key and the seed.

    ``frames`` and ``seconds`` are the equal frames and the equal wall time at which returns are compared.
    """

    label: str
    point: Point
    cells: tuple[ComparedValue, ...]
    frames: float | None
    seconds: float | None

    @property
    def task(self) -> str:
        """The task, empty if the grid names none."""
        return str(self.point.get("task", ""))

    @property
    def finished(self) -> bool:
        """Whether there is a finished run."""
        return any(cell.n for cell in self.cells)

    @property
    def comparable(self) -> bool:
        """Whether several values have runs with a speed or a return."""
        return sum(cell.trained or bool(cell.returns) for cell in self.cells) > 1

    def cell(self, value: str) -> ComparedValue | None:
        """Return the part with this value of the key, if there is one."""
        return next((cell for cell in self.cells if cell.value == value), None)


@dataclass(frozen=True)
class KeyComparison:
    """Values of ``key`` against the ``baseline``, one of them.

    ``short`` is the key as people write it; ``together`` are keys that change with it and may explain the
    differences; ``per`` is the divisor of efficiency: "thread", "core", "dollar", or nothing. ``overall`` are
    geometric means of the ratios over all combinations. ``moved``: number of runs left out of a comparison of
    targets, as they moved between them. ``figure`` is the compared throughput, a column of the table of runs.
    Efficiency per dollar is by end-to-end throughput in any case, as evaluations are paid for. ``typed``: the
    value of the grid that each value as text stands for.
    """

    sweeps: tuple[str, ...]
    key: str
    short: str
    typed: Mapping[str, Any]
    baseline: str
    together: tuple[str, ...]
    per: str
    combinations: tuple[Combination, ...]
    overall: tuple[ValueRatios, ...]
    moved: int = 0
    figure: str = TRAINING

    @property
    def values(self) -> tuple[str, ...]:
        """The values as text, in the grid's order."""
        return tuple(self.typed)

    @property
    def across_tasks(self) -> bool:
        """Whether the values are of different tasks: their returns cannot be ranked."""
        return "task" in (self.key, *self.together)

    @property
    def priced(self) -> bool:
        """Whether the cost of some run is known."""
        return any(cell.figures[DOLLARS] for combination in self.combinations for cell in combination.cells)

    def within_pairs(self, combination: Combination, cell: ComparedValue) -> Estimate | None:
        """Difference of a cell's returns from the baseline's, if they are ranked within pairs of runs."""
        base = combination.cell(self.baseline)
        sides = [] if base is None or base is cell or self.across_tasks else [cell, base]
        if len(classes((side, side.terms) for side in sides)) != 1:
            return None
        return difference_within([side.returns for side in sides], [side.terms.luck for side in sides])

    def named(self, value: str) -> str:
        """Format a value for a sentence: numbers with the key before them."""
        alone = not value[:1].isdigit() and value not in ("true", "false", "null")
        return value if alone else f"{self.short}={value}"

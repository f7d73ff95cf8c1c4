"""Compare training throughput of CPUs and GPUs over the number of environments, and find where they cross.

Values between measured points are interpolated, both axes logarithmic; nothing is extrapolated. The spread of
several runs at a point reaches from the slowest to the fastest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from statistics import median

import numpy as np

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.groups.grouping import Members, by_point, group_labels
from orchestrator.analysis.groups.keys import SWEEP, TARGET, changes_with
from orchestrator.analysis.run_table import RunRow
from orchestrator.analysis.statistics.bootstrap import finite
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.core.formatting import count
from orchestrator.core.labels import Point
from orchestrator.planning.throughput.measure import END_TO_END, SHORT, TRAINING, comparable


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


def environments_text(first: int, last: int | None = None) -> str:
    """Format a number of environments, or a range."""
    span = f"{first:,}" if last in (None, first) else f"{first:,} to {last:,}"
    return f"{span} environment{'s' * (span != '1')}"


def about_text(count: float) -> str:
    """Round a crossing to two digits: it is no more precise."""
    digits = max(0, math.floor(math.log10(count)) - 1)
    return f"{round(count / 10**digits) * 10**digits:,}"


CPU, GPU = "CPU", "GPU"
# The machine of a run and its number of environments: a point of a line.
_POINT = "machine and environments"


@dataclass(frozen=True)
class SpeedPoint:
    """Frames/s of runs with the same number of environments, from the slowest run to the fastest.

    ``fps`` is the throughput that is compared; ``end_to_end`` includes evaluations and checkpoints.
    """

    environments: int
    fps: tuple[float, ...]
    end_to_end: tuple[float, ...] = ()

    @property
    def middle(self) -> float:
        """Median frames/s."""
        return median(self.fps)

    @property
    def low(self) -> float:
        """Frames/s of the slowest run."""
        return self.fps[0]

    @property
    def high(self) -> float:
        """Frames/s of the fastest run."""
        return self.fps[-1]


@dataclass(frozen=True)
class SpeedLine:
    """Points of one kind of machine with a number of threads; ``spots`` are ordered by environments."""

    kind: str
    model: str
    threads: int
    target: str
    spots: tuple[SpeedPoint, ...]
    label: str = ""

    def spot(self, environments: int) -> SpeedPoint | None:
        """Return the point with this number of environments, if it was measured."""
        return next((spot for spot in self.spots if spot.environments == environments), None)


@dataclass(frozen=True)
class Crossing:
    """A number of environments where the lines cross; ``low`` and ``high`` bound it by the spread, if any."""

    at: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class HardwareComparison:
    """CPU and GPU at the same training.

    ``first`` and ``last``: the range of environments measured on both; ``best_ratio`` and ``worst_ratio``:
    GPU over CPU in it. ``clear``: the spread leaves no doubt in it. ``figure``: column of the compared
    throughput in the table of runs.
    """

    label: str
    lines: tuple[SpeedLine, ...]
    outcome: Winner
    crossings: tuple[Crossing, ...] = ()
    first: int = 0
    last: int = 0
    best_ratio: float = math.nan
    worst_ratio: float = math.nan
    clear: bool = True
    figure: str = TRAINING

    @property
    def measured(self) -> int:
        """Number of measured points; a single one leaves no choice."""
        return sum(len(line.spots) for line in self.lines)

    @property
    def best(self) -> tuple[SpeedLine, SpeedPoint]:
        """The fastest line and its point."""
        return max(
            ((line, spot) for line in self.lines for spot in line.spots), key=lambda pair: pair[1].middle
        )

    @property
    def few(self) -> str:
        """Points with too few runs for a verdict, as text; empty if there are none."""
        counts = [len(spot.fps) for line in self.lines for spot in line.spots]
        few = sum(count < FEW_SEEDS for count in counts)
        if self.measured < 2 or not few:
            return ""
        where = "each" if few == len(counts) else f"at {few} of {len(counts)} points"
        return f"one run {where}" if max(counts) == 1 else f"fewer than {FEW_SEEDS} runs {where}"

    @property
    def advice(self) -> str:
        """One sentence that recommends where to run; with too few runs it only gives the figures."""
        line, spot = self.best
        rest = f"{count(line.threads, 'thread')}, {environments_text(spot.environments)}"
        where = f"the {line.kind} ({', '.join(filter(None, (_model_and_target(line, self.lines), rest)))})"
        if self.few:
            too_few = f"Too few runs to tell where to run {self.label} ({self.few}, {FEW_SEEDS} needed)"
            return f"{too_few}: the fastest was {where}, {self.speed_of(spot)}; {_figures_text(self)}."
        other = f"{_other_device_text(self, line)}{_equally_fast(self)}"
        return f"Run {self.label} on {where}: {self.speed_of(spot)}{other}."

    def speed_of(self, spot: SpeedPoint) -> str:
        """Format the compared throughput, and the end-to-end throughput beside it."""
        said = f"{spot.middle:,.0f} frames/s {SHORT[self.figure]}"
        if self.figure == TRAINING and spot.end_to_end:
            said += f", {median(spot.end_to_end):,.0f} {SHORT[END_TO_END]}"
        return said


def contests(collected: Collected) -> list[HardwareComparison]:
    """Compare CPU and GPU per algorithm, task and setting other than the machine's, in the grid's order.

    Counts finished runs with a known number of environments, except runs trained without this program, as
    their machine is unknown.
    """
    ours = (row for row in collected.runs.iter_rows(named=True) if row["sweep"] not in collected.others)
    rows = [{**row, _POINT: (*_machine(row), _count_of(row))} for row in ours if row["in_grid"]]
    rows = [row for row in rows if _count_of(row) and finite(row[END_TO_END]) and row[END_TO_END] > 0]
    together = changes_with(rows, collected.keys, _POINT)
    apart = [key for key in (SWEEP, *collected.keys) if key not in ("seed", "threads", TARGET, *together)]
    parted = [(point, Members(tuple(own)).counted()[0]) for point, own in by_point(rows, apart)]
    parted = [(point, own) for point, own in parted if own]
    labels = _labels([{"algorithm": own[0]["trainer"], **point} for point, own in parted])
    figures = [comparable(own) for _, own in parted]
    return [
        contest_of(label, _lines(own, figure), figure)
        for label, figure, (_, own) in zip(labels, figures, parted, strict=True)
    ]


def contest_of(label: str, lines: Sequence[SpeedLine], figure: str = TRAINING) -> HardwareComparison:
    """Compare the CPU lines with the GPU lines."""
    sides = {kind: [line for line in lines if line.kind == kind] for kind in (CPU, GPU)}
    named = tuple(_labelled(lines))
    if not sides[CPU] or not sides[GPU]:
        return HardwareComparison(label, named, Winner.ONE_DEVICE, figure=figure)
    grid = _shared(sides[CPU], sides[GPU])
    if not grid:
        return HardwareComparison(label, named, Winner.APART, figure=figure)
    leads = [_Lead.at(count, sides) for count in grid]
    outcome, crossings = _outcome(leads)
    ratios = [math.exp(lead.middle) for lead in leads]
    return HardwareComparison(
        label,
        named,
        outcome,
        crossings,
        first=grid[0],
        last=grid[-1],
        best_ratio=max(ratios),
        worst_ratio=min(ratios),
        clear=all(lead.clear for lead in leads),
        figure=figure,
    )


# Runs to compare


def _machine(row: RunRow) -> tuple[str, str, int, str]:
    """Return kind, model, threads and target."""
    device = row.get("device") or row.get("grid.device") or ("cuda" if row["gpu_model"] else "cpu")
    kind = CPU if device == "cpu" else GPU
    model = row["gpu_model"] if kind == GPU else row["cpu_model"]
    return kind, model or "", row["threads"] or 1, row["target"] or ""


def _count_of(row: RunRow) -> int | None:
    """Return the number of environments, from the trainer or a grid's key of that name."""
    count = row.get("environments") or row.get("grid.environments")
    return count if isinstance(count, int) and count > 0 else None


def _lines(rows: Iterable[RunRow], figure: str) -> list[SpeedLine]:
    points: dict[tuple[str, str, int, str], list[SpeedPoint]] = {}
    for point, own in by_point(rows, [_POINT]):
        *machine, count = point[_POINT]
        speeds = (tuple(sorted(row[column] for row in own)) for column in (figure, END_TO_END))
        points.setdefault(tuple(machine), []).append(SpeedPoint(count, *speeds))
    lines = [
        SpeedLine(*machine, tuple(sorted(spots, key=lambda spot: spot.environments)))
        for machine, spots in points.items()
    ]
    return sorted(lines, key=lambda line: line.kind != CPU)


def _labels(points: Sequence[Point]) -> list[str]:
    """Label each point by its algorithm and the keys that vary."""
    labels = group_labels([{"sweep": "all", **point} for point in points])
    names = [str(point["algorithm"]) for point in points]
    return [label if name in label else f"{name} {label}" for name, label in zip(names, labels, strict=True)]


def _labelled(lines: Sequence[SpeedLine]) -> Iterator[SpeedLine]:
    for line in lines:
        threads = count(line.threads, "thread") if _vary(lines, "threads") else ""
        parts = (line.kind, _model_and_target(line, lines), threads)
        yield replace(line, label=", ".join(filter(None, parts)))


def _model_and_target(line: SpeedLine, lines: Sequence[SpeedLine]) -> str:
    """Return model and target, where lines of the same kind differ in them."""
    alike = [other for other in lines if other.kind == line.kind]
    return ", ".join(
        filter(None, (getattr(line, name) for name in ("model", "target") if _vary(alike, name)))
    )


def _vary(lines: Sequence[SpeedLine], name: str) -> bool:
    return len({getattr(line, name) for line in lines}) > 1


# Verdicts


@dataclass(frozen=True)
class _Lead:
    """Logarithm of GPU over CPU throughput at a number of environments: lower bound, middle, upper bound."""

    count: float
    low: float
    middle: float
    high: float

    @classmethod
    def at(cls, count: float, sides: Mapping[str, Sequence[SpeedLine]]) -> _Lead:
        cpu, gpu = (
            [_best(sides[kind], count, name) for name in ("low", "middle", "high")] for kind in (CPU, GPU)
        )
        return cls(count, gpu[0] - cpu[2], gpu[1] - cpu[1], gpu[2] - cpu[0])

    @property
    def clear(self) -> bool:
        return self.low > 0 or self.high < 0


def _shared(some: Sequence[SpeedLine], others: Sequence[SpeedLine]) -> list[int]:
    """Return every number of environments measured on either and within the range of both."""
    ends = [
        [(line.spots[0].environments, line.spots[-1].environments) for line in side]
        for side in (some, others)
    ]
    first = max(min(start for start, _ in side) for side in ends)
    last = min(max(end for _, end in side) for side in ends)
    counts = {spot.environments for line in (*some, *others) for spot in line.spots}
    covered = [count for count in counts if first <= count <= last]
    return sorted(count for count in covered if _reached(some, count) and _reached(others, count))


def _reached(lines: Sequence[SpeedLine], count: float) -> bool:
    return any(line.spots[0].environments <= count <= line.spots[-1].environments for line in lines)


def _best(lines: Sequence[SpeedLine], count: float, name: str) -> float:
    """Return the highest logarithm of throughput among these lines at a number of environments."""
    return max(_between(line.spots, count, name) for line in lines)


def _between(spots: Sequence[SpeedPoint], count: float, name: str) -> float:
    """Interpolate between the two measured neighbours, both axes logarithmic; beyond them -inf."""
    x, y = ([math.log(getattr(spot, axis)) for spot in spots] for axis in ("environments", name))
    return float(np.interp(math.log(count), x, y, left=-math.inf, right=-math.inf))


def _outcome(leads: Sequence[_Lead]) -> tuple[Winner, tuple[Crossing, ...]]:
    """Return outcome and crossings; only two clear leads count as a change, the rest may be noise."""
    clear = [lead for lead in leads if lead.clear]
    if not clear:
        return Winner.EVEN, ()
    turns = [(one, other) for one, other in pairwise(clear) if (one.middle > 0) != (other.middle > 0)]
    gpu_last = clear[-1].middle > 0
    if not turns:
        return (Winner.GPU_ALWAYS if gpu_last else Winner.GPU_NEVER), ()
    crossings = [_crossing_point(leads, *turn) for turn in turns]
    if len(crossings) > 1:
        return Winner.SEVERAL, tuple(map(Crossing, crossings))
    low, high = _crossing_bounds(leads)
    crossing = Crossing(crossings[0], *((low, high) if low < high else (None, None)))
    return (Winner.GPU_FROM if gpu_last else Winner.GPU_UNTIL), (crossing,)


def _crossing_point(leads: Sequence[_Lead], before: _Lead, after: _Lead) -> float:
    """Return where the middles cross between two clear leads; the central crossing if noise makes several."""
    zeros = list(_zeros([lead for lead in leads if before.count <= lead.count <= after.count], "middle"))
    return zeros[len(zeros) // 2]


def _crossing_bounds(leads: Sequence[_Lead]) -> tuple[float, float]:
    """Bound the only crossing by the spread: the fastest runs of one against the slowest of the other."""
    known = [zero for name in ("low", "middle", "high") for zero in _zeros(leads, name)]
    return min(known), max(known)


def _zeros(leads: Sequence[_Lead], name: str) -> Iterator[float]:
    """Yield where a lead changes its sign; touching zero does not count."""
    known = [lead for lead in leads if getattr(lead, name) != 0]
    for before, after in pairwise(known):
        one, other = getattr(before, name), getattr(after, name)
        if (one > 0) != (other > 0):
            part = one / (one - other)
            yield math.exp((1 - part) * math.log(before.count) + part * math.log(after.count))


# Sentences


def _figures_text(contest: HardwareComparison) -> str:
    """Describe how CPU and GPU compare, without a verdict."""
    if contest.outcome in (Winner.ONE_DEVICE, Winner.APART):
        return _uncompared(contest)
    if contest.crossings:
        counts = ", ".join(about_text(crossing.at) for crossing in contest.crossings)
        return f"the lines of CPU and GPU cross at about {counts} environments"
    times = " to ".join(dict.fromkeys(f"{one:.2f}" for one in (contest.worst_ratio, contest.best_ratio)))
    return f"the GPU was {times} times as fast with {environments_text(contest.first, contest.last)}"


def _uncompared(contest: HardwareComparison) -> str:
    if contest.outcome is Winner.ONE_DEVICE:
        other = GPU if contest.lines[0].kind == CPU else CPU
        return f"no {other} was measured, so there is no crossover to show"
    return (
        "CPU and GPU were measured with different numbers of environments, so where one overtakes the other "
        "is not known"
    )


def _other_device_text(contest: HardwareComparison, best: SpeedLine) -> str:
    """Compare the best line with the other device."""
    if contest.outcome in (Winner.ONE_DEVICE, Winner.APART):
        return f"; {_uncompared(contest)}"
    span = environments_text(contest.first, contest.last)
    said = {
        Winner.EVEN: f"no clear difference between CPU and GPU with {span}",
        Winner.GPU_NEVER: f"the GPU is slower with {span}, at best {contest.best_ratio:.2f} times as fast",
        Winner.GPU_ALWAYS: f"the GPU is faster with {span}, at least {contest.worst_ratio:.2f} times",
    }
    if contest.outcome in (Winner.GPU_NEVER, Winner.GPU_ALWAYS) and not contest.clear:
        loser = GPU if contest.outcome is Winner.GPU_NEVER else CPU
        return f"; the {loser} is nowhere clearly faster with {span}"
    if contest.outcome in said:
        return f"; {said[contest.outcome]}"
    if contest.outcome is Winner.SEVERAL:
        counts = ", ".join(about_text(crossing.at) for crossing in contest.crossings)
        return f"; CPU and GPU change places at about {counts} environments"
    [crossing] = contest.crossings
    at = f"about {about_text(crossing.at)} environments"
    if crossing.low is not None and crossing.high is not None:
        at += f" ({about_text(crossing.low)} to {about_text(crossing.high)})"
    gpu_above = contest.outcome is Winner.GPU_FROM
    if best.kind == CPU:
        return f"; the GPU wins {'from' if gpu_above else 'up to'} {at}"
    return f"; {'below' if gpu_above else 'above'} {at} the CPU is faster"


def _equally_fast(contest: HardwareComparison) -> str:
    """Name the lines that are as fast as the best."""
    line, spot = contest.best
    rivals = {
        rival.label.partition(", ")[2] or rival.label: other
        for rival in contest.lines
        if rival != line and rival.kind == line.kind and (other := rival.spot(spot.environments)) is not None
    }
    close = [name for name, other in rivals.items() if other.high >= spot.low]
    return f"; no clear difference to {' or '.join(close)}" if close else ""

"""Returns of compared runs: over frames and time, and at the last point that all runs reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.compare.model import Members, ReturnCurve
from orchestrator.analysis.stats import finite, on_common_frames
from orchestrator.config.trainers import returns_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Series:
    """One run's finite returns, by frames and by seconds of wall time, evaluations and checkpoints included.

    Arrays of one length.
    """

    frames: Floats
    seconds: Floats
    values: Floats

    def at_frames(self, frames: float) -> float | None:
        """Return the value that holds after so many frames."""
        return _held(self.frames, self.values, frames)

    def at_seconds(self, seconds: float) -> float | None:
        """Return the value that holds after so many seconds."""
        return _held(self.seconds, self.values, seconds)


@dataclass(frozen=True, eq=False)
class Returns:
    """Returns of a combination's groups, group by group; runs without any are left out.

    ``frames`` and ``seconds`` are the most that all counted runs of all groups with returns reach.
    """

    groups: tuple[tuple[Series, ...], ...]
    frames: float | None
    seconds: float | None

    def at_frames(self, number: int) -> list[float]:
        """Return one value per run of the group, at the equal frames."""
        if self.frames is None:
            return []
        found = [one.at_frames(self.frames) for one in self.groups[number]]
        return [value for value in found if value is not None]

    def at_time(self, number: int) -> list[float]:
        """Return one value per run of the group, at the equal wall time."""
        if self.seconds is None:
            return []
        found = [one.at_seconds(self.seconds) for one in self.groups[number]]
        return [value for value in found if value is not None]

    def over_frames(self, number: int) -> ReturnCurve | None:
        """Return the group's curves on common frames."""
        return _on_common([(one.frames, one.values) for one in self.groups[number]])

    def over_time(self, number: int) -> ReturnCurve | None:
        """Return the group's curves on common times."""
        return _on_common([(one.seconds, one.values) for one in self.groups[number]])


_Found = Mapping[tuple[str, str, str], Series]


def series_of(collected: Collected, groups: Sequence[Members]) -> _Found:
    """Return (sweep, run id, metric) → that run's returns."""
    import polars as pl

    names = {name for group in groups for row in group.rows for name in returns_of(row["trainer"])}
    wanted = {row["run_id"] for group in groups for row in group.counted()[0]}
    table = collected.metrics.filter(
        pl.col("name").is_in(list(names)) & pl.col("value").is_finite() & pl.col("run_id").is_in(list(wanted))
    )
    return {
        (str(sweep), str(run_id), str(name)): Series(
            part["frames"].to_numpy().astype(float), part["wall_time"].to_numpy(), part["value"].to_numpy()
        )
        for (sweep, run_id, name), part in table.partition_by("sweep", "run_id", "name", as_dict=True).items()
    }


def returns_between(groups: Sequence[Members], found: _Found) -> Returns:
    """Return the returns of compared groups, of the metric that most of them have."""
    counted = [group.counted()[0] for group in groups]
    names = dict.fromkeys(name for rows in counted for row in rows for name in returns_of(row["trainer"]))
    best: tuple[tuple[Series, ...], ...] = tuple(() for _ in groups)
    for name in names:
        keys = [[(row["sweep"], row["run_id"], name) for row in rows] for rows in counted]
        series = tuple(tuple(found[key] for key in own if key in found) for own in keys)
        if sum(map(bool, series)) > sum(map(bool, best)):  # the metric that most of them have
            best = series
    rows = [row for own, some in zip(counted, best, strict=True) if some for row in own]
    return Returns(best, _least(rows, "frames"), _least(rows, "wall_time"))


def _least(rows: Sequence[Mapping[str, float | None]], column: str) -> float | None:
    known = [value for row in rows if (value := row[column]) is not None and finite(value)]
    return float(min(known)) if known else None


def _held(along: Floats, values: Floats, at: float) -> float | None:
    """Return the last value not after ``at``."""
    import numpy as np

    number = int(np.searchsorted(along, at, side="right")) - 1
    return float(values[number]) if number >= 0 else None


def _on_common(series: Sequence[tuple[Floats, Floats]]) -> ReturnCurve | None:
    if not series:
        return None
    points, values = on_common_frames(series)
    return ReturnCurve(points, values) if len(points) else None

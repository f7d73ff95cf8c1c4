"""Targets against each other: how fast each trained the same runs, and at what cost.

Only finished runs that one target trained from beginning to end count. With `compare: true` a point's runs on
two targets are a pair; else a configuration is compared by its seeds on each. Two targets differ by a ratio
of speeds, the same for slow and for fast configurations, with an interval by Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.ratios import Ratio, ratio
from orchestrator.analysis.stats import Estimate, estimates_of, finite, group_labels
from orchestrator.config.profiles import find_profile
from orchestrator.core.errors import ProfileError
from orchestrator.core.types import RunState
from orchestrator.planning.throughput.measure import END_TO_END, NAMES, TRAINING, comparable
from orchestrator.rundir import SweepDir
from orchestrator.rundir.journal import CLAIMED
from orchestrator.rundir.ledger_entries import jobs_of
from orchestrator.status.ownership import assigned

_MILLION = 1e6
_HOUR_S = 3600.0


@dataclass(frozen=True)
class TargetRun:
    """A finished run on one target.

    ``fps`` is the throughput that targets are compared by; ``dollars``: for a million frames at the
    end-to-end throughput, ``None`` without a price.
    """

    target: str
    point: tuple[Any, ...]
    seed: Any
    fps: float
    training_fps: float | None
    end_to_end_fps: float
    seconds: float | None
    dollars: float | None


@dataclass(frozen=True)
class TargetBar:
    """One configuration on one target: each run's figures, and their estimates."""

    label: str
    target: str
    runs: tuple[TargetRun, ...]
    fps: Estimate
    training_fps: Estimate | None
    end_to_end_fps: Estimate
    seconds: Estimate | None
    dollars: Estimate | None


@dataclass(frozen=True)
class Comparison:
    """A sweep's targets. ``speed`` and ``money`` are ratios of the best target to the next one.

    ``left_out``: number of runs that moved between targets. ``figure``: the throughput that ``speed``
    compares, as a column of the table of runs.
    """

    sweep: str
    targets: tuple[str, ...]
    bars: tuple[TargetBar, ...]
    speed: Ratio | None
    money: Ratio | None
    left_out: int
    figure: str = TRAINING

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        bars = [
            {
                "configuration": bar.label,
                "target": bar.target,
                "n": len(bar.runs),
                "training_fps": bar.training_fps and bar.training_fps.value,
                "end_to_end_fps": bar.end_to_end_fps.value,
                "seconds_per_iteration": bar.seconds and bar.seconds.value,
                "dollars_per_million_frames": bar.dollars and bar.dollars.value,
            }
            for bar in self.bars
        ]
        ratios = {"speed": self.speed and asdict(self.speed), "money": self.money and asdict(self.money)}
        figure = {"speed_is": NAMES[self.figure]}
        return {"targets": list(self.targets), "bars": bars, **ratios, **figure, "verdict": self.verdict}

    @property
    def verdict(self) -> str:
        """One sentence: how two targets differ in speed and in money, and whether that exceeds noise."""
        if self.speed is None:
            return f"{' and '.join(self.targets)} have no runs in common, so nothing can be compared."
        said = _speed_text(self.speed)
        if self.figure != TRAINING:
            said += f", by {NAMES[self.figure]}"
        if self.money is not None:
            said += f"; {_money_text(self.money)}"
        return f"{said}."


def _speed_text(speed: Ratio) -> str:
    if speed.beyond_noise is False or speed.even:
        between = f"{speed.better} and {speed.other}"
        return f"No clear difference in speed between {between}: {speed.value:.2f} times as fast ({speed})"
    verb = "trains" if speed.beyond_noise else "trained"
    return f"{speed.better} {verb} {speed.value:.2f} times as fast as {speed.other} ({speed})"


def _money_text(money: Ratio) -> str:
    if money.beyond_noise is False or money.even:
        return (
            f"no clear difference in what a million frames cost on {money.other} and on {money.better}: "
            f"{money.value:.2f} times as much ({money})"
        )
    times = f"{money.value:.2f} times as much"
    return f"a million frames cost {times} on {money.other} as on {money.better} ({money})"


def comparisons(
    sweep_dirs: Sequence[SweepDir], collected: Collected, *, intervals: bool = True
) -> list[Comparison]:
    """Compare the targets of each sweep with finished runs on several of them, in order.

    Without ``intervals`` bars have none, which is quicker; ratios always have theirs.
    """
    found = []
    for sweep_dir in sweep_dirs:
        rows = [row for row in collected.runs.iter_rows(named=True) if row["sweep"] == sweep_dir.name]
        done = [row for row in rows if row["in_grid"] and row["state"] == RunState.DONE.value]
        done = [row for row in done if row["target"]]
        if len({row["target"] for row in done}) > 1:
            found.append(_compare(sweep_dir, done, collected.keys, intervals=intervals))
    return found


def _compare(
    sweep_dir: SweepDir, done: Sequence[Mapping[str, Any]], keys: Sequence[str], *, intervals: bool
) -> Comparison:
    paid = prices(sweep_dir)
    own = [key for key in keys if key not in ("target", "seed")]
    moved = [row for row in done if "," in row["target"]]
    timed = [row for row in done if row not in moved and finite(row[END_TO_END]) and row[END_TO_END] > 0]
    figure = comparable(timed)
    measured = [
        _measured(row, figure, tuple(row[key] for key in own), paid.get(row["run_id"])) for row in timed
    ]
    names = dict.fromkeys(name for row in done for name in row["target"].split(", "))
    targets = tuple(name for name in names if name in {one.target for one in measured})
    return Comparison(
        sweep_dir.name,
        targets,
        tuple(_bars(measured, targets, own, intervals=intervals)),
        _winner(targets, measured, lambda one: one.fps),
        _winner(targets, measured, lambda one: 1 / one.dollars if one.dollars else None),
        len(moved),
        figure,
    )


def _measured(row: Mapping[str, Any], figure: str, point: tuple[Any, ...], price: float | None) -> TargetRun:
    cost = None if price is None else price / _HOUR_S / row[END_TO_END] * _MILLION
    training = row[TRAINING] if figure == TRAINING else None
    return TargetRun(
        row["target"],
        point,
        row.get("seed"),
        row[figure],
        training,
        row[END_TO_END],
        row["seconds_per_iteration"],
        cost,
    )


def prices(sweep_dir: SweepDir) -> dict[str, float]:
    """Return US dollars for an hour of each run: its job's price, divided by the runs trained at once."""
    jobs: dict[str, float] = {}
    ledger = sweep_dir.read_ledger()
    for entry, job in jobs_of(ledger):
        if (price := entry.cost.price_per_hour) is not None:
            jobs[job.token] = price / max(1, min(job.slots, len(job.run_ids)))
    found = {}
    for log in sweep_dir.read_journals():
        for event in log.events:
            if event.kind == CLAIMED and event.run_id and log.token in jobs:
                found[event.run_id] = jobs[log.token]
    for one in assigned(ledger):
        if (price := _remote_price(one.place.address)) is not None:
            found |= dict.fromkeys(one.run_ids, price)
    return found


def _remote_price(address: str) -> float | None:
    """Return the price per run of a profile behind ssh; ``None`` without ``pack``: its jobs are unknown."""
    try:
        profile = find_profile(address)
    except ProfileError:
        return None
    if profile.price_per_hour is None or profile.pack is None:
        return None
    return profile.price_per_hour / profile.pack


def _bars(
    measured: Sequence[TargetRun], targets: Sequence[str], keys: Sequence[str], *, intervals: bool
) -> Iterable[TargetBar]:
    points = list(dict.fromkeys(one.point for one in measured))
    named = [
        {key: value for key, value in zip(keys, point, strict=True) if value is not None} for point in points
    ]
    labels = group_labels([{"sweep": "all", **point} for point in named])
    cells = [
        (label, target, tuple(one for one in measured if one.point == point and one.target == target))
        for point, label in zip(points, labels, strict=True)
        for target in targets
    ]
    cells = [cell for cell in cells if cell[2]]
    columns: list[list[float]] = [[run.fps for run in runs] for _, _, runs in cells]
    columns += [[run.end_to_end_fps for run in runs] for _, _, runs in cells]
    columns += [[run.seconds for run in runs if run.seconds is not None] for _, _, runs in cells]
    columns += [[run.dollars for run in runs if run.dollars is not None] for _, _, runs in cells]
    estimates = estimates_of(columns, intervals=intervals)  # all at once, as the bootstrap takes the time
    for at, (label, target, runs) in enumerate(cells):
        speed, end_to_end, time, money = estimates[at :: len(cells)]
        assert speed is not None, "a run counts by its speed"
        assert end_to_end is not None, "a run counts by its speed"
        training = None if runs[0].training_fps is None else speed
        yield TargetBar(label, target, runs, speed, training, end_to_end, time, money)


# The best target


_Figure = Callable[[TargetRun], float | None]


def _winner(targets: Sequence[str], measured: Sequence[TargetRun], figure: _Figure) -> Ratio | None:
    """Return the ratio of the best target by ``figure``, the higher the better, to the next one."""
    among = math.comb(len(targets), 2)
    ratios = {
        (one, other): found
        for one, other in permutations(targets, 2)
        if (found := _ratio(one, other, measured, figure, among)) is not None
    }
    for one in targets:
        own = [found for (better, _), found in ratios.items() if better == one]
        if own and all(found.value >= 1 for found in own):
            return min(own, key=lambda found: found.value)
    return None


def _ratio(one: str, other: str, measured: Sequence[TargetRun], figure: _Figure, among: int) -> Ratio | None:
    """Return how many times better one target is; over pairs if there are any, else over configurations."""
    sides: dict[str, dict[tuple[Any, ...], dict[Any, float]]] = {one: {}, other: {}}
    for run in measured:
        if run.target in sides and (value := figure(run)) is not None:
            sides[run.target].setdefault(run.point, {})[run.seed] = value
    return ratio(one, other, sides[one], sides[other], among=among)

"""Data of the report's sections: rows, groups, final returns, speeds and curves, sorted by result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.compare import prices
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.curves import Curve, curves
from orchestrator.analysis.groups.grouping import Final, SeedGroup, best_first, by_task, final_returns, groups
from orchestrator.analysis.groups.speeds import SpeedSummary, speeds
from orchestrator.analysis.run_table import RunRow
from orchestrator.analysis.verdict.fairness import FairnessCheck, audit
from orchestrator.analysis.verdict.fastest import FastestAnswer, fastest
from orchestrator.analysis.verdict.leaders import TaskAnswer, answers
from orchestrator.analysis.verdict.run_cost import Prices
from orchestrator.analysis.verdict.thresholds import TimeToThreshold, times_to_threshold
from orchestrator.rundir import SweepDir

# Most groups drawn; the tables hold everything.
MOST_DRAWN = 120


@dataclass(frozen=True)
class ReportData:
    """Data of the sections. ``rows`` are the table of runs, ``by_sweep`` each sweep's part of it."""

    sweep_dirs: tuple[SweepDir, ...]
    collected: Collected
    rows: tuple[RunRow, ...]
    groups: tuple[SeedGroup, ...]
    finals: tuple[Final, ...]
    speeds: tuple[SpeedSummary, ...]

    @property
    def by_sweep(self) -> Mapping[str, Sequence[RunRow]]:
        """Rows of each sweep."""
        empty: dict[str, list[RunRow]] = {sweep_dir.name: [] for sweep_dir in self.sweep_dirs}
        return empty | gathered((row["sweep"], row) for row in self.rows)

    @cached_property
    def curves(self) -> list[Curve]:
        """The learning curves of all groups that have one."""
        return curves(self.collected, self.groups)

    @cached_property
    def audit(self) -> list[FairnessCheck]:
        """The conditions of the runs."""
        return audit(self.groups, self.finals)

    @cached_property
    def answers(self) -> list[TaskAnswer]:
        """Which variants lead, over all tasks and in each."""
        return answers(self.finals)

    @cached_property
    def fastest(self) -> list[FastestAnswer]:
        """Which settings train fastest; none where the grid asks for returns."""
        return fastest(self.groups)

    @cached_property
    def prices(self) -> Prices:
        """What an hour of each run costs, where that is known."""
        return prices(self.sweep_dirs)

    @cached_property
    def times(self) -> list[TimeToThreshold]:
        """When the runs of each group reached the threshold of their task."""
        return times_to_threshold(self.collected, self.finals, self.prices, self.collected.threshold)

    @property
    def returning(self) -> list[Final]:
        """The groups that have a final return."""
        return [final for final in self.finals if final.estimate is not None]


def report_data(sweep_dirs: Sequence[SweepDir], collected: Collected) -> ReportData:
    """Collect the data of the sections, groups from the best result of their task to the worst."""
    finals = ranked(final_returns(groups(collected)))
    own = tuple(final.group for final in finals)
    return ReportData(
        tuple(sweep_dirs),
        collected,
        tuple(collected.runs.iter_rows(named=True)),
        own,
        tuple(finals),
        tuple(speeds(own)),
    )


def ranked(finals: Iterable[Final]) -> list[Final]:
    """Sort by result within each task, groups without one last; tasks keep their order."""
    return [final for own in by_task(finals).values() for final in best_first(own)]

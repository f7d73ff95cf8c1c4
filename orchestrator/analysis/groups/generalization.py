"""How much less policies return on levels that they have not seen than on the levels of their training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.groups.grouping import SeedGroup, joined
from orchestrator.analysis.run_table import GAP, TRAINING_LEVELS
from orchestrator.analysis.statistics.bootstrap import Estimate, estimate_of, finite

# Columns of the table of runs: the return on unseen levels is the run's final return.
UNSEEN = "final_return"
_COLUMNS = (UNSEEN, TRAINING_LEVELS, GAP)


@dataclass(frozen=True)
class Sample:
    """A number of each seed, and their estimate."""

    values: tuple[float, ...]
    estimate: Estimate


@dataclass(frozen=True)
class Generalization:
    """A group's returns on ``unseen`` levels and on those of ``training``, and the ``gap`` between them.

    All three are of the same seeds, in the same order. The gap is positive where the levels of training
    return more; its estimate is over the seeds' gaps, not the difference of the other two estimates.
    """

    group: SeedGroup
    unseen: Sample
    training: Sample
    gap: Sample
    note: str


def generalizations(groups: Sequence[SeedGroup], *, intervals: bool = True) -> list[Generalization]:
    """Return the generalization of every group that is evaluated on levels of training too, in order."""
    return [generalization for group in groups if (generalization := _of(group, intervals)) is not None]


def _of(group: SeedGroup, intervals: bool) -> Generalization | None:
    rows, note = group.counted()
    told = [row for row in rows if all(finite(row[column]) for column in _COLUMNS)]
    unseen, training, gap = (
        _sample([row[column] for row in told], intervals=intervals) for column in _COLUMNS
    )
    if unseen is None or training is None or gap is None:
        return None
    lost = len(rows) - len(told)
    missing = f"{lost} of {len(rows)} without finite returns on both" if lost else ""
    return Generalization(group, unseen, training, gap, joined([note, missing]))


def _sample(values: Sequence[float], *, intervals: bool) -> Sample | None:
    estimate = estimate_of(values, intervals=intervals)
    return None if estimate is None else Sample(tuple(values), estimate)

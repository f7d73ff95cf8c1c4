"""Read results by the options that `report`, `figures` and `compare` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.ui.cli.common import print_warnings

if TYPE_CHECKING:
    from orchestrator.analysis.collect import Collected
    from orchestrator.rundir import SweepDir

_MOST_DAMAGED = 3


def read_results(
    sweep_dirs: Sequence[SweepDir], others: Sequence[str] | None, final: str, metric: str | None
) -> Collected:
    """Collect the runs of sweeps, and beside them ``others``, with final returns by these options."""
    from orchestrator.analysis.chosen_metric import ChosenMetric
    from orchestrator.analysis.collect import collect, read_others
    from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
    from orchestrator.control.fleet import present

    measure, chosen = FinalMeasure.parse(final), ChosenMetric.parse(metric)
    past = read_others(others or [], sweep_dirs)
    return measured_by(collect(sweep_dirs, present, others=past, chosen=chosen), measure)


def print_damaged(problems: Sequence[object]) -> None:
    """Print the first damaged files, and the number of the others."""
    print_warnings(problems[:_MOST_DAMAGED])
    if (more := len(problems) - _MOST_DAMAGED) > 0:
        print_warnings([f"{more} more files are damaged; the report names them"])

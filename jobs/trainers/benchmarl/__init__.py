"""The trainer `benchmarl`. Imports heavy modules only when called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jobs.training.context import Outcome, RunContext
from orchestrator.core.types import Run

if TYPE_CHECKING:
    from jobs.check import Problem


def train(context: RunContext) -> Outcome:
    """Train a run with BenchMARL."""
    from jobs.trainers.benchmarl.experiment import train as train_run

    return train_run(context)


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return the problems of the runs: of a first look without PyTorch, else of the thorough check."""
    # With plug-ins PyTorch is loaded already, and their names are known to the thorough check alone. Without
    # BenchMARL no name is known.
    if "jobs.trainers.benchmarl.registry" not in sys.modules and find_spec("benchmarl") is not None:
        from jobs.trainers.benchmarl.first_look import first_look

        if problems := first_look(runs):
            return problems
    from jobs.trainers.benchmarl.checking import check as check_runs

    return check_runs(runs)

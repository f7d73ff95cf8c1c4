"""The trainer `benchmarl`. Nothing heavy is imported before it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.context import Outcome, RunContext
from orchestrator.types import Run

if TYPE_CHECKING:
    from jobs.check import Problem


def train(context: RunContext) -> Outcome:
    from jobs.trainers.benchmarl.experiment import train as train_run

    return train_run(context)


def check(runs: Sequence[Run]) -> list[Problem]:
    from jobs.trainers.benchmarl.checking import check as check_runs

    return check_runs(runs)

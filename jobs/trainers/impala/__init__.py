"""The trainer `impala`: actor-critic learning from chunks of rollouts, corrected by V-trace."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.check import Problem
from orchestrator.core.types import Run


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return the faults of these runs, each with the first run that has it.

    Names, keys and types are looked at first, without PyTorch.
    """
    from jobs.trainers.impala.config import CONFIG

    if problems := CONFIG.first_look(runs):
        return problems
    from jobs.trainers.impala.training import TRAINER

    return TRAINER.check(runs)

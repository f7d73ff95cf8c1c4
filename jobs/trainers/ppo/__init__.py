"""The trainer `ppo`: proximal policy optimization on many environments at once."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.check import Problem
from orchestrator.core.types import Run


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return the faults of these runs, each with the first run that has it.

    Names, keys and types are looked at first, without PyTorch.
    """
    from jobs.trainers.ppo.config import CONFIG

    if problems := CONFIG.first_look(runs):
        return problems
    from jobs.trainers.ppo.training import TRAINER

    return TRAINER.check(runs)

"""Minutes of training as BenchMARL's experiment takes them: no bound besides time."""

from __future__ import annotations

import copy
from typing import Any

from jobs.training.config_errors import bare_key
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.types import Run, Value

_BOUNDS = ("experiment.max_n_frames", "experiment.max_n_iters")
# Three thousand years at a millisecond each.
_ENDLESS = 10**14


class TimeIsUp(Exception):
    """The iteration that just ended is the last one."""


def without_minutes(run: Run) -> dict[str, Value]:
    """Return the run's overrides that are BenchMARL's."""
    return {key: value for key, value in run.overrides.items() if key != BENCHMARL.minutes}


def unbounded(config: Any, run: Run, on_policy: bool) -> Any:
    """Copy BenchMARL's experiment config, without bounds besides time unless the run sets frames as well.

    Exploration is annealed as before: over a third of the frames in the config.
    """
    config = copy.deepcopy(config)
    if run.overrides.get(BENCHMARL.minutes) is not None and not _is_bounded(run):
        config.exploration_anneal_frames = config.get_exploration_anneal_frames(on_policy)
        config.max_n_frames, config.max_n_iters = None, _ENDLESS
    return config


def _is_bounded(run: Run) -> bool:
    return any(bare_key(key) in _BOUNDS and value is not None for key, value in run.overrides.items())

"""Train and check runs: every iteration tries a step of 100 frames and keeps it if it leads closer to 3."""

from __future__ import annotations

import random
from collections.abc import Sequence

from jobs.check import Problem
from jobs.training.context import Outcome, RunContext
from orchestrator.core.types import Run

FRAMES = 100  # in an iteration


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return the faults of runs that would fail."""
    faults = [run for run in runs if not 0 < run.overrides.get("speed", 1.0) <= 10]
    return [Problem(run.run_id, "speed", "speed: expected a number above 0, at most 10") for run in faults]


def train(context: RunContext) -> Outcome:
    """Train one attempt of a run, from the state that the last attempt saved."""
    keys = context.run.overrides
    generator = random.Random(context.run.seed)
    iteration, position = 0, 0.0
    if (saved := context.load()) is not None:
        iteration, position = saved["iteration"], saved["position"]
        generator.setstate(saved["generator"])
    while iteration * FRAMES < keys["frames"]:
        iteration += 1
        candidate = position + generator.gauss(0, keys.get("speed", 1.0))
        position = min(position, candidate, key=lambda x: abs(x - 3))
        context.log(iteration * FRAMES, {"return": -abs(position - 3)}, total=keys["frames"])
        if iteration % 10 == 0 or context.stopping:
            context.save({"iteration": iteration, "position": position, "generator": generator.getstate()})
        context.iteration_done()
    return Outcome(iteration * FRAMES, iteration, exactness="exact", config=dict(keys))

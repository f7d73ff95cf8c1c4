"""Metrics that mean "return": their names, and which of them a run's return is a value of. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.rundir import Row

# Metrics of evaluations in training begin with it.
EVALUATIONS = "eval/"
# The mean over episodes of the mean over agents, as BenchMARL logs it when it evaluates.
EVALUATION_RETURN = f"{EVALUATIONS}reward/episode_reward_mean"
# The number of episodes of an evaluation, which programs log beside its return.
EPISODES = f"{EVALUATIONS}episodes"
# Means over the episodes that ended in an iteration, of this program's trainers: NaN where none did.
COLLECTION_RETURN, EPISODE_RETURN = "collection/reward/episode_reward_mean", "episode/reward"
_OVER_EPISODES = ("collection/", "episode/")


def is_evaluation(metric: str) -> bool:
    """Return whether the metric is of evaluations in training."""
    return metric.startswith(EVALUATIONS)


def may_lack_episodes(metric: str) -> bool:
    """Return whether NaN means that no episode ended; of all other metrics it means divergence."""
    return metric.startswith(_OVER_EPISODES)


def kind_of_return(metric: str) -> str:
    """Return a short name of a metric: evaluation, collection, or the metric itself."""
    folder = metric.partition("/")[0]
    return {"eval": "evaluation", "collection": "collection"}.get(folder, metric)


def return_metric(history: Sequence[Row], names: Iterable[str]) -> str | None:
    """Return the first of ``names``, best first, that was recorded; ``None`` if none was.

    One that was never finite counts too, as the run diverged, unless no episode ended.
    """
    for name in names:
        recorded = (row.metrics[name] for row in history if name in row.metrics)
        if any(math.isfinite(value) or not may_lack_episodes(name) for value in recorded):
            return name
    return None


def return_figures(
    history: Sequence[Row], names: Iterable[str], *, lower: bool = False
) -> Mapping[str, float | None]:
    """Return the initial, final and best finite return; ``None`` where there is none.

    ``lower``: the best is the lowest.
    """
    metric = return_metric(history, names) or ""
    values = [value for row in history if math.isfinite(value := row.metrics.get(metric, math.nan))]
    return {
        "initial_return": values[0] if values else None,
        "final_return": values[-1] if values else None,
        "best_return": (min if lower else max)(values, default=None),
    }

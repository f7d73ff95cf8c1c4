"""Meaning of the names of metrics: evaluations, and training returns that may lack an episode. Pure."""

from __future__ import annotations

EVALUATIONS = "eval/"
# The number of episodes of an evaluation, which programs log beside its return.
EPISODES = "eval/episodes"
# Means over the episodes that ended in an iteration, of this program's trainers: NaN where none did.
_OVER_EPISODES = ("collection/", "episode/")


def is_evaluation(metric: str) -> bool:
    """Return whether the metric is of evaluations in training."""
    return metric.startswith(EVALUATIONS)


def may_lack_episodes(metric: str) -> bool:
    """Return whether NaN means that no episode ended; of all other metrics it means divergence."""
    return metric.startswith(_OVER_EPISODES)

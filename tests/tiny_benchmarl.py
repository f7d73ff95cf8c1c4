"""BenchMARL runs as small as they can be and still do everything: seconds of training, episodes that end."""

from __future__ import annotations

from typing import Any

FRAMES = 120  # an iteration

_SMALL: dict[str, Any] = {
    "model.num_cells": [16],
    "critic_model.num_cells": [16],
    "experiment.max_n_frames": None,
    "experiment.max_n_iters": 6,
    "experiment.evaluation_interval": 2 * FRAMES,
    "experiment.evaluation_episodes": 2,
    "experiment.checkpoint_interval": FRAMES,
    "experiment.loggers": ["csv"],
}
_ON_POLICY: dict[str, Any] = {
    "experiment.on_policy_collected_frames_per_batch": FRAMES,
    "experiment.on_policy_n_envs_per_worker": 4,
    "experiment.on_policy_minibatch_size": 40,
    "experiment.on_policy_n_minibatch_iters": 2,
}
_OFF_POLICY: dict[str, Any] = {
    "experiment.off_policy_collected_frames_per_batch": FRAMES,
    "experiment.off_policy_n_envs_per_worker": 4,
    "experiment.off_policy_train_batch_size": 32,
    "experiment.off_policy_n_optimizer_steps": 6,
    "experiment.off_policy_memory_size": 400,  # the ring wraps in the fourth iteration
}
_NAVIGATION = {"task": "vmas/navigation", "task.max_steps": 20}

NAVIGATION_MAPPO = {"algorithm": "mappo", **_NAVIGATION, **_SMALL, **_ON_POLICY}
NAVIGATION_IQL = {"algorithm": "iql", **_NAVIGATION, **_SMALL, **_OFF_POLICY}
MULTIWALKER_MAPPO = {
    "algorithm": "mappo",
    "task": "pettingzoo/multiwalker",
    "task.max_cycles": 40,
    **_SMALL,
    **_ON_POLICY,
}
WITHOUT_EVALUATION = {"experiment.evaluation": False}
HARD_TARGETS = {"experiment.soft_target_update": False, "experiment.hard_target_update_frequency": 4}

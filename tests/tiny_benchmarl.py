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
# Episodes of which no whole number fits into an iteration, with zombies that are not yet due at their ends;
# agents die at the border, some in every episode.
_KAZ = {"task.max_cycles": 35, "task.spawn_delay": 10, "task.line_death": True}
KAZ_VECTOR = {
    "algorithm": "mappo",
    "task": "kaz/vector",
    "model": "layers/extra_mlp",
    "model@critic_model": "layers/extra_mlp",
    **_KAZ,
    **_SMALL,
    **_ON_POLICY,
}
_TINY_CNN = {"cnn_num_cells": [4], "cnn_kernel_sizes": 5, "cnn_strides": 4, "mlp_num_cells": [8]}
KAZ_IMAGE = {
    "algorithm": "ippo",
    "task": "kaz/image",
    "task.image_size": 32,
    "model": "layers/cnn",
    "model@critic_model": "layers/cnn",
    **_KAZ,
    **{f"model.{key}": value for key, value in _TINY_CNN.items()},
    **{f"critic_model.{key}": value for key, value in _TINY_CNN.items()},
    **{key: value for key, value in _SMALL.items() if "num_cells" not in key},
    **_ON_POLICY,
    # Drawing takes 20 ms a step.
    "experiment.on_policy_collected_frames_per_batch": 40,
    "experiment.on_policy_n_envs_per_worker": 2,
    "experiment.max_n_iters": 4,
    "experiment.evaluation_interval": 80,
    "experiment.evaluation_episodes": 1,
    "experiment.checkpoint_interval": 40,
}
# Fires that end games after 15 nights or more, and a player drawn anew in each of them.
BUCKET_BRIGADE = {
    "algorithm": "qmix",
    "task": "bucket_brigade/hard",
    "task.max_steps": 17,
    "task.opponents": ["learner", "random"],
    **{key: value for key, value in _SMALL.items() if "critic" not in key},
    **_OFF_POLICY,
}

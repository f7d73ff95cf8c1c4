"""Names that people, papers and other libraries use for keys, classes and options of BenchMARL."""

from __future__ import annotations

from collections.abc import Mapping

# Key of BenchMARL → the last parts of keys that stand for it elsewhere.
_CALLED: Mapping[str, str] = {
    "experiment.lr": "learning_rate policy_lr actor_lr critic_lr",
    "experiment.gamma": "discount discount_factor",
    "experiment.polyak_tau": "tau",
    "experiment.train_device": "device",
    "experiment.max_n_frames": "steps total_frames total_steps total_timesteps timesteps "
    "max_frames frames n_frames",
    "experiment.max_n_iters": "max_iters n_iters iterations n_iterations",
    "experiment.on_policy_n_envs_per_worker": "n_envs num_envs num_workers",
    "experiment.on_policy_minibatch_size": "batch_size minibatch_size",
    "experiment.on_policy_collected_frames_per_batch": "frames_per_batch rollout_length",
    "experiment.on_policy_n_minibatch_iters": "epochs n_epochs num_epochs",
    "experiment.off_policy_memory_size": "buffer_size memory_size replay_buffer_size",
    "experiment.clip_grad_val": "max_grad_norm grad_clip",
    "experiment.evaluation_interval": "eval_interval eval_freq",
    "experiment.evaluation_episodes": "eval_episodes n_eval_episodes",
    "experiment.checkpoint_interval": "save_interval checkpoint_freq",
    "experiment.loggers": "logger use_wandb wandb",
    "experiment.project_name": "wandb_project project",
    "algorithm.clip_epsilon": "clip clip_range clip_param clip_coef",
    "algorithm.entropy_coef": "entropy ent_coef",
    "algorithm.critic_coef": "vf_coef value_coef",
    "algorithm.lmbda": "gae_lambda lambda",
    "task.n_agents": "num_agents agents nagents",
    "task.max_steps": "episode_length horizon",
    "task.max_cycles": "episode_length horizon",
    "model.num_cells": "hidden_sizes hidden_size hidden_dim layers",
    "model.activation_class": "activation",
    "task": "env environment scenario map",
    "algorithm": "algo agent",
    "model": "policy network",
    "seed": "random_seed",
}


def _by_name() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for key, names in _CALLED.items():
        for name in names.split():
            spellings = dict.fromkeys((key, key.rpartition(".")[2]))
            found[name] = (*found.get(name, ()), *spellings)
    return found


# The last part of a key → keys of BenchMARL, the likeliest first. Those that a run has are named.
KEYS: Mapping[str, tuple[str, ...]] = _by_name()

# Names of classes that a key ending in _class takes with their module.
CLASSES: Mapping[str, str] = {
    "relu": "torch.nn.ReLU",
    "tanh": "torch.nn.Tanh",
    "elu": "torch.nn.ELU",
    "gelu": "torch.nn.GELU",
    "silu": "torch.nn.SiLU",
    "swish": "torch.nn.SiLU",
    "mish": "torch.nn.Mish",
    "sigmoid": "torch.nn.Sigmoid",
    "leakyrelu": "torch.nn.LeakyReLU",
    "layernorm": "torch.nn.LayerNorm",
    "batchnorm": "torch.nn.BatchNorm1d",
    "linear": "torch.nn.Linear",
}

# Group of configs → the last part of a name, in small letters → the name or names that were meant.
NAMES: Mapping[str, Mapping[str, str]] = {
    "algorithm": {
        "ppo": "mappo or ippo",
        "sac": "masac or isac",
        "ddpg": "maddpg or iddpg",
        "dqn": "iql, vdn or qmix",
        "td3": "maddpg or iddpg",
    },
    "task": {
        "knights_archers_zombies": "kaz/vector or kaz/image",
        "kaz": "kaz/vector or kaz/image",
        "spread": "vmas/simple_spread",
        "smac": "smacv2/protoss_5_vs_5",
        "3m": "smacv2/terran_5_vs_5",
        "8m": "smacv2/terran_5_vs_5",
        "2s3z": "smacv2/protoss_5_vs_5",
    },
    "model": {
        "mlp": "layers/mlp",
        "cnn": "layers/cnn",
        "gnn": "layers/gnn",
        "gru": "layers/gru",
        "lstm": "layers/lstm",
        "rnn": "layers/gru or layers/lstm",
        "transformer": "layers/mlp, layers/gru or layers/gnn: there is no transformer",
    },
    "experiment": {"default": "base_experiment", "base": "base_experiment", "cuda": "gpu", "test": "debug"},
}

"""The keys of the trainer `ppo`, their defaults, and what is checked before a run starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jobs.hydra.typed_config import Choice, TypedConfig
from jobs.trainers.ppo.environments import environment_names, family_of
from jobs.training.config_errors import RefusedKeyError, require_positive, unexpected
from jobs.training.devices import require_device
from jobs.training.loggers import CSV, TENSORBOARD, WANDB
from jobs.training.time_budget import checked_minutes

MLP, TRANSFORMER = "mlp", "transformer"
_LOGGERS = (CSV, TENSORBOARD, WANDB)


@dataclass
class PpoConfig:
    """The keys of a run; ``task`` holds those of its environment.

    ``envs`` environments play ``rollout_steps`` steps an iteration, ``steps`` in all; each of the ``epochs``
    of learning takes the rows (environments × learners × steps) in random order, ``batch_size`` at a time.
    ``checkpoint_interval``, ``evaluation_interval``: environment steps; 0 for none. ``hidden``: sizes of the
    layers of the network `mlp`; the `transformer` has ``features``, ``layers`` and ``heads``.
    """

    task: Any
    steps: int = 10_000_000
    envs: int = 1024
    rollout_steps: int = 16
    batch_size: int = 2048
    epochs: int = 4
    lr: float = 3e-4
    anneal_lr: bool = False
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    max_gradient_norm: float = 0.5
    network: str = MLP
    hidden: list[int] = field(default_factory=lambda: [64, 64])
    features: int = 192
    layers: int = 2
    heads: int = 4
    device: str = "cpu"
    evaluation_interval: int = 100_000
    evaluation_episodes: int = 100
    evaluation_deterministic: bool = True
    checkpoint_interval: int = 100_000
    loggers: list[str] = field(default_factory=lambda: [CSV, TENSORBOARD])
    project_name: str = "ppo"


CONFIG: TypedConfig[PpoConfig] = TypedConfig(
    name="ppo",
    schema=lambda chosen: PpoConfig(task=family_of(chosen["task"]).config(chosen["task"])),
    choices={"task": Choice(environment_names, example="bucket_brigade/hard")},
    own_keys={"minutes": checked_minutes},
    other_keys={
        "learning_rate": ("lr",),
        "gamma": ("discount",),
        "n_envs": ("envs",),
        "num_envs": ("envs",),
        "games": ("envs",),
        "n_steps": ("rollout_steps",),
        "horizon": ("rollout_steps",),
        "clip_range": ("clip",),
        "clip_epsilon": ("clip",),
        "ent_coef": ("entropy_weight",),
        "entropy_coef": ("entropy_weight",),
        "vf_coef": ("value_weight",),
        "critic_coef": ("value_weight",),
        "max_grad_norm": ("max_gradient_norm",),
        "minibatch_size": ("batch_size",),
        "n_epochs": ("epochs",),
        "total_timesteps": ("steps",),
        "total_steps": ("steps",),
        "max_n_frames": ("steps",),
        "frames": ("steps",),
        "opponents": ("task.opponents",),
        "num_opponents": ("task.opponents",),
        "eval_interval": ("evaluation_interval",),
        "cpu": ("device",),
    },
)


def require_sense(config: PpoConfig) -> None:
    """Refuse values that do not fit each other, or not the machine. Raises :class:`RefusedKeyError`."""
    require_positive(config, "steps", "envs", "rollout_steps", "batch_size", "epochs")
    require_positive(config, "lr", "max_gradient_norm", "clip")
    for name in ("evaluation_interval", "checkpoint_interval", "entropy_weight", "value_weight"):
        if not getattr(config, name) >= 0:
            raise unexpected(name, getattr(config, name), "0 or more")
    for name in ("discount", "gae_lambda"):
        if not 0 <= getattr(config, name) <= 1:
            raise unexpected(name, getattr(config, name), "a number from 0 to 1")
    if config.evaluation_interval and config.evaluation_episodes < 1:
        raise unexpected("evaluation_episodes", config.evaluation_episodes, "a number from 1")
    _require_network(config)
    if wrong := [name for name in config.loggers if name not in _LOGGERS]:
        raise unexpected("loggers", repr(wrong[0]), f"names of {', '.join(_LOGGERS)}")
    require_device("device", config.device)


def require_full_batches(config: PpoConfig, learners: int) -> None:
    """Refuse a batch that the rows of an iteration do not fill. Raises :class:`RefusedKeyError`."""
    rows = config.envs * config.rollout_steps * learners
    if rows % config.batch_size == 0:
        return
    sizes = [size for size in _divisors(rows) if size <= config.batch_size]
    of_learners = f" × {learners} learners" if learners > 1 else ""
    raise RefusedKeyError(
        "batch_size",
        f"batch_size: found {config.batch_size:_}, expected a divisor of the {rows:_} rows of an iteration: "
        f"{config.envs:_} envs × {config.rollout_steps:_} rollout_steps{of_learners}",
        hint=f"write batch_size: {sizes[-1]}, or change envs or rollout_steps",
    )


def _require_network(config: PpoConfig) -> None:
    if config.network not in (MLP, TRANSFORMER):
        raise unexpected("network", repr(config.network), f"{MLP} or {TRANSFORMER}")
    if config.network == MLP and (not config.hidden or min(config.hidden) < 1):
        raise unexpected("hidden", config.hidden, "sizes of layers from 1, such as [64, 64]")
    for name in ("features", "layers", "heads"):
        if getattr(config, name) < 1:
            raise unexpected(name, getattr(config, name), "a number from 1")
    if config.features % config.heads:
        raise unexpected("features", config.features, f"a multiple of the {config.heads} heads")


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]

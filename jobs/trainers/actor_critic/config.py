"""The keys that actor-critic trainers share, their defaults, and what is checked before a run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jobs.hydra.typed_config import Choice, TypedConfig
from jobs.trainers.actor_critic.environments.families import (
    environment_names,
    family_of,
    hint_of_other,
    is_other_environment,
    other_names,
)
from jobs.trainers.actor_critic.environments.interface import Environments
from jobs.training.config_errors import RefusedKeyError, require_positive, unexpected
from jobs.training.records.loggers import CSV, TENSORBOARD
from jobs.training.time_budget import checked_minutes

if TYPE_CHECKING:
    import torch

MLP, TRANSFORMER, CNN, RESNET = "mlp", "transformer", "cnn", "resnet"
_OF_NUMBERS, _OF_PICTURES = (MLP, TRANSFORMER), (CNN, RESNET)
SEQUENTIAL, PARALLEL, ASYNCHRONOUS = "sequential", "parallel", "asynchronous"
# The type of a network's products in PyTorch.
_PRECISIONS = {"fp32": "float32", "bf16": "bfloat16"}
# Pictures at a time: the numbers of more do not fit the caches of a processor, nor what malloc keeps.
PICTURES_AT_ONCE = 256
# The network for pictures needs so many pixels across and down.
LEAST_PICTURE = 36


@dataclass(frozen=True)
class Players:
    """Processes that only play; each ``max_lag`` updates at most behind those that learn."""

    number: int
    max_lag: int


@dataclass
class ActorCriticConfig:
    """The keys of a run; ``task`` holds those of its environment.

    ``envs`` environments play ``rollout_steps`` steps an iteration, ``steps`` in all.
    ``checkpoint_interval``, ``evaluation_interval``: environment steps; 0 for none. An episode of an
    evaluation is cut after ``evaluation_steps``. ``hidden``: sizes of the
    layers of the network `mlp`; the `transformer` has ``features``, ``layers`` and ``heads``. ``precision``:
    of the products in networks for pictures. ``normalize_observations``: rows of numbers, by the moments of
    those seen in training; pictures never are. In ``mode`` parallel, ``actors`` processes have equal shares
    of the environments and of each gradient; one of them that does not answer for ``actor_timeout`` seconds
    ends the attempt.
    """

    task: Any
    mode: str = SEQUENTIAL
    actors: int = 1
    actor_timeout: float = 300.0
    steps: int = 10_000_000
    envs: int = 1024
    rollout_steps: int = 16
    lr: float = 3e-4
    anneal_lr: bool = False
    discount: float = 0.99
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    max_gradient_norm: float = 0.5
    network: str = MLP
    hidden: list[int] = field(default_factory=lambda: [64, 64])
    features: int = 192
    layers: int = 2
    heads: int = 4
    precision: str = "fp32"
    normalize_observations: bool = True
    device: str = "cpu"
    evaluation_interval: int = 100_000
    evaluation_episodes: int = 100
    evaluation_steps: int = 30_000
    evaluation_deterministic: bool = True
    checkpoint_interval: int = 100_000
    loggers: list[str] = field(default_factory=lambda: [CSV, TENSORBOARD])
    project_name: str = ""

    def share(self, processes: int) -> Self:
        """Return the configuration of one of so many processes."""
        return replace(self, envs=self.envs // processes)

    @property
    def modes(self) -> Sequence[str]:
        """The modes that the trainer has."""
        return SEQUENTIAL, PARALLEL

    @property
    def learning(self) -> int:
        """The number of processes that average their gradients."""
        return self.actors

    @property
    def players(self) -> Players | None:
        """The processes that play for those that learn; none where each plays for itself."""
        return None

    @property
    def processes(self) -> int:
        """The number of processes that learn or play, each with the run's threads."""
        return self.learning + (self.players.number if self.players else 0)

    @property
    def products(self) -> torch.dtype:
        """The type of a network's products."""
        import torch

        found: torch.dtype = getattr(torch, _PRECISIONS[self.precision])
        return found

    @property
    def passes(self) -> int:
        """How often a step is learned from."""
        return 1

    @property
    def pictures_at_once(self) -> int:
        """The pictures that a process on the CPU learns from at a time."""
        return self.envs * self.rollout_steps // self.learning


C = TypeVar("C", bound=ActorCriticConfig)
# Keys of other programs, with those that mean the same here.
_OTHER_KEYS = {
    "learning_rate": ("lr",),
    "gamma": ("discount",),
    "n_envs": ("envs",),
    "num_envs": ("envs",),
    "games": ("envs",),
    "n_steps": ("rollout_steps",),
    "horizon": ("rollout_steps",),
    "unroll_length": ("rollout_steps",),
    "ent_coef": ("entropy_weight",),
    "entropy_coef": ("entropy_weight",),
    "vf_coef": ("value_weight",),
    "critic_coef": ("value_weight",),
    "max_grad_norm": ("max_gradient_norm",),
    "normalize": ("normalize_observations",),
    "norm_obs": ("normalize_observations",),
    "total_timesteps": ("steps",),
    "total_steps": ("steps",),
    "max_n_frames": ("steps",),
    "frames": ("steps",),
    "opponents": ("task.opponents",),
    "num_opponents": ("task.opponents",),
    "num_levels": ("task.num_levels",),
    "start_level": ("task.start_level",),
    "distribution_mode": ("task.mode",),
    "eval_interval": ("evaluation_interval",),
    "num_actors": ("actors",),
    "n_actors": ("actors",),
    "num_workers": ("actors",),
    "n_workers": ("actors",),
    "processes": ("actors",),
    "cpu": ("device",),
}

# Defaults of a family that all trainers share. In Procgen the most likely actions alone often lead nowhere.
_OF_FAMILY: Mapping[str, Mapping[str, Any]] = {
    "procgen": {"discount": 0.999, "network": CNN, "evaluation_deterministic": False}
}
_ALL_LEVELS = {f"task.{kind}num_levels": {"all": "0, for all levels"} for kind in ("", "test_")}
_TASKS = Choice(environment_names, "bucket_brigade/hard", takes=is_other_environment, hint=hint_of_other)


def typed_config(
    config: type[C],
    name: str,
    defaults: Mapping[str, Mapping[str, Any]],
    other_keys: Mapping[str, tuple[str, ...]],
) -> TypedConfig[C]:
    """Return how grids give a trainer's configuration.

    ``defaults``: of other families than that of the dataclass's. ``other_keys``: other programs' names of the
    trainer's own keys.
    """

    def schema(chosen: Mapping[str, str]) -> C:
        task = chosen["task"]
        found = config(task=family_of(task).config(task), project_name=name)
        family = task.partition("/")[0]
        for key, value in {**_OF_FAMILY.get(family, {}), **defaults.get(family, {})}.items():
            setattr(found, key, value)
        return found

    return TypedConfig(
        name=name,
        schema=schema,
        choices={"task": _TASKS},
        own_keys={"minutes": checked_minutes},
        other_keys={**_OTHER_KEYS, **other_keys},
        other_options={"task": other_names(), **_ALL_LEVELS},
    )


def require_sense(config: ActorCriticConfig) -> None:
    """Refuse values that do not fit each other, or not the machine. Raises :class:`RefusedKeyError`."""
    from jobs.training.devices import require_device  # it loads PyTorch

    require_positive(config, "steps", "envs", "rollout_steps", "lr", "max_gradient_norm", "evaluation_steps")
    for name in ("evaluation_interval", "checkpoint_interval", "entropy_weight", "value_weight"):
        if not getattr(config, name) >= 0:
            raise unexpected(name, getattr(config, name), "0 or more")
    require_shares(config, "discount")
    if config.evaluation_interval and config.evaluation_episodes < 1:
        raise unexpected("evaluation_episodes", config.evaluation_episodes, "a number from 1")
    _require_network(config)
    if config.precision not in _PRECISIONS:
        raise unexpected("precision", repr(config.precision), " or ".join(_PRECISIONS))
    require_device("device", config.device)
    _require_actors(config)


def require_shares(config: ActorCriticConfig, *names: str) -> None:
    """Refuse values of these keys that do not lie from 0 to 1. Raises :class:`RefusedKeyError`."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise unexpected(name, getattr(config, name), "a number from 0 to 1")


def require_divisor(name: str, found: int, whole: int, of: str, other: str) -> None:
    """Refuse a size that does not divide a whole, described by ``of``. Raises :class:`RefusedKeyError`."""
    if whole % found == 0:
        return
    best = max(size for size in range(1, min(found, whole) + 1) if whole % size == 0)
    raise RefusedKeyError(
        name,
        f"{name}: found {found:_}, expected a divisor of the {whole:_} {of}",
        hint=f"write {name}: {best}, or change {other}",
    )


def require_fitting_network(config: ActorCriticConfig, environments: Environments) -> None:
    """Refuse a network of another kind than the observations. Raises :class:`RefusedKeyError`."""
    pictures = len(environments.shape) == 3
    fitting = _OF_PICTURES if pictures else _OF_NUMBERS
    if config.network not in fitting:
        what = "pictures" if pictures else "numbers"
        raise unexpected(
            "network", config.network, f"{' or '.join(fitting)}: {config.task.name} shows {what}"
        )
    if config.network == CNN and min(environments.shape[:2]) < LEAST_PICTURE:
        size = " × ".join(map(str, environments.shape[:2]))
        raise unexpected(
            "network", CNN, f"{RESNET}: {config.task.name} shows {size} pixels, {CNN} needs {LEAST_PICTURE}"
        )
    if config.precision != "fp32" and not pictures:
        raise unexpected("precision", config.precision, f"fp32: {config.task.name} shows no pictures")


def _require_actors(config: ActorCriticConfig) -> None:
    if config.mode not in config.modes:
        raise unexpected("mode", repr(config.mode), " or ".join(config.modes))
    require_positive(config, "actors", "actor_timeout")
    if config.mode == SEQUENTIAL and config.actors > 1:
        raise unexpected(
            "actors", config.actors, "1 in mode sequential", hint="write mode: parallel, or leave out actors"
        )
    require_divisor("actors", config.actors, config.envs, "envs", "envs")


def _require_network(config: ActorCriticConfig) -> None:
    if config.network not in (*_OF_NUMBERS, *_OF_PICTURES):
        raise unexpected(
            "network", repr(config.network), f"{', '.join(_OF_NUMBERS)}, {' or '.join(_OF_PICTURES)}"
        )
    if config.network == MLP and (not config.hidden or min(config.hidden) < 1):
        raise unexpected("hidden", config.hidden, "sizes of layers from 1, such as [64, 64]")
    for name in ("features", "layers", "heads"):
        if getattr(config, name) < 1:
            raise unexpected(name, getattr(config, name), "a number from 1")
    if config.features % config.heads:
        raise unexpected("features", config.features, f"a multiple of the {config.heads} heads")

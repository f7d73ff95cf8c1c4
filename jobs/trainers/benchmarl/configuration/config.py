"""Compose BenchMARL's configuration objects for a run, through BenchMARL's own Hydra configs.

The same objects as ``python benchmarl/run.py key=value …`` builds, except that ``experiment.render`` is off
unless the run sets it: cluster nodes have no display.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import benchmarl
from benchmarl.algorithms.common import AlgorithmConfig
from benchmarl.environments import TaskClass, task_config_registry
from benchmarl.experiment import ExperimentConfig
from benchmarl.hydra_config import (
    load_algorithm_config_from_hydra,
    load_experiment_config_from_hydra,
    load_model_config_from_hydra,
    load_task_config_from_hydra,
)
from benchmarl.models.common import ModelConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from jobs.hydra.composition import compose_files, search_path
from jobs.hydra.override_text import override_text
from jobs.trainers.benchmarl.configuration.registry import RegisteredTask, config_folders
from jobs.trainers.benchmarl.configuration.spelling import VOCABULARY
from jobs.trainers.benchmarl.configuration.time_bound import without_minutes
from jobs.training.config_errors import RefusedKeyError, bare_key
from jobs.training.context import BadConfigError
from jobs.training.records.error_chain import first_line
from jobs.training.time_budget import minutes_of
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.types import Run, Value

ROOT = Path(benchmarl.__file__).parent / "conf"


@dataclass(frozen=True)
class Outline:
    """The parts of a configuration that do not depend on a run's values, as a ``model: sequence`` does.

    ``choices``: config group → chosen option, such as ``vmas/navigation`` for ``task``.
    """

    choices: Mapping[str, str]
    task: TaskClass
    algorithm: AlgorithmConfig
    experiment: ExperimentConfig

    @property
    def task_name(self) -> str:
        return self.choices["task"]

    @property
    def on_policy(self) -> bool:
        return bool(self.algorithm.on_policy())


@dataclass(frozen=True)
class Composed(Outline):
    """A run's configuration, ready for ``benchmarl.experiment.Experiment``.

    ``loggers`` are those of the run; ``plain`` holds JSON values only; ``config_hash`` (16 hexadecimal
    digits) covers what decides the result, so keys such as ``experiment.loggers`` do not change it.
    """

    model: ModelConfig
    critic_model: ModelConfig
    seed: int
    loggers: tuple[str, ...]
    plain: dict[str, Any]
    config_hash: str

    @property
    def parts(self) -> dict[str, Any]:
        """The arguments of ``Experiment`` except ``config``."""
        return {
            "task": self.task,
            "algorithm_config": self.algorithm,
            "model_config": self.model,
            "critic_model_config": self.critic_model,
            "seed": self.seed,
        }


def compose(run: Run) -> Composed:
    """Compose the configuration of a run.

    Raises :class:`BadConfigError` with the key, the fault, and the right spelling if one is near.
    """
    cfg = compose_config(run)
    found = outline(cfg)
    cfg = _without_hydra(cfg)
    with _refusals_told():
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    described = {"choices": found.choices, **{str(key): value for key, value in plain.items()}}
    if (minutes := minutes_of(run)) is not None:
        described[BENCHMARL.minutes] = minutes
    return Composed(
        **vars(found),
        model=_model(cfg, "model", found.choices),
        critic_model=_model(cfg, "critic_model", found.choices),
        seed=run.seed,
        loggers=tuple(found.experiment.loggers),
        plain=described,
        config_hash=_hash(described),
    )


def outline(cfg: DictConfig) -> Outline:
    """Return the parts of a composed Hydra config, which stays unchanged. Raises :class:`BadConfigError`."""
    choices = chosen(cfg)
    if choices["task"].startswith("pettingzoo/"):
        _pass_over_moved_environments()
    cfg = _without_hydra(cfg)
    with _refusals_told():
        parts = {
            "task": _task(cfg.task, choices["task"]),
            "algorithm": load_algorithm_config_from_hydra(cfg.algorithm),
            "experiment": load_experiment_config_from_hydra(cfg.experiment),
        }
    _refuse_additions(parts)
    return Outline(choices=choices, **parts)


def _task(cfg: DictConfig, name: str) -> TaskClass:
    task = task_config_registry.get(name)
    if isinstance(task, RegisteredTask):  # BenchMARL looks for the types of a config among its own only
        return task.get_task(dict(vars(OmegaConf.to_object(cfg))))
    return load_task_config_from_hydra(cfg, name)


def _without_hydra(cfg: DictConfig) -> DictConfig:
    cfg = cfg.copy()
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


def _model(cfg: DictConfig, name: str, choices: Mapping[str, str]) -> ModelConfig:
    try:
        with _refusals_told():
            return load_model_config_from_hydra(cfg[name])
    except ImportError as error:
        key = "model" if name == "model" else f"model@{name}"
        raise RefusedKeyError(
            key,
            f"{key}: {choices[key]} needs the Python package {error.name}, which is not installed here",
            hint=f"install {error.name} into the environment that runs the workers, or choose another model",
        ) from error


@contextmanager
def _refusals_told() -> Iterator[None]:
    """Turn errors of BenchMARL and OmegaConf about values into :class:`BadConfigError`."""
    try:
        yield
    except MissingMandatoryValue as error:
        key = error.full_key
        raise BadConfigError(f"{key} has no value", hint=f"add {key} to base or matrix") from error
    except (OmegaConfBaseException, TypeError, ValueError, AttributeError, KeyError) as error:
        raise BadConfigError(f"BenchMARL refuses the configuration: {first_line(error)}") from error


def _pass_over_moved_environments() -> None:
    """Let TorchRL find the PettingZoo environments that are installed.

    TorchRL skips families that are absent; ``pettingzoo.mpe`` is present, and fails at import because it
    moved.
    """
    try:
        importlib.import_module("pettingzoo.mpe")
    except ModuleNotFoundError:
        pass  # TorchRL skips an absent family by itself
    except ImportError:
        sys.modules["pettingzoo.mpe"] = None  # type: ignore[assignment]  # marks the module as absent


def _refuse_additions(parts: dict[str, Any]) -> None:
    """Refuse keys added with ``+`` that BenchMARL would never read."""
    for name in ("experiment", "algorithm"):
        unread = sorted(set(vars(parts[name])) - {field.name for field in fields(parts[name])})
        if unread:
            raise BadConfigError(f"BenchMARL has no key '{name}.{unread[0]}', and would never read it")


def compose_config(run: Run) -> DictConfig:
    """Return the composed Hydra config, its ``hydra`` node included."""
    overrides = without_minutes(run)
    VOCABULARY.require_choices(overrides)
    try:
        return compose_files(ROOT, override_lines(run), with_hydra=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise VOCABULARY.explain(overrides, error, _compose_some) from error


def _compose_some(overrides: Mapping[str, Value]) -> DictConfig:
    return compose_files(ROOT, _lines(overrides))


def override_lines(run: Run) -> list[str]:
    """Return the run as arguments of Hydra's command line, with our search path."""
    overrides: dict[str, Value] = {"seed": run.seed, **without_minutes(run)}
    if not any(bare_key(key) == "experiment.render" for key in run.overrides):
        overrides["experiment.render"] = False
    return _lines(overrides)


def _lines(overrides: Mapping[str, Value]) -> list[str]:
    lines = [override_text(key, value) for key, value in overrides.items()]
    return [*lines, search_path(config_folders())]


def chosen(cfg: DictConfig) -> dict[str, str]:
    """Return config group → chosen option, of BenchMARL's groups only."""
    choices = cfg.hydra.runtime.choices
    return {str(key): str(choices[key]) for key in sorted(choices) if not str(key).startswith("hydra/")}


def _hash(plain: dict[str, Any]) -> str:
    deciding: dict[str, Any] = {key: value for key, value in plain.items() if key != "choices"}
    deciding["experiment"] = {
        key: value for key, value in plain["experiment"].items() if BENCHMARL.decides(f"experiment.{key}")
    }
    text = json.dumps(deciding, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

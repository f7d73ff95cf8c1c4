"""From a run to BenchMARL's own configuration objects, through BenchMARL's own Hydra configs.

What comes out is what ``python benchmarl/run.py key=value …`` would build from the same overrides, but that
``experiment.render`` is off unless the run asks for it: cluster nodes have no display.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from dataclasses import dataclass, fields
from typing import Any

from benchmarl.algorithms.common import AlgorithmConfig
from benchmarl.environments import TaskClass
from benchmarl.experiment import ExperimentConfig
from benchmarl.hydra_config import (
    load_algorithm_config_from_hydra,
    load_experiment_config_from_hydra,
    load_model_config_from_hydra,
    load_task_config_from_hydra,
)
from benchmarl.models.common import ModelConfig
from hydra import compose as hydra_compose
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from jobs.context import BadConfigError
from jobs.trainers.benchmarl.hydra_search import first_line, hydra_ready, search_path
from jobs.trainers.benchmarl.hydra_text import RefusedKeyError, bare_key, override_text
from jobs.trainers.benchmarl.spelling import explain, require_choices
from orchestrator.trainers import BENCHMARL
from orchestrator.types import Run


@dataclass(frozen=True)
class Composed:
    """A run's configuration, ready for ``benchmarl.experiment.Experiment``.

    ``loggers`` are those the run asked for; ``plain`` holds JSON values only; ``config_hash`` (16 hexadecimal
    digits) covers what decides the result, so that keys such as ``experiment.loggers`` leave it as it is.
    """

    task: TaskClass
    task_name: str
    algorithm: AlgorithmConfig
    model: ModelConfig
    critic_model: ModelConfig
    experiment: ExperimentConfig
    seed: int
    loggers: tuple[str, ...]
    plain: dict[str, Any]
    config_hash: str

    @property
    def on_policy(self) -> bool:
        return bool(self.algorithm.on_policy())


def compose(run: Run) -> Composed:
    """The composed configuration of a run.

    Raises :class:`BadConfigError` with the key, what is wrong with it, and the right spelling if one is near.
    """
    return from_config(compose_config(run), run)


def from_config(cfg: DictConfig, run: Run) -> Composed:
    """BenchMARL's objects from the composed Hydra config of a run, which is left as it is."""
    choices = chosen(cfg)
    cfg = cfg.copy()
    if choices["task"].startswith("pettingzoo/"):
        _pass_over_moved_environments()
    with open_dict(cfg):
        del cfg["hydra"]
    try:
        task_name = choices["task"]
        parts = {
            "task": load_task_config_from_hydra(cfg.task, task_name),
            "algorithm": load_algorithm_config_from_hydra(cfg.algorithm),
            "model": load_model_config_from_hydra(cfg.model),
            "critic_model": load_model_config_from_hydra(cfg.critic_model),
            "experiment": load_experiment_config_from_hydra(cfg.experiment),
        }
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except ImportError as error:
        raise RefusedKeyError(
            "model",
            f"model: {choices['model']} needs the Python package {error.name}, which is not installed here",
            hint=f"install {error.name} into the environment that runs the workers, or choose another model",
        ) from error
    except (OmegaConfBaseException, TypeError, ValueError, AttributeError, KeyError) as error:
        raise BadConfigError(f"BenchMARL refuses the configuration: {first_line(error)}") from error
    assert isinstance(plain, dict)
    _refuse_additions(parts)
    described = {"choices": choices, **{str(key): value for key, value in plain.items()}}
    return Composed(
        **parts,
        task_name=task_name,
        seed=run.seed,
        loggers=tuple(parts["experiment"].loggers),
        plain=described,
        config_hash=_hash(described),
    )


def _pass_over_moved_environments() -> None:
    """Let TorchRL find the PettingZoo environments that are installed.

    It passes over families that are not there; ``pettingzoo.mpe`` is there, and says at import that it moved.
    """
    try:
        importlib.import_module("pettingzoo.mpe")
    except ModuleNotFoundError:
        pass  # TorchRL can tell that one by itself
    except ImportError:
        sys.modules["pettingzoo.mpe"] = None  # type: ignore[assignment]  # the import system's word for "not there"


def _refuse_additions(parts: dict[str, Any]) -> None:
    """Keys added with ``+`` that BenchMARL would carry along and never read."""
    for name in ("experiment", "algorithm"):
        unread = sorted(set(vars(parts[name])) - {field.name for field in fields(parts[name])})
        if unread:
            raise BadConfigError(f"BenchMARL has no key '{name}.{unread[0]}', and would never read it")


def compose_config(run: Run) -> DictConfig:
    """The composed Hydra config, its ``hydra`` node included."""
    require_choices(run.overrides)
    lines = override_lines(run)
    try:
        with hydra_ready():
            return hydra_compose("config", overrides=lines, return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(run.overrides, error) from error


def override_lines(run: Run) -> list[str]:
    """The run as arguments of Hydra's command line, without our search path."""
    lines = [override_text(key, value) for key, value in run.overrides.items()]
    if not any(bare_key(key) == "experiment.render" for key in run.overrides):
        lines.append("experiment.render=false")
    return [f"seed={run.seed}", *lines, search_path()]


def chosen(cfg: DictConfig) -> dict[str, str]:
    """Config group → chosen option, of BenchMARL's groups only."""
    choices = cfg.hydra.runtime.choices
    return {str(key): str(choices[key]) for key in sorted(choices) if not str(key).startswith("hydra/")}


def _hash(plain: dict[str, Any]) -> str:
    deciding: dict[str, Any] = {key: value for key, value in plain.items() if key != "choices"}
    deciding["experiment"] = {
        key: value for key, value in plain["experiment"].items() if BENCHMARL.decides(f"experiment.{key}")
    }
    text = json.dumps(deciding, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

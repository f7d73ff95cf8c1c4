"""Find faults of runs without PyTorch: names, keys, and the form of values.

It takes tenths of a second where loading BenchMARL takes seconds. It reads the files of values that Hydra
composes, and refuses only what the thorough check refuses, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from jobs.check import Problem
from jobs.hydra.checking import Findings, check_values
from jobs.hydra.spelling import wants_list
from jobs.trainers.benchmarl.configuration.spelling import VOCABULARY, file_values, options
from jobs.trainers.benchmarl.configuration.values import check_value
from jobs.training.config_errors import bare_key, unexpected
from orchestrator.core.types import Run, Value

# What stands for a choice that a grid leaves out, as in BenchMARL's config.yaml.
_USUAL = {"experiment": "base_experiment", "model": "layers/mlp", "model@critic_model": "layers/mlp"}
_HEADS = {"experiment": "experiment", "algorithm": "algorithm", "task": "task", "model": "model"}
_CRITIC = "model@critic_model"
_TRUTH = {"true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "1", "0"}


def first_look(runs: Sequence[Run]) -> list[Problem]:
    """Return one problem per fault, each with the first run that has it. An empty list promises nothing."""
    findings = Findings()
    if find_spec("benchmarl") is not None:  # it has the names
        for _ in check_values(_Files(), runs, findings):
            pass
    return [replace(problem, early=True) for problem in findings.problems]


class _Files:
    """The files of values as a configuration, without BenchMARL's types."""

    vocabulary = VOCABULARY

    def base(self, run: Run) -> DictConfig | None:
        return _config(json.dumps(VOCABULARY.choices(run.overrides)))

    def whole(self, run: Run) -> DictConfig:  # noqa: ARG002
        """Resolve no references."""
        return OmegaConf.create()

    def check_value(self, key: str, value: Any, base: DictConfig) -> None:
        if key.startswith("+"):
            return
        try:
            usual = OmegaConf.select(base, bare_key(key))
        except OmegaConfBaseException:  # a reference to what other files or the run's own values hold
            return
        _check_kind(key, value, OmegaConf.to_container(usual) if OmegaConf.is_config(usual) else usual)
        if not isinstance(value, str) or isinstance(usual, str):
            check_value(key, value)


def _check_kind(key: str, value: Value, usual: Any) -> None:
    """Hold a value against the one in BenchMARL's file: no text for a number, no single value for a list."""
    name = bare_key(key)
    if name == "experiment.loggers" and not isinstance(value, list):
        raise wants_list(key, value)
    if name.endswith("num_cells") and isinstance(value, int):
        raise wants_list(key, value)
    expected = None
    if isinstance(usual, bool):
        if isinstance(value, list | Mapping) or (isinstance(value, str) and value.lower() not in _TRUTH):
            expected = "true or false"
    elif isinstance(usual, int | float) and (isinstance(value, list | Mapping) or _is_word(value)):
        expected = "a number"
    if expected:
        raise unexpected(key, repr(value), expected)


def _is_word(value: Value) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


@cache
def _config(choices: str) -> DictConfig | None:
    """Compose the files of these choices; ``None`` where Hydra composes them in another way."""
    chosen: dict[str, str] = {**_USUAL, **json.loads(choices)}
    if any(key not in (*_HEADS, _CRITIC) for key in chosen):
        return None
    if any("sequence" in option for key, option in chosen.items() if key.startswith("model")):
        return None
    parts: dict[str, Any] = {"seed": 0}
    for key, option in chosen.items():
        group = key.partition("@")[0]
        if option not in options(group):
            return None
        parts["critic_model" if key == _CRITIC else key] = dict(file_values(group, option))
    return OmegaConf.create(parts)

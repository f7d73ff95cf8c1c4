"""Find faults of runs without PyTorch: names, keys, and the form of values.

It takes tenths of a second where loading BenchMARL takes seconds. It reads the files of values that Hydra
composes, and refuses only what the thorough check refuses, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from omegaconf import DictConfig, OmegaConf

from jobs.check import Problem
from jobs.hydra.checking import Findings, structures
from jobs.hydra.override_text import override_text
from jobs.hydra.spelling import wants_list
from jobs.trainers.benchmarl.configuration.spelling import VOCABULARY, file_values, options
from jobs.trainers.benchmarl.configuration.values import check_value
from jobs.training.config_errors import bare_key, unexpected
from jobs.training.context import BadConfigError
from jobs.training.time_budget import checked_minutes
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.types import Run, Value

# What stands for a choice that a grid leaves out, as in BenchMARL's config.yaml.
_USUAL = {"experiment": "base_experiment", "model": "layers/mlp", "model@critic_model": "layers/mlp"}
_HEADS = {"experiment": "experiment", "algorithm": "algorithm", "task": "task", "model": "model"}
_CRITIC = "model@critic_model"
_TRUTH = {"true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "1", "0"}


def first_look(runs: Sequence[Run]) -> list[Problem]:
    """Return one problem per fault, each with the first run that has it. An empty list promises nothing."""
    findings = Findings()
    if find_spec("benchmarl") is None:  # it has the names
        return findings.problems
    seen: set[tuple[str, str, str]] = set()
    for group in structures(runs):
        for run, error in _of_structure(group, seen):
            findings.add(run, error, early=True)
    return findings.problems


def _of_structure(
    runs: Sequence[Run], seen: set[tuple[str, str, str]]
) -> Iterable[tuple[Run, BadConfigError]]:
    first = runs[0]
    try:
        VOCABULARY.require_choices(first.overrides)
    except BadConfigError as error:
        yield first, error
        return
    if wrong := VOCABULARY.wrong_choices(first.overrides):
        yield from ((first, error) for error in wrong)
        return
    choices = VOCABULARY.choices(first.overrides)
    known = json.dumps(choices)
    cfg = _config(known)
    for run in runs:
        for key, value in run.overrides.items():
            told = (known, key, json.dumps(value))
            if key in choices or told in seen:
                continue
            seen.add(told)
            try:
                _look(cfg, choices, key, value)
            except BadConfigError as error:
                yield run, error


def _look(cfg: DictConfig | None, choices: Mapping[str, Value], key: str, value: Value) -> None:
    """Raise :class:`BadConfigError` for a key or a value that cannot be right."""
    override_text(key, value)
    name = bare_key(key)
    if key == BENCHMARL.minutes:
        checked_minutes(key, value)
        return
    if key.startswith(("+", "~")) or "${" in json.dumps(value):
        return
    if cfg is None:
        return
    if (problem := VOCABULARY.unknown_key(cfg, key, choices)) is not None:
        raise problem
    usual = OmegaConf.select(cfg, name)
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

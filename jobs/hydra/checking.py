"""Check the values of many runs in seconds: compose each structure once, try each distinct value once."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from omegaconf import DictConfig, OmegaConf

from jobs.check import ELSEWHERE, Problem, structure
from jobs.hydra.override_text import override_text
from jobs.hydra.spelling import Vocabulary
from jobs.hydra.values import set_value
from jobs.training.config_errors import MissingHereError, RefusedKeyError, bare_key
from jobs.training.context import BadConfigError
from orchestrator.core.types import Run, Value


class Configuration(Protocol):
    """A trainer's configuration, as far as a check of single values needs it."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The names in it."""

    def base(self, run: Run) -> DictConfig | None:
        """Compose the choices alone; ``None`` where that is not known. Raises :class:`BadConfigError`."""

    def whole(self, run: Run) -> DictConfig:
        """Compose the run. Raises :class:`BadConfigError`."""

    def check_value(self, key: str, value: Any, base: DictConfig) -> None:
        """Refuse a value of the right type that cannot work. Raises :class:`BadConfigError`.

        ``base``: the configuration of the run's choices.
        """


class Findings:
    """The problems found, each once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str | None, str], Problem] = {}

    def add(self, run: Run, error: BadConfigError, *, whole: bool = False) -> None:
        """Add an error that the run has; ``whole`` as in :class:`Problem`.

        What this machine lacks is a warning for runs that start on another one.
        """
        key = error.key if isinstance(error, RefusedKeyError) else None
        blocks = not (isinstance(error, MissingHereError) and ELSEWHERE in os.environ)
        problem = Problem(run.run_id, key, str(error), error.hint, whole, blocks=blocks)
        self._found.setdefault((key, str(error)), problem)

    @property
    def problems(self) -> list[Problem]:
        return list(self._found.values())


@dataclass(frozen=True)
class Shape:
    """The runs of one structure; in ``good`` ones every single value is right.

    ``base``: the configuration of their choices alone. ``values``: (key, value as JSON) → the value in the
    type of its field, or the error.
    """

    base: DictConfig
    runs: tuple[Run, ...]
    good: tuple[Run, ...]
    values: Mapping[tuple[str, str], Value]


def structures(runs: Sequence[Run]) -> list[list[Run]]:
    """Group the runs by structure."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(structure(run), []).append(run)
    return list(groups.values())


def check_values(configuration: Configuration, runs: Sequence[Run], findings: Findings) -> Iterator[Shape]:
    """Check every distinct value of the runs; yield a shape for each structure that can be composed."""
    bases: dict[str, DictConfig | None] = {}
    for group in structures(runs):
        choices = json.dumps(configuration.vocabulary.choices(group[0].overrides))
        if choices not in bases:
            bases[choices] = _base(configuration, group[0], findings)
        base = bases[choices]
        if base is not None:
            yield _shape(configuration, base, group, findings)


def _base(configuration: Configuration, run: Run, findings: Findings) -> DictConfig | None:
    """Compose the run's choices; add findings and return ``None`` if they cannot be composed."""
    try:
        configuration.vocabulary.require_choices(run.overrides)
        if wrong := configuration.vocabulary.wrong_choices(run.overrides):
            for problem in wrong:
                findings.add(run, problem)
            return None
        return configuration.base(run)
    except BadConfigError as error:
        findings.add(run, error)
        return None


def _shape(configuration: Configuration, base: DictConfig, runs: Sequence[Run], findings: Findings) -> Shape:
    cfg = copy.deepcopy(base)  # values are tried in it
    values: dict[tuple[str, str], Value] = {}
    good = []
    for run in runs:
        right = True
        for key, value in run.overrides.items():
            if configuration.vocabulary.group_of(key) is not None:
                continue
            known = (key, json.dumps(value))
            if known not in values:
                try:
                    values[known] = _typed(configuration, run, base, cfg, key, value)
                except BadConfigError as error:
                    findings.add(run, error)
                    values[known] = error
            right = right and not isinstance(values[known], BadConfigError)
        if right:
            good.append(run)
    return Shape(base, tuple(runs), tuple(good), values)


def _typed(
    configuration: Configuration, run: Run, base: DictConfig, cfg: DictConfig, key: str, value: Value
) -> Value:
    """Return the value in the type of its field, tried in ``cfg``. Raises :class:`BadConfigError`."""
    vocabulary = configuration.vocabulary
    if key in vocabulary.own_keys:
        return vocabulary.own_keys[key](key, value)
    override_text(key, value)
    if "${" in json.dumps(value):
        return OmegaConf.select(configuration.whole(run), bare_key(key))
    if key.startswith("~") and vocabulary.hydra:
        return None
    typed = set_value(vocabulary, cfg, key, value, run.overrides)
    configuration.check_value(key, typed, base)
    return typed

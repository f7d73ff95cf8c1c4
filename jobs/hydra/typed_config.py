"""A trainer's configuration as a dataclass, composed and checked without files of Hydra.

Grids set its fields by dotted keys, ``${key}`` refers to another key, and wrong keys and values are refused
as they are for BenchMARL.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from jobs.check import Problem, report_checked
from jobs.hydra.checking import Findings, check_values
from jobs.hydra.override_text import override_text
from jobs.hydra.spelling import Vocabulary, keys_of, nearest
from jobs.hydra.values import set_value
from jobs.training.config_errors import RefusedKeyError
from jobs.training.context import BadConfigError
from jobs.training.records.error_chain import first_line
from orchestrator.core.types import Run, Value

PRESET = "preset"
_NOT_FOUND = re.compile(r"Interpolation key '([^']+)' not found")

T = TypeVar("T")


@dataclass(frozen=True)
class Choice:
    """A key that names one of several options; without ``default`` every run has it.

    ``example`` stands in messages, the first option by default. ``takes``: whether a name that is none of the
    options is one all the same. ``hint``: return what to do about a name that is like no option.
    """

    options: Callable[[], Sequence[str]]
    example: str = ""
    default: str | None = None
    takes: Callable[[str], bool] = lambda _: False
    hint: Callable[[str], str | None] = lambda _: None

    @property
    def usual(self) -> str:
        """The default, or the example of an option."""
        return self.default or self.example or self.options()[0]


@dataclass(frozen=True)
class TypedConfig(Generic[T]):
    """A trainer's configuration as an instance of a dataclass.

    ``name``: the trainer in messages. ``schema``: return the dataclass with its defaults for the chosen
    options; its types are those of OmegaConf's structured configs. ``choices``: key → its options; the key
    may also be a field with keys of its own. ``presets``: the values that each option of the key ``preset``
    sets before the run's own. ``own_keys``, ``other_keys`` and ``other_options`` as in :class:`Vocabulary`.
    """

    name: str
    schema: Callable[[Mapping[str, str]], T]
    choices: Mapping[str, Choice] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    own_keys: Mapping[str, Callable[[str, Value], Value]] = field(default_factory=dict)
    other_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def compose(self, overrides: Mapping[str, Value]) -> T:
        """Return the configuration of a run with these overrides.

        Raises :class:`BadConfigError` with the key, the fault, and the right spelling if one is near.
        """
        return self._object(self._filled(self._chosen(overrides), overrides))

    def first_look(self, runs: Sequence[Run]) -> list[Problem]:
        """Return the problems of single names, keys and values, which need nothing that trains."""
        return [replace(problem, early=True) for problem in self.problems(runs)]

    def problems(self, runs: Sequence[Run], check_one: Callable[[T], None] | None = None) -> list[Problem]:
        """Return one problem per fault, each with the first run that has it.

        Every distinct value is checked once, then every distinct configuration of right values by
        ``check_one``, which raises :class:`BadConfigError` for one that would fail. Seeds make no difference.
        """
        findings, done, total = Findings(), 0, len(runs)
        for shape in check_values(self, runs, findings):
            for run in shape.good:
                report_checked(done, total)
                done += 1
                try:
                    config = self._object(self._filled(copy.deepcopy(shape.base), run.overrides))
                    if check_one is not None:
                        check_one(config)
                except BadConfigError as error:
                    findings.add(run, error)
        return findings.problems

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The names in the configuration."""
        required = {key: choice for key, choice in self.choices.items() if choice.default is None}
        return Vocabulary(
            trainer=self.name,
            groups=(*self.choices, *((PRESET,) if self.presets else ())),
            options=self._options,
            takes=lambda key, value: key in self.choices and self.choices[key].takes(value),
            values=self._values,
            required={key: choice.usual for key, choice in required.items()},
            own_keys=self.own_keys,
            other_keys=self.other_keys,
            other_options=self.other_options,
            option_hint=self._option_hint,
        )

    def _option_hint(self, vocabulary: Vocabulary, group: str, value: str) -> str | None:
        found = vocabulary.nearest_option(group, value)
        return found or (self.choices[group].hint(value) if group in self.choices else None)

    def base(self, run: Run) -> DictConfig:
        """Compose the run's choices alone."""
        return self._chosen(run.overrides)

    def whole(self, run: Run) -> DictConfig:
        """Compose the run."""
        return self._filled(self._chosen(run.overrides), run.overrides)

    def check_value(self, key: str, value: Any, base: DictConfig) -> None:
        """Take every value of the right type."""

    def _object(self, cfg: DictConfig) -> T:
        try:
            composed: T = OmegaConf.to_object(cfg)  # type: ignore[assignment]
        except MissingMandatoryValue as error:
            key = error.full_key
            raise BadConfigError(f"{key} has no value", hint=f"add {key} to base or matrix") from error
        except (OmegaConfBaseException, TypeError, ValueError) as error:
            raise BadConfigError(f"{self.name} refuses the configuration: {first_line(error)}") from error
        return composed

    def _filled(self, cfg: DictConfig, overrides: Mapping[str, Value]) -> DictConfig:
        """Set the overrides in the configuration of their choices. Raises :class:`BadConfigError`."""
        for key, value in overrides.items():
            if key in self.own_keys:
                self.own_keys[key](key, value)
            elif self.vocabulary.group_of(key) is None:
                override_text(key, value)
                self._set(cfg, key, value, overrides)
        for key, value in overrides.items():
            if "${" in json.dumps(value):
                self._resolve(cfg, key, value)
        return cfg

    def _chosen(self, overrides: Mapping[str, Value]) -> DictConfig:
        """Return the configuration of the choices and the preset. Raises :class:`BadConfigError`."""
        self.vocabulary.require_choices(overrides)
        if wrong := self.vocabulary.wrong_choices(overrides):
            raise wrong[0]
        chosen = {key: str(overrides.get(key, choice.default)) for key, choice in self.choices.items()}
        cfg = self._structured(chosen)
        for key, value in self.presets.get(str(overrides.get(PRESET)), {}).items():
            self._set(cfg, key, value, overrides)
        return cfg

    def _structured(self, chosen: Mapping[str, str]) -> DictConfig:
        cfg = OmegaConf.structured(self.schema(chosen))
        assert isinstance(cfg, DictConfig)
        _unlock(cfg)
        return cfg

    def _set(self, cfg: DictConfig, key: str, value: Value, choices: Mapping[str, Value]) -> None:
        set_value(self.vocabulary, cfg, key, value, choices)

    def _resolve(self, cfg: DictConfig, key: str, value: Value) -> None:
        """Refuse references to unknown keys, in circles, or to values of another type."""
        try:
            found = OmegaConf.select(cfg, key)
            if OmegaConf.is_config(found):
                OmegaConf.to_container(found, resolve=True)
        except ValidationError as error:
            raise self.vocabulary.wrong_type(key, value, error) from error
        except InterpolationResolutionError as error:
            missing = _NOT_FOUND.search(str(error))
            near = nearest(missing[1], keys_of(cfg)) if missing else None
            fault = f"{self.name} has no key {missing[1]!r}" if missing else "the reference leads to itself"
            hint = f"did you mean ${{{near}}}?" if near else None
            raise RefusedKeyError(key, f"{key}: found {value!r}: {fault}", hint=hint) from error

    def _options(self, key: str) -> Sequence[str]:
        return tuple(self.presets) if key == PRESET else self.choices[key].options()

    def _values(self, key: str, option: str) -> Mapping[str, Any]:
        """Return the values below the key with this option; none if it cannot be used here."""
        if key == PRESET:
            return {}
        usual = {other: choice.usual for other, choice in self.choices.items()}
        try:
            values = OmegaConf.to_container(self._structured({**usual, key: option}))
        except BadConfigError:
            return {}
        below = values.get(key) if isinstance(values, dict) else None
        return below if isinstance(below, dict) else {}


def _unlock(cfg: DictConfig) -> None:
    """Let the values of frozen dataclasses be set: the instance is made of them later."""
    OmegaConf.set_readonly(cfg, None)
    for key in cfg:
        node = cfg._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation():
            _unlock(node)

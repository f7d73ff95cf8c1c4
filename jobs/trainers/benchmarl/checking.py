"""Check BenchMARL runs thoroughly, in seconds for any number of runs.

Composing a configuration takes a tenth of a second and building an experiment longer, so neither is done per
run: each structure is composed once, each distinct value is checked once, and so is each distinct combination
of the values that must fit each other.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from jobs.check import Problem, structure
from jobs.hydra.override_text import override_text
from jobs.trainers.benchmarl import rules
from jobs.trainers.benchmarl.building import require_possible, try_build
from jobs.trainers.benchmarl.config import Outline, compose, compose_config, outline
from jobs.trainers.benchmarl.spelling import VOCABULARY
from jobs.training.config_errors import RefusedKeyError, bare_key
from jobs.training.context import BadConfigError
from jobs.training.time_budget import checked_minutes
from orchestrator.config.trainers import BENCHMARL
from orchestrator.core.types import Run, Value

# Every distinct set of choices is built once, further values of model, task and algorithm within this time.
_BUILD_SECONDS = 15.0


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return one problem per fault, each with the first run that has it."""
    findings = _Findings()
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(structure(run), []).append(run)
    bases: dict[str, DictConfig | None] = {}
    found = (_shape(group, bases, findings) for group in groups.values())
    shapes = [shape for shape in found if shape is not None]
    for shape in shapes:
        _check_combinations(shape, findings)
    _check_builds(shapes, findings)
    _check_twins(shapes, findings)
    if len(shapes) == len(groups):
        _check_idle(shapes, findings)
    return findings.problems


class _Findings:
    """The problems found, each once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str | None, str], Problem] = {}

    def add(self, run: Run, error: BadConfigError, *, whole: bool = False) -> None:
        key = error.key if isinstance(error, RefusedKeyError) else None
        problem = Problem(run.run_id, key, str(error), error.hint, whole)
        self._found.setdefault((key, str(error)), problem)

    @property
    def problems(self) -> list[Problem]:
        return list(self._found.values())


@dataclass(frozen=True)
class _Shape:
    """The runs of one structure; in ``good`` ones every single value is right.

    ``values``: (key, value as JSON) → the value in the type of its field, or the error.
    """

    outline: Outline
    runs: tuple[Run, ...]
    good: tuple[Run, ...]
    values: Mapping[tuple[str, str], Value]

    def experiment_values(self, run: Run, names: Iterable[str]) -> dict[str, Value]:
        """Return the fields of BenchMARL's ExperimentConfig among ``names`` that the run sets."""
        set_here = {bare_key(key): (key, value) for key, value in run.overrides.items()}
        found = {}
        for name in names:
            if f"experiment.{name}" in set_here:
                key, value = set_here[f"experiment.{name}"]
                found[name] = self.values[key, json.dumps(value)]
        return found


def _shape(runs: Sequence[Run], bases: dict[str, DictConfig | None], findings: _Findings) -> _Shape | None:
    """Check every distinct value of the runs of one structure; ``None`` if it cannot be composed.

    ``bases``: choices → the configuration composed from these alone, in which plain values are tried.
    """
    choices = {key: value for key, value in runs[0].overrides.items() if VOCABULARY.group_of(key) is not None}
    known = json.dumps(choices)
    if known not in bases:
        bases[known] = _base(runs[0], choices, findings)
    base = bases[known]
    if base is None:
        return None
    cfg = copy.deepcopy(base)  # values are tried in it
    values: dict[tuple[str, str], Value] = {}
    good = [run for run in runs if _check_values(run, cfg, values, findings)]
    try:
        whole = compose(good[0]) if good else outline(base)
        return _Shape(whole, tuple(runs), tuple(good), values)
    except BadConfigError as error:
        findings.add(good[0], error)
        return None


def _base(run: Run, choices: Mapping[str, Value], findings: _Findings) -> DictConfig | None:
    """Compose the choices alone; add a finding and return ``None`` if they cannot be composed."""
    try:
        VOCABULARY.require_choices(run.overrides)
        if wrong := VOCABULARY.wrong_choices(choices):
            for problem in wrong:
                findings.add(run, problem)
            return None
        cfg = compose_config(replace(run, overrides=choices))
        require_possible(outline(cfg))
    except BadConfigError as error:
        findings.add(run, error)
        return None
    return cfg


def _check_values(
    run: Run, cfg: DictConfig, values: dict[tuple[str, str], Value], findings: _Findings
) -> bool:
    good = True
    for key, value in run.overrides.items():
        if VOCABULARY.group_of(key) is not None:
            continue
        known = (key, json.dumps(value))
        if known not in values:
            try:
                values[known] = _typed(run, cfg, key, value)
            except BadConfigError as error:
                findings.add(run, error)
                values[known] = error
        good = good and not isinstance(values[known], BadConfigError)
    return good


def _typed(run: Run, cfg: DictConfig, key: str, value: Value) -> Value:
    """Return the value in the type of its field. Raises :class:`BadConfigError`."""
    if key == BENCHMARL.minutes:
        return checked_minutes(key, value)
    override_text(key, value)
    if "${" in json.dumps(value):
        return OmegaConf.select(compose_config(run), bare_key(key))
    if key.startswith("~"):
        return None
    problem = VOCABULARY.unknown_key(cfg, key, run.overrides)
    if problem is not None:
        raise problem
    try:
        with open_dict(cfg):
            OmegaConf.update(cfg, bare_key(key), value)
        typed = OmegaConf.select(cfg, bare_key(key))
    except OmegaConfBaseException as error:
        raise VOCABULARY.wrong_type(key, value, error) from error
    typed = OmegaConf.to_container(typed) if OmegaConf.is_config(typed) else typed
    rules.check_value(key, typed)
    return typed


def _check_combinations(shape: _Shape, findings: _Findings) -> None:
    """Check each distinct combination of the values that BenchMARL's own validation reads."""
    seen = set()
    for run in shape.runs:
        values = shape.experiment_values(run, rules.READ_TOGETHER)
        if any(isinstance(value, BadConfigError) for value in values.values()):
            continue  # reported already
        combination = json.dumps(values, sort_keys=True)
        if combination in seen:
            continue
        seen.add(combination)
        try:
            config = replace(shape.outline.experiment, **values)
            rules.check_together(config, shape.outline.on_policy, frozenset(run.overrides))
        except BadConfigError as error:
            findings.add(run, error)


def _check_builds(shapes: Sequence[_Shape], findings: _Findings) -> None:
    """Build each distinct set of choices, and further values of task, model, algorithm while time allows."""
    deadline = time.monotonic() + _BUILD_SECONDS
    built: set[tuple[str, str]] = set()
    for shape in shapes:
        for number, run in enumerate(shape.good):
            parts = _built_parts(shape, run)
            first = number == 0 and not parts <= built
            if first or (not parts <= built and time.monotonic() < deadline):
                built |= parts
                _try_run(run, findings)


def _built_parts(shape: _Shape, run: Run) -> set[tuple[str, str]]:
    """Return what decides the build of a run: its choices together, each value outside ``experiment``."""
    parts = {("choices", json.dumps(dict(shape.outline.choices)))}
    for key, value in run.overrides.items():
        name = bare_key(key)
        if VOCABULARY.group_of(key) is None and (
            not name.startswith("experiment.") or name in rules.DECIDE_BUILD
        ):
            parts.add((name, json.dumps(value)))
    return parts


def _try_run(run: Run, findings: _Findings) -> None:
    try:
        composed = compose(run)
        try_build(composed, render=bool(composed.experiment.render))
    except RefusedKeyError as error:
        findings.add(run, error if error.key is not None else _with_values(run, error))
    except BadConfigError as error:
        findings.add(run, error)


def _with_values(run: Run, error: RefusedKeyError) -> RefusedKeyError:
    """Add the values that may be at fault to the error of a failed build."""
    blamed = {
        key: value
        for key, value in run.overrides.items()
        if VOCABULARY.group_of(key) is None and not bare_key(key).startswith("experiment.")
    }
    if not blamed:
        return error
    named = ", ".join(f"{key}={json.dumps(value)}" for key, value in blamed.items())
    key = next(iter(blamed)) if len(blamed) == 1 else None
    return RefusedKeyError(key, f"{error} (with {named})", hint=error.hint)


def _check_twins(shapes: Sequence[_Shape], findings: _Findings) -> None:
    """Find runs that train the same thing: they differ only in keys that their algorithm never reads."""
    for shape in shapes:
        keys = _unread(shape)
        if not keys:
            continue
        seen: dict[str, Run] = {}
        for run in shape.runs:
            rest = {key: value for key, value in run.overrides.items() if key not in keys}
            same = json.dumps([rest, run.seed, run.threads, run.target], sort_keys=True)
            twin = seen.setdefault(same, run)
            if twin is not run:
                key = next(key for key in keys if twin.overrides[key] != run.overrides[key])
                algorithm = shape.outline.choices["algorithm"]
                findings.add(run, rules.twin_error(key, algorithm))


def _check_idle(shapes: Sequence[_Shape], findings: _Findings) -> None:
    """Find keys that no run reads, such as the frames of an iteration for mappo in a grid of iql."""
    unread = {shape.runs[0].run_id: _unread(shape) for shape in shapes}
    read = {
        key for shape in shapes for key in shape.runs[0].overrides if key not in unread[shape.runs[0].run_id]
    }
    algorithms = sorted({shape.outline.choices["algorithm"] for shape in shapes})
    for run in (shape.runs[0] for shape in shapes):
        names = {bare_key(key) for key in run.overrides}
        for key in unread[run.run_id]:
            meant = rules.for_the_other_kind(bare_key(key))
            if meant is not None and meant not in names and key not in read:
                findings.add(run, rules.idle_error(key, meant, algorithms), whole=True)


def _unread(shape: _Shape) -> list[str]:
    """Return the keys that the shape's algorithm never reads.

    It reads a key named by a reference such as ``${experiment.on_policy_n_envs_per_worker}``.
    """
    idle = rules.never_read(shape.outline.on_policy)
    unread = [key for key in shape.runs[0].overrides if bare_key(key).startswith(idle)]
    read = {key: value for key, value in shape.runs[0].overrides.items() if key not in unread}
    return [key for key in unread if f"${{{bare_key(key)}}}" not in json.dumps(read)]

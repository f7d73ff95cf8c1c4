"""Check BenchMARL runs thoroughly, in seconds for any number of runs.

Composing a configuration takes a tenth of a second and building an experiment longer, so neither is done per
run: each structure is composed once, each distinct value is checked once, and so is each distinct combination
of the values that must fit each other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig

from jobs.check import Problem, available_mb, report_checked
from jobs.hydra.checking import Findings, Shape, check_values, structures
from jobs.trainers.amounts import Amounts, excessive_amounts, misplaced_forks
from jobs.trainers.benchmarl.configuration import rules
from jobs.trainers.benchmarl.configuration.building import require_possible, try_build
from jobs.trainers.benchmarl.configuration.config import Composed, Outline, compose, compose_config, outline
from jobs.trainers.benchmarl.configuration.lone_files import lone_file
from jobs.trainers.benchmarl.configuration.spelling import VOCABULARY, config_folders
from jobs.training.config_errors import RefusedKeyError, bare_key
from jobs.training.context import BadConfigError
from orchestrator.core.types import Run, Value

# Every distinct set of choices is built once, further values of model, task and algorithm within this time.
_BUILD_SECONDS = 15.0


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return one problem per fault, each with the first run that has it."""
    findings = Findings()
    found = (_outlined(shape, findings) for shape in check_values(_Configuration(), runs, findings))
    shapes = [shape for shape in found if shape is not None]
    amounts = [one for shape in shapes for one in _check_combinations(shape, findings)]
    _check_builds(shapes, findings)
    _check_twins(shapes, findings)
    if len(shapes) == len(structures(runs)):
        _check_idle(shapes, findings)
    warnings = (*_ignored_files(runs), *excessive_amounts(amounts, available_mb()))
    return [*findings.problems, *misplaced_forks(runs, amounts), *warnings]


def _ignored_files(runs: Sequence[Run]) -> Iterator[Problem]:
    """Warn of files here that have the name of a choice and are not those that it is composed of."""
    seen = set[tuple[str, str]]()
    for run in runs:
        for key, option in VOCABULARY.choices(run.overrides).items():
            group = VOCABULARY.group_of(key) or key
            if not isinstance(option, str) or (group, option) in seen:
                continue
            seen.add((group, option))
            path = lone_file(group, option)
            if path is not None and not any(path.resolve().is_relative_to(one) for one in config_folders()):
                message = f"{path} is not read: {key}: {option} has the values of the installed file"
                yield Problem(run.run_id, key, message, "write its values as keys of the grid", blocks=False)


class _Configuration:
    """BenchMARL's configuration, as a check of single values needs it."""

    vocabulary = VOCABULARY

    def base(self, run: Run) -> DictConfig:
        cfg = compose_config(replace(run, overrides=VOCABULARY.choices(run.overrides)))
        require_possible(outline(cfg))
        return cfg

    def whole(self, run: Run) -> DictConfig:
        return compose_config(run)

    def check_value(self, key: str, value: Any, usual: Any) -> None:  # noqa: ARG002 (its field has a type)
        rules.check_value(key, value)


@dataclass(frozen=True)
class _Shape(Shape):
    """The runs of one structure; ``outline``: of the first good run, its whole configuration if there is one.

    Of other runs only the parts of :class:`Outline` that are no values are the same.
    """

    outline: Outline

    def experiment_values(self, run: Run, names: Iterable[str]) -> dict[str, Value]:
        """Return the fields of BenchMARL's ExperimentConfig among ``names`` that the run sets."""
        set_here = {bare_key(key): (key, value) for key, value in run.overrides.items()}
        found = {}
        for name in names:
            if f"experiment.{name}" in set_here:
                key, value = set_here[f"experiment.{name}"]
                found[name] = self.values[key, json.dumps(value)]
        return found


def _outlined(shape: Shape, findings: Findings) -> _Shape | None:
    """Compose the first good run, or else the choices alone; ``None`` if that fails."""
    try:
        whole = compose(shape.good[0]) if shape.good else outline(shape.base)
    except BadConfigError as error:
        findings.add(shape.good[0], error)
        return None
    return _Shape(**vars(shape), outline=whole)


def _check_combinations(shape: _Shape, findings: Findings) -> Iterator[tuple[Run, Amounts]]:
    """Check each distinct combination of the values that are right together; yield the amounts of these."""
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
            yield run, rules.amounts_of(config, shape.outline.on_policy)
        except BadConfigError as error:
            findings.add(run, error)


def _check_builds(shapes: Sequence[_Shape], findings: Findings) -> None:
    """Build each distinct set of choices, and further values of task, model, algorithm while time allows."""
    deadline = time.monotonic() + _BUILD_SECONDS
    built: set[tuple[str, str]] = set()
    for done, shape in enumerate(shapes):
        report_checked(done, len(shapes))
        for number, run in enumerate(shape.good):
            parts = _built_parts(shape, run)
            first = number == 0 and not parts <= built
            if first or (not parts <= built and time.monotonic() < deadline):
                built |= parts
                _try_run(run, shape.outline if number == 0 else None, findings)


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


def _try_run(run: Run, known: Outline | None, findings: Findings) -> None:
    try:
        composed = known if isinstance(known, Composed) else compose(run)
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


def _check_twins(shapes: Sequence[_Shape], findings: Findings) -> None:
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


def _check_idle(shapes: Sequence[_Shape], findings: Findings) -> None:
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

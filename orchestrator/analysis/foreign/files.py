"""Read BenchMARL's files, each by itself. Unreadable files raise :class:`DamagedFileError`."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from orchestrator.analysis.foreign.find import readable
from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import Row

_T = TypeVar("_T")

# Far beyond any real file of its kind, in bytes.
_LARGEST_TEXT, _LARGEST_JSON = 2_000_000, 300_000_000
_DEEPEST = 20
_MOST_FRAMES = 2**53
_SECTIONS = ("experiment", "algorithm", "task", "model", "critic_model")
_FRAMES, _SECONDS = "counters_total_frames", "timers_total_time"
_CLASS = re.compile(r"<class '([\w.]+)'>")
_TORCH = re.compile(r"torch\.nn\.modules\.\w+\.(\w+)")
_GROUP = re.compile(r"(?:eval|collection)_(.+)_reward_episode_reward_mean")


@dataclass(frozen=True)
class Identity:
    """Task, algorithm and seed of an experiment. ``task`` is spelled as in a grid."""

    task: str
    algorithm: str
    seed: int


@dataclass(frozen=True)
class ConfigRecord:
    """A record of a configuration: the identity, where known, and flat keys to values."""

    identity: Identity | None
    config: Mapping[str, Any]


# The CSV logger


def read_scalars(folder: Path, problem: Callable[[str], None]) -> list[Row]:
    """Read the history from the logger's folder of scalars; a damaged file is reported and left out.

    A restored experiment goes on in the same files: rows logged after its checkpoint are cut.
    """
    paths = {readable(path.stem): path for path in sorted(folder.glob("*.csv"))}
    if _FRAMES not in paths:
        raise DamagedFileError(folder / f"{_FRAMES}.csv", "is missing: the frames of the values are unknown")
    frames = _scalar(paths[_FRAMES])
    if not all(0 <= value < _MOST_FRAMES for value in frames.values()):
        raise DamagedFileError(paths[_FRAMES], "holds an invalid number of frames")
    names = _metric_names(paths)
    series: dict[str, dict[int, float]] = {}
    for stem, path in paths.items():
        try:
            series[names[stem]] = _scalar(path)
        except DamagedFileError as error:
            problem(str(error))
    seconds = {
        step: value for step, value in series.get(names.get(_SECONDS, ""), {}).items() if math.isfinite(value)
    }
    return [
        Row(
            step,
            int(value),
            seconds.get(step, math.nan),
            {name: values[step] for name, values in series.items() if step in values},
        )
        for step, value in frames.items()
    ]


def _scalar(path: Path) -> dict[int, float]:
    """Step → value, in the order of steps."""
    lines = _text(path).split("\n")
    scalars: dict[int, float] = {}
    for number, line in enumerate(lines, start=1):
        try:
            first, value = line.split(",")
            step, parsed = _number(first), float(value)
        except ValueError as error:
            if number == len(lines):  # empty after the final newline, or cut by a kill
                break
            raise DamagedFileError(path, f"line {number} is not a step and a value") from error
        while scalars and next(reversed(scalars)) >= step:
            scalars.popitem()
        scalars[step] = parsed
    return scalars


def _metric_names(stems: Iterable[str]) -> dict[str, str]:
    """Map file names to metrics: BenchMARL writes "_" for each "/" of a metric's name."""
    stems = list(stems)
    groups = {match[1] for stem in stems if (match := _GROUP.fullmatch(stem))}
    longest_first = sorted(groups, key=lambda group: (-len(group), group))
    return {stem: _metric(stem, longest_first) for stem in stems}


def _metric(stem: str, groups: Iterable[str]) -> str:
    kind, _, rest = stem.partition("_")
    if kind not in ("eval", "collection", "train", "timers", "counters") or not rest:
        return stem
    group = next((group for group in groups if rest.startswith(f"{group}_")), None)
    if group is not None:
        kind, rest = f"{kind}/{group}", rest[len(group) + 1 :]
    if kind.startswith(("eval", "collection")):
        for part in ("reward", "info"):
            if rest.startswith(f"{part}_"):
                return f"{kind}/{part}/{rest[len(part) + 1 :]}"
    return f"{kind}/{rest}"


def read_hparams(folder: Path) -> ConfigRecord | None:
    """Read the logger's note of the configuration, ``None`` if there is none."""
    path = folder / "hparams0.txt"
    if not path.is_file():
        return None
    noted: dict[str, Any] = {}
    for line in _text(path).split("\n"):
        key, colon, value = line.partition(": ")
        if colon and key.isidentifier():
            noted[key] = literal(value)
    sections = {name: noted.get(f"{name}_config") for name in _SECTIONS}
    named = ("environment_name", "task_name", "algorithm_name", "seed")
    config = _flat(sections)
    if isinstance(model := noted.get("model_name"), str):
        config["model"] = model if model == "sequencemodel" else f"layers/{model}"
    return ConfigRecord(_identity(*map(noted.get, named)), config)


def literal(text: str) -> Any:
    """Parse a Python value as ``repr`` wrote it; anything else stays text."""
    try:
        return ast.literal_eval(_CLASS.sub(r"'\1'", text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


# The file for marl-eval


def read_json_history(path: Path) -> tuple[Identity, list[Row]]:
    """Read the evaluations, in the order of their frames, with returns under the names of our metrics."""
    try:
        (environment, tasks), *more = _read(path, _LARGEST_JSON, json.loads).items()
        (task, algorithms), *more_tasks = tasks.items()
        (algorithm, seeds), *more_algorithms = algorithms.items()
        (seed, run), *more_seeds = seeds.items()
        if more or more_tasks or more_algorithms or more_seeds:
            raise ValueError("it holds several runs")
        identity = _identity(environment, task, algorithm, int(seed.removeprefix("seed_")))
        steps = [step for name, step in run.items() if "absolute" not in name]
        steps.sort(key=lambda step: _number(step["step_count"]))
        rows = [
            Row(number, _number(step["step_count"]), math.nan, dict(_returns(step)))
            for number, step in enumerate(steps)
        ]
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise DamagedFileError(path, f"is not BenchMARL's file for marl-eval ({error})") from error
    if identity is None:
        raise DamagedFileError(path, "does not name task, algorithm and seed")
    return identity, rows


def _returns(step: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, values in step.items():
        if not name.endswith("return") or not values:
            continue
        group = readable(name).removesuffix("return").removesuffix("_")
        metric = f"eval/{group}/reward/episode_reward" if group else "eval/reward/episode_reward"
        numbers = [float(value) for value in values]
        for kind, of in (("min", min), ("mean", fmean), ("max", max)):
            yield f"{metric}_{kind}", of(numbers)


# Hydra


def read_hydra(folder: Path) -> ConfigRecord | None:
    """Read Hydra's note of the configuration, ``None`` if it is not of BenchMARL's own program."""
    if not (folder / "config.yaml").is_file():
        return None
    composed = _yaml(folder / "config.yaml")
    if not isinstance(composed, dict) or not isinstance(composed.get("experiment"), dict):
        return None
    config = _flat({name: composed.get(name) for name in _SECTIONS})
    choices = _choices(folder / "hydra.yaml")
    for name in ("model", "experiment"):
        if isinstance(chosen := choices.get(name), str):
            config[name] = chosen
    # Without a preset, Hydra notes the base.
    if config.get("experiment") == "base_experiment":
        del config["experiment"]
    environment, _, task = str(choices.get("task") or "").partition("/")
    return ConfigRecord(_identity(environment, task, choices.get("algorithm"), composed.get("seed")), config)


def _choices(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    value = _yaml(path)
    for name in ("hydra", "runtime", "choices"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _yaml(path: Path) -> Any:
    import yaml

    def load(text: str) -> Any:
        # An alias may make a small file large; Hydra writes none.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("it has aliases")
        return yaml.safe_load(text)

    try:
        return _read(path, _LARGEST_TEXT, load)
    except yaml.YAMLError as error:
        raise DamagedFileError(path, f"is not YAML ({' '.join(str(error).split())})") from error


# Parts


def _number(value: Any) -> int:
    """Parse a number of frames or of an iteration; raises ``ValueError`` if it is out of range."""
    number = int(value)
    if not 0 <= number < _MOST_FRAMES:
        raise ValueError("a number of frames is too much" if number > 0 else f"{number} is below zero")
    return number


def _identity(environment: Any, task: Any, algorithm: Any, seed: Any) -> Identity | None:
    if not all(isinstance(part, str) and part for part in (environment, task, algorithm)):
        return None
    if type(seed) is not int or abs(seed) >= 2**63:
        return None
    return Identity(readable(f"{environment}/{task}"), readable(algorithm), seed)


def _flat(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``experiment.lr`` → value: one level, as most keys of a grid."""
    return {
        readable(f"{section}.{key}"): json_value(value)
        for section, values in sections.items()
        if isinstance(values, dict)
        for key, value in values.items()
        if isinstance(key, str) and not key.startswith("_") and key != "name"
    }


def json_value(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON; anything else as text, a class of torch by its name in grids."""
    if isinstance(value, str):
        return readable(_TORCH.sub(r"torch.nn.\1", value))
    if value is None or isinstance(value, bool | float) or (type(value) is int and abs(value) < 2**63):
        return value
    if depth < _DEEPEST and isinstance(value, dict):
        return {readable(str(key)): json_value(item, depth + 1) for key, item in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [json_value(item, depth + 1) for item in value]
    return type(value).__name__ if isinstance(value, dict | list | tuple | int) else readable(str(value))


def _text(path: Path) -> str:
    return _read(path, _LARGEST_TEXT * 50, str)


def _read(path: Path, most: int, parse: Callable[[str], _T]) -> _T:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise DamagedFileError(path, "is not a file")
        if path.stat().st_size > most:
            raise DamagedFileError(path, f"is larger than {most // 1_000_000} MB")
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DamagedFileError(path, f"cannot be read ({error.strerror or error})") from error
    except RecursionError as error:
        raise DamagedFileError(path, "is nested too deeply") from error
    except ValueError as error:
        raise DamagedFileError(path, f"cannot be read ({error})") from error

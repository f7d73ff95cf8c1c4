"""Turn a folder of runs trained without this program into readings, with the keys in which they differ."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.analysis.foreign.event_runs import read_event_runs, with_keys
from orchestrator.analysis.foreign.files import (
    ConfigRecord,
    Identity,
    read_hparams,
    read_hydra,
    read_json_history,
    read_scalars,
)
from orchestrator.analysis.foreign.find import FoundExperiment, find_experiments, readable
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.run_table import RunReading
from orchestrator.config.returns import return_figures
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.errors import DamagedFileError, NotFoundError, OrchestrateError
from orchestrator.core.records import plain
from orchestrator.core.types import RunState
from orchestrator.planning.throughput.measure import throughput
from orchestrator.rundir import IndexRow, Row, sweeps

_T = TypeVar("_T")

_EXPECTED = (
    "expected folders such as mappo_navigation_mlp__0a1b2c3d_26_01_31-12_00_00/ with what BenchMARL's "
    "csv logger or create_json wrote, or folders with event files of TensorBoard"
)
_ON_POLICY = ("mappo", "ippo")
_OFF_POLICY = ("iql", "vdn", "qmix", "maddpg", "iddpg", "masac", "isac")


@dataclass(frozen=True, eq=False)
class Experiment:
    """One run. ``config`` is empty where unknown; ``logged``: its history is the CSV logger's.

    ``within`` is the folder above its own, relative to the folder that was asked for.
    """

    found: FoundExperiment
    within: str
    identity: Identity
    config: Mapping[str, Any]
    history: Sequence[Row]
    logged: bool

    @property
    def deciding(self) -> dict[str, Any]:
        """The known keys of its configuration that decide its result."""
        other = {"on": "off", "off": "on"}.get(self.policy or "")
        return {
            key: value
            for key, value in self.config.items()
            if BENCHMARL.decides(key)
            and BENCHMARL.owned_because(key) is None
            and not key.startswith(f"experiment.{other}_policy_")
        }

    @property
    def policy(self) -> str | None:
        """Kind of policy that its algorithm learns from, "on" or "off"; ``None`` for an unknown algorithm."""
        if self.identity.algorithm in _ON_POLICY:
            return "on"
        return "off" if self.identity.algorithm in _OFF_POLICY else None

    @property
    def frames(self) -> int:
        """Number of frames trained."""
        return self.history[-1].frames

    def state(self) -> tuple[RunState, str]:
        """Return done, unless its log reaches none of the bounds that its configuration sets."""
        bounds = self._bounds() if self.logged else []
        if not bounds or any(reached >= wanted for reached, wanted, _ in bounds):
            return RunState.DONE, ""
        reached, wanted, word = max(bounds, key=lambda bound: bound[0] / bound[1])
        return RunState.INTERRUPTED, f"stopped early, or still trains: {reached:,} of {wanted:,} {word}"

    def _bounds(self) -> list[tuple[int, float, str]]:
        """Return reached, wanted and unit. BenchMARL ends at the first; its default is 3,000,000 frames."""
        frames, iterations = self._positive("max_n_frames"), self._positive("max_n_iters")
        bounds = [(self.frames, frames, "frames"), (len(self.history), iterations, "iterations")]
        batch = self._positive(f"{self.policy}_policy_collected_frames_per_batch")
        if iterations and batch:
            # BenchMARL counts frames: with batches larger than asked for it skips the last iterations.
            bounds.append((self.frames, iterations * batch, "frames"))
        return [(reached, wanted, word) for reached, wanted, word in bounds if wanted]

    def _positive(self, key: str) -> float:
        """Return a number of its configuration, 0 if it sets no bound."""
        value = self.config.get(f"experiment.{key}")
        return value if isinstance(value, int | float) and value > 0 else 0


@dataclass(frozen=True, eq=False)
class Outputs:
    """Runs of a folder, as of one trainer. ``name`` replaces a sweep's; ``notes`` name runs not counted.

    ``readings`` returns one reading per run; values of the given keys, of the grids beside it, are included.
    """

    name: str
    trainer: str
    readings: Callable[[Collection[str]], list[RunReading]]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def read_outputs(spelled: str, taken: Collection[str] = ()) -> Outputs:
    """Read the runs in the folder ``spelled``, or ``NAME=FOLDER``; avoid the names ``taken``.

    Raises :class:`NotFoundError` where there is none. Damaged runs are named and skipped.
    """
    name, folder = _named(spelled, taken)
    problems: list[str] = []

    def problem(text: str) -> None:
        problems.append(readable(text))

    def unreadable(error: OSError) -> None:
        problem(f"{error.filename}: cannot be read ({error.strerror})")

    if places := find_experiments(folder, unreadable):
        read = [_read(each, folder.resolve(), problem) for each in places]
        experiments, notes = _without_duplicates(one for one in read if one is not None)
        trainer, readings = BENCHMARL.name, partial(_readings, name, experiments)
    else:
        runs, notes = read_event_runs(name, folder.resolve(), problem)
        if not runs:
            raise _no_results_error(folder, problems)
        trainer, readings = COMMAND.name, partial(with_keys, runs)
    return Outputs(name, trainer, readings, tuple(f"{name}: {text}" for text in problems), tuple(notes))


def _readings(name: str, experiments: Sequence[Experiment], keys: Collection[str]) -> list[RunReading]:
    return [
        RunReading(
            name,
            IndexRow(experiment.found.run_id, True, point),
            *experiment.state(),
            facts=_facts(experiment),
            history=experiment.history,
            foreign=True,
        )
        for experiment, point in zip(experiments, _points(experiments, keys), strict=True)
    ]


def _named(spelled: str, taken: Collection[str]) -> tuple[str, Path]:
    chosen, equals, rest = spelled.partition("=")
    path = Path(spelled).expanduser()
    if equals and chosen and not path.exists():
        name = readable(chosen)
        if name in taken:
            raise OrchestrateError(f"--with {readable(spelled)}: there is a sweep named {name} already")
        path = Path(rest).expanduser()
        return name, _folder(path)
    name = wanted = readable(_folder(path).resolve().name) or "root"
    number = 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name, path


def _folder(path: Path) -> Path:
    if path.is_dir():
        return path
    fault = "is a file" if path.exists() else "does not exist"
    raise NotFoundError(
        f"{readable(path)} {fault}: expected a folder with runs of BenchMARL or TensorBoard in it"
    )


def _no_results_error(folder: Path, problems: Sequence[str]) -> NotFoundError:
    folder = folder.resolve()
    hint = "--with FOLDER reads results of BenchMARL and TensorBoard, trained without this program"
    if sweeps(folder):
        hint = f"these are sweeps of this program: orchestrate collect --results {readable(folder)}"
    elif folder in [sweep.path for sweep in sweeps(folder.parent)]:
        command = f"orchestrate collect {folder.name} --results {folder.parent}"
        hint = f"this is a sweep of this program: {readable(command)}"
    unread = f" ({'; '.join(problems)})" if problems else ""
    return NotFoundError(
        f"no results of BenchMARL or TensorBoard in {readable(folder)}/{unread}: {_EXPECTED}", hint=hint
    )


# Reading one


def _read(source: FoundExperiment, root: Path, problem: Callable[[str], None]) -> Experiment | None:
    def guarded(read: Callable[[Path], _T | None], path: Path | None) -> _T | None:
        try:
            return None if path is None else read(path)
        except DamagedFileError as error:
            problem(str(error))
        return None

    noted, composed = guarded(read_hparams, source.texts), guarded(read_hydra, source.hydra)
    rows = guarded(partial(read_scalars, problem=problem), source.scalars)
    identity = noted.identity if noted else None
    logged = bool(rows)
    if not rows or identity is None:
        told = guarded(read_json_history, source.json)
        identity, rows = (identity or told[0], rows or told[1]) if told else (identity, rows)
    identity = identity or (composed.identity if composed else None)
    if identity is None or not rows:
        lacks = "no task, algorithm and seed" if rows else "no values"
        problem(f"{source.place}: {source.name} is left out: it has {lacks}")
        return None
    above = source.place.parent if readable(source.place.name) == source.name else source.place
    within = above.relative_to(root).as_posix() if above.is_relative_to(root) else "."
    return Experiment(source, readable(within), identity, _config(noted, composed, identity), rows, logged)


def _config(
    noted: ConfigRecord | None, composed: ConfigRecord | None, identity: Identity
) -> Mapping[str, Any]:
    if noted is not None and noted.config:
        return noted.config
    # Hydra's record counts only if it names this experiment.
    return composed.config if composed is not None and composed.identity == identity else {}


# Duplicates


def _without_duplicates(experiments: Iterable[Experiment]) -> tuple[list[Experiment], list[str]]:
    """Count copies of one experiment, and repetitions of one configuration with one seed, once."""
    notes = []
    by_name = gathered((experiment.found.run_id, experiment) for experiment in experiments)
    longest = [max(copies, key=lambda copy: (copy.frames, copy.logged)) for copies in by_name.values()]
    by_point = gathered((_fingerprint(experiment), experiment) for experiment in longest)
    kept = set()
    for alike in by_point.values():
        best = max(alike, key=lambda one: (one.state()[0] is RunState.DONE, one.frames, one.found.when))
        kept.add(best)
        if len(alike) > 1:
            others = ", ".join(experiment.found.name for experiment in alike if experiment is not best)
            notes.append(f"counted once: {best.found.name} repeats {others}, with the same seed")
    return [experiment for alike in by_point.values() for experiment in alike if experiment in kept], notes


def _fingerprint(experiment: Experiment) -> str:
    identity = experiment.identity
    # Without a configuration, only the folder can distinguish it.
    config: Any = experiment.deciding or experiment.within
    return _comparable([identity.task, identity.algorithm, identity.seed, config])


# Keys that differ


def _points(experiments: Sequence[Experiment], keys: Collection[str]) -> list[dict[str, Any]]:
    varying = _varying(experiments)
    points = [
        {
            "algorithm": experiment.identity.algorithm,
            "task": experiment.identity.task,
            **{key: value for key, value in experiment.deciding.items() if key in varying},
            **{key: value for key, value in experiment.config.items() if key in keys},
            "seed": experiment.identity.seed,
        }
        for experiment in experiments
    ]
    if len({_comparable(point) for point in points}) < len(points):
        return [{"folder": one.within, **point} for one, point in zip(experiments, points, strict=True)]
    return points


def _varying(experiments: Sequence[Experiment]) -> set[str]:
    """Return the known keys in which experiments of one algorithm on one task differ."""
    configs = [(experiment.identity, experiment.deciding) for experiment in experiments if experiment.config]
    every = {key for _, config in configs for key in config}
    values = gathered(
        ((identity.task, identity.algorithm, key), _comparable(config[key]) if key in config else "")
        for identity, config in configs
        for key in every
    )
    return {key for (_, _, key), several in values.items() if len(set(several)) > 1}


def _comparable(value: Any) -> str:
    """Return text that is the same for 5 and 5.0, which Hydra and Python spell differently."""

    def even(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: even(part) for key, part in item.items()}
        if isinstance(item, list):
            return [even(part) for part in item]
        return float(item) if type(item) is int else item

    return json.dumps(even(value), sort_keys=True)


# Columns of the table of runs


def _facts(experiment: Experiment) -> dict[str, Any]:
    rows = experiment.history
    wall_time = rows[-1].wall_time
    timed = math.isfinite(wall_time) and wall_time > 0
    return {
        "device": _device(experiment.config),
        "environments": _environments(experiment),
        "frames": experiment.frames,
        "iterations": len(rows) if experiment.logged else None,
        "wall_time": wall_time if timed else None,
        "train_time": wall_time if timed else None,
        **plain(throughput([rows])),
        **return_figures(rows, BENCHMARL.returns),
        "evaluation_episodes": _evaluation_episodes(experiment.config),
    }


def _device(config: Mapping[str, Any]) -> str | None:
    devices = (config.get(f"experiment.{kind}_device") for kind in ("sampling", "train"))
    return ", ".join(dict.fromkeys(str(device) for device in devices if device)) or None


def _environments(experiment: Experiment) -> int | None:
    number = experiment.config.get(f"experiment.{experiment.policy}_policy_n_envs_per_worker")
    return number if type(number) is int else None


def _evaluation_episodes(config: Mapping[str, Any]) -> int | None:
    number = config.get("experiment.evaluation_episodes")
    return number if type(number) is int else None

"""Types of the speed table: kinds of runs, places, speeds. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.core.types import Run

# Words in names of processors and GPUs that do not affect speed.
_MAKERS = frozenset({"nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "instinct", "intel", "cpu"})


@dataclass(frozen=True)
class RunKind:
    """The properties of a run that decide its speed.

    ``settings``: the other overrides as JSON text, without those that decide nothing or only set the length.
    """

    trainer: str
    task: str
    algorithm: str
    settings: str
    threads: int = 1


@dataclass(frozen=True)
class TrainingPlace:
    """Where a run is trained: processor and GPU models, target name, and runs sharing the machine. ``None``:
    unknown; a run without a GPU has an empty ``gpu``. ``machine``: as requested from a cloud, whether spot or
    not.
    """

    target: str | None = None
    cpu: str | None = None
    gpu: str | None = ""
    at_once: int = 1
    machine: str | None = None


@dataclass(frozen=True)
class Speed:
    """Measured or reported speed of runs of a kind at a place.

    ``end_to_end_fps``: end-to-end throughput (:mod:`orchestrator.planning.throughput.measure`), the basis of
    predictions; ``low`` and ``high``: its spread. ``start``: further seconds of a run, such as its start-up.
    ``frames``: length of the runs. ``runs``: how many were measured. ``source``: the origin of a reported
    speed, empty for measured ones; with it ``kind.task`` may be a shell-style pattern. ``wall_per_training``:
    seconds of wall time per second of collecting and learning.
    """

    kind: RunKind
    place: TrainingPlace
    end_to_end_fps: float
    low: float
    high: float
    start: float | None = None
    frames: int | None = None
    runs: int = 1
    source: str = ""
    wall_per_training: float | None = None


class DiskUse(NamedTuple):
    """Bytes of finished runs' files; ``state``: of these, what longer runs need to go on."""

    whole: int
    state: int


def kind_of(run: Run) -> RunKind:
    """Return the kind of a planned run. Without the key ``algorithm`` the trainer's name takes its place."""
    spec = get_trainer(run.trainer)
    apart = ("task", "algorithm", *_length_keys(spec, run))
    every = {**run.overrides, **run.start}  # as in an index
    settings = {key: value for key, value in every.items() if key not in apart and spec.decides(key)}
    return RunKind(
        run.trainer,
        str(run.overrides.get("task", "")),
        str(run.overrides.get("algorithm", run.trainer)),
        json.dumps(settings, sort_keys=True, default=str),
        run.threads,
    )


def length_of(run: Run) -> str:
    """Return the planned length of a run as JSON text with the grid's keys: frames, iterations or minutes."""
    keys = _length_keys(get_trainer(run.trainer), run)
    said = {key: run.overrides[key] for key in keys if key in run.overrides}
    return json.dumps(said, sort_keys=True, default=str)


def _length_keys(spec: TrainerSpec, run: Run) -> tuple[str, ...]:
    """Return the keys that set the length of a run and do not affect its speed."""
    return (*spec.frames, *spec.iterations, spec.minutes_key(run))


def same_model(one: str, other: str) -> bool:
    """Return whether two names mean the same processor or GPU: ``L4``, ``l4:1`` and ``NVIDIA L4`` do,
    ``L40S`` is another.
    """
    first, second = _model_words(one), _model_words(other)
    if not first or not second:
        return False
    return first <= second or second <= first or _joined(one) == _joined(other)


def _model_words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower().partition(":")[0])) - _MAKERS


def _joined(name: str) -> str:
    return "".join(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _MAKERS)

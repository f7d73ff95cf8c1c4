"""The table's words: what decides how fast a run is, and how fast it was. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.core.types import Run

# What stands in names of processors and GPUs and tells nothing about their speed.
_MAKERS = frozenset({"nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "instinct", "intel", "cpu"})


@dataclass(frozen=True)
class RunKind:
    """What a run is, as far as that decides its speed.

    ``settings`` are the other overrides as JSON text, without those that decide nothing and those that say
    how long the run is.
    """

    trainer: str
    task: str
    algorithm: str
    settings: str
    threads: int = 1


@dataclass(frozen=True)
class TrainingPlace:
    """Where a run is trained: models of the processor and of the GPU that it uses, the target's name, and how
    many runs share the machine. ``None`` is not known; a run that uses no GPU has an empty ``gpu``.
    ``machine``: what a cloud is asked for, whether or not it may be taken away.
    """

    target: str | None = None
    cpu: str | None = None
    gpu: str | None = ""
    at_once: int = 1
    machine: str | None = None


@dataclass(frozen=True)
class Speed:
    """How fast runs of a kind were at a place.

    ``end_to_end_fps`` is the end-to-end throughput of :mod:`orchestrator.planning.throughput.measure`, as
    time and money are predicted with it; ``low`` and ``high`` what is known of its spread. ``start``: seconds
    of a run beside that, such as its start-up. ``frames``: how long the runs were. ``runs``: how
    many the entry rests on. ``source`` says who reported it, and is empty for what was measured here; then
    ``kind.task`` may be a shell-style pattern. ``wall_per_training``: seconds of wall time for a second of
    collecting and learning.
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


def kind_of(run: Run) -> RunKind:
    """The kind of a planned run. A run without the key ``algorithm`` has its trainer's name there."""
    spec = get_trainer(run.trainer)
    apart = ("task", "algorithm", *_length_keys(spec))
    settings = {key: value for key, value in run.overrides.items() if key not in apart and spec.decides(key)}
    return RunKind(
        run.trainer,
        str(run.overrides.get("task", "")),
        str(run.overrides.get("algorithm", run.trainer)),
        json.dumps(settings, sort_keys=True, default=str),
        run.threads,
    )


def length_of(run: Run) -> str:
    """How long the run is to be, in the grid's own words, as JSON text: frames, iterations or minutes."""
    keys = _length_keys(get_trainer(run.trainer))
    said = {key: run.overrides[key] for key in keys if key in run.overrides}
    return json.dumps(said, sort_keys=True, default=str)


def _length_keys(spec: TrainerSpec) -> tuple[str, ...]:
    """The keys that say how long a run is, and nothing about its speed."""
    return (*spec.frames, *spec.iterations, *((spec.minutes,) if spec.minutes else ()))


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same processor or GPU: ``L4``, ``l4:1`` and ``NVIDIA L4`` do, ``L40S`` is
    another.
    """
    first, second = _words(one), _words(other)
    if not first or not second:
        return False
    return first <= second or second <= first or _joined(one) == _joined(other)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower().partition(":")[0])) - _MAKERS


def _joined(name: str) -> str:
    return "".join(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _MAKERS)

"""The result of a finished run, as its last attempt published it: figures and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from orchestrator.core.records import parse
from orchestrator.core.types import Int64


class ManifestItem(msgspec.Struct, frozen=True):
    """A file of a result, by its path in the run's folder. ``required``: the result is void without it."""

    path: str
    sha256: str
    bytes: int
    required: bool


class Throughput(msgspec.Struct, frozen=True):
    """The figures of a run. ``steady_iterations``: number of iterations in the window. ``provisional``: the
    window has evaluations but no whole cycle of them.

    ``training_fps`` and ``end_to_end_fps`` are frames per second; the rest are means over the window, in
    seconds per iteration. ``None``: unknown, as the training throughput of a program that reports no timers.
    """

    training_fps: float | None = None
    end_to_end_fps: float | None = None
    steady_iterations: int = 0
    seconds_per_iteration: float | None = None
    collection_seconds: float | None = None
    learning_seconds: float | None = None
    provisional: bool = False


class HostFacts(msgspec.Struct, frozen=True):
    """The machine that ended the training."""

    cpu_model: str | None = None
    cpu_capability: str | None = None
    gpu_model: str | None = None


class Result(msgspec.Struct, frozen=True):
    """A result. Times are in seconds, ``started`` and ``ended`` since the epoch.

    ``final_state``: the files, by their paths in the run's folder, from which a longer run can go on.
    ``wall_time``: of training. ``seconds``: of the last attempt, by a clock that never jumps. ``fields``:
    everything in the file, as columns of tables show it.
    """

    run_id: str
    manifest: tuple[ManifestItem, ...]
    attempt: Int64 = 0
    attempts: Int64 = 0
    frames: Int64 | None = None
    wall_time: float | None = None
    final_return: float | None = None
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    speed: Throughput = Throughput()
    host: HostFacts = HostFacts()
    code_id: str | None = None
    code_ids: tuple[str, ...] = ()
    remark: str = ""
    exactness: str | None = None
    final_state: tuple[str, ...] = ()
    fields: Mapping[str, Any] = {}

    @property
    def is_repeatable(self) -> bool:
        """Whether another training, also one that is interrupted, has the same bits."""
        return self.exactness in ("exact", "reset")

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Read a result file's content. Raises ``TypeError`` and ``ValueError``."""
        return parse(cls, {**fields, "fields": fields})

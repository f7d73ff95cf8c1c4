"""Record a sweep's speeds: one row per finished run, taken from its result."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from typing import TypeVar

from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import DamagedFileError, OrchestrateError, StorageError
from orchestrator.core.formatting import printable
from orchestrator.core.machine.bulk_read import read_all
from orchestrator.core.types import Job, Run
from orchestrator.planning.throughput.model import DiskUse, RunKind, TrainingPlace, kind_of, length_of
from orchestrator.rundir import IndexRow, SweepDir
from orchestrator.rundir.files.atomic import dump_json, parse_json, write_atomic
from orchestrator.rundir.files.plain_files import read_plain
from orchestrator.rundir.records.journal import CLAIMED, STARTED, WorkerLog
from orchestrator.rundir.records.ledger_entries import jobs_of
from orchestrator.rundir.records.result import HostFacts

_Value = TypeVar("_Value")

_VERSION = 3
# The GPU of a run without a reported model.
_SOME_GPU = "a GPU"


@dataclass(frozen=True)
class MeasuredRun:
    """One finished run. ``changed``: modification time of its result (ns). ``length``: planned length, with
    the grid's keys. ``disk``: of its files. The rest: :class:`~orchestrator.planning.throughput.model.Speed`.
    """

    changed: int
    kind: RunKind
    place: TrainingPlace
    end_to_end_fps: float
    start: float | None
    frames: int
    wall_per_training: float | None
    length: str
    disk: DiskUse


@dataclass(frozen=True)
class StartupTime:
    """One job: its target, seconds from its worker's start to its first run, and seconds from its submission
    to its start.
    """

    target: str
    start: float
    waited: float


@dataclass(frozen=True)
class Record:
    """The measured speeds of a sweep: finished runs by id, jobs by token."""

    runs: Mapping[str, MeasuredRun]
    jobs: Mapping[str, StartupTime]


_EMPTY = Record({}, {})


def take_up(sweep_dir: SweepDir) -> Record:
    """Return the sweep's speeds, updated with newly finished runs; saved unless another process is saving.

    A lost or damaged file is rebuilt from the results. Runs that cannot be read are left out, and a failed
    write is ignored: predictions must never stop a command.
    """
    known = _read(sweep_dir)
    try:
        with sweep_dir.lock_if_free() as alone:
            record = _updated(sweep_dir, known)
            if alone and record != known:
                write_atomic(sweep_dir.speeds, _dumped(record))
    except (StorageError, FileNotFoundError):
        return _updated(sweep_dir, known)
    return record


def _updated(sweep_dir: SweepDir, known: Record) -> Record:
    try:
        rows = sweep_dir.read_index()
    except DamagedFileError:
        return known
    changed = {row.run_id: _result_time(sweep_dir, row.run_id) for row in rows}
    kept = {run_id: one for run_id, one in known.runs.items() if one.changed == changed.get(run_id)}
    new = [row for row in rows if changed[row.run_id] is not None and row.run_id not in kept]
    if not new:
        return Record(kept, known.jobs)
    logs, jobs = sweep_dir.read_journals(), _jobs(sweep_dir)
    tokens = {
        (event.run_id, event.attempt): log.token
        for log in logs
        for event in log.events
        if event.kind == CLAIMED
    }
    measure = partial(_measure, sweep_dir, _trainer(sweep_dir, new), tokens, jobs)
    found = zip(new, read_all(measure, new), strict=True)
    runs = {row.run_id: one for row, one in found if one is not None}
    return Record({**kept, **runs}, {**known.jobs, **dict(_startup_times(logs, jobs))})


def _result_time(sweep_dir: SweepDir, run_id: str) -> int | None:
    try:
        return os.stat(sweep_dir.run_to_read(run_id).result_path).st_mtime_ns
    except OSError:
        return None


@dataclass(frozen=True)
class _Submitted:
    """A job, when it was submitted, and the machine requested for it."""

    job: Job
    time: float
    machine: str | None


def _jobs(sweep_dir: SweepDir) -> dict[str, _Submitted]:
    """Return every submitted job, by token."""
    found = {}
    for entry, job in jobs_of(sweep_dir.read_ledger()):
        try:
            machine = printable(str(entry.cost.machine)) if entry.cost.machine else None
            found[job.token] = _Submitted(job, entry.time, machine)
        except (KeyError, TypeError, ValueError):
            continue  # written by another version: its runs count without their target
    return found


def _trainer(sweep_dir: SweepDir, rows: Iterable[IndexRow]) -> str | None:
    for row in rows:
        try:
            return sweep_dir.run_to_read(row.run_id).description().trainer
        except (OrchestrateError, OSError):
            continue
    return None


def _measure(
    sweep_dir: SweepDir,
    trainer: str | None,
    tokens: Mapping[tuple[str | None, int | None], str],
    jobs: Mapping[str, _Submitted],
    row: IndexRow,
) -> MeasuredRun | None:
    """Return the run's speed from its result; ``None`` if it has none."""
    try:
        changed = _result_time(sweep_dir, row.run_id)
        result = sweep_dir.run_to_read(row.run_id).result()
        if result is None or changed is None or trainer is None:
            return None
        job = jobs.get(tokens.get((row.run_id, result.attempt), ""))
        frames, training, start = result.frames or 0, result.speed.training_fps or 0.0, None
        # A run of one iteration has no steady window: all of it counts.
        fps = result.speed.end_to_end_fps or frames / (result.wall_time or 0.0)
        if result.attempts == 1 and result.started is not None:
            took = result.seconds
            took = (result.ended or 0.0) - result.started if took is None else took
            start = max(0.0, took - frames / fps)
        run = _run_of(trainer, row)
        place, share = _place(result.host, job), training / fps if training > 0 else None
        state = sum(item.bytes for item in result.manifest if item.path in result.final_state)
        disk = DiskUse(sum(item.bytes for item in result.manifest), state)
        length = length_of(run)
        return _checked(MeasuredRun(changed, kind_of(run), place, fps, start, frames, share, length, disk))
    except (OrchestrateError, OSError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _checked(one: MeasuredRun) -> MeasuredRun:
    """Return it unchanged. Raises ``ValueError`` for impossible values, as foreign results may hold."""
    sound = 0 < one.end_to_end_fps < math.inf and 0 < (one.wall_per_training or 1.0) < math.inf
    if not (sound and one.frames > 0 and 0 <= (one.start or 0.0) < math.inf):
        raise ValueError(f"no speed of a run: {one}")
    return one


def _run_of(trainer: str, row: IndexRow) -> Run:
    point = dict(row.point)
    seed, threads = point.pop("seed", 0), point.pop("threads", 1)
    target = point.pop("target", None)
    return Run(row.run_id, get_trainer(trainer).name, point, seed, threads, target)


def _place(host: HostFacts, submitted: _Submitted | None) -> TrainingPlace:
    cpu, gpu = printable(host.cpu_model or "") or None, printable(host.gpu_model or "")
    if submitted is None:
        return TrainingPlace(None, cpu, gpu)
    job = submitted.job
    gpu = gpu or (_SOME_GPU if job.resources.gpus else "")
    return TrainingPlace(job.target, cpu, gpu, min(job.slots, len(job.run_ids)), submitted.machine)


def _startup_times(
    logs: Iterable[WorkerLog], jobs: Mapping[str, _Submitted]
) -> Iterable[tuple[str, StartupTime]]:
    for log in logs:
        started = next((event.time for event in log.events if event.kind == STARTED), None)
        first = next((event.time for event in log.events if event.kind == CLAIMED), None)
        if log.token in jobs and started is not None and first is not None:
            one = jobs[log.token]
            yield (
                log.token,
                StartupTime(one.job.target, max(0.0, first - started), max(0.0, started - one.time)),
            )


# File format: kinds, places and lengths once each, and rows that refer to them by number.


def _dumped(record: Record) -> bytes:
    kinds = _numbered(one.kind for one in record.runs.values())
    places = _numbered(one.place for one in record.runs.values())
    lengths = _numbered(one.length for one in record.runs.values())
    runs = {
        run_id: {
            **vars(one),
            "kind": kinds[one.kind],
            "place": places[one.place],
            "length": lengths[one.length],
        }
        for run_id, one in record.runs.items()
    }
    return dump_json(
        {
            "version": _VERSION,
            "kinds": [astuple(kind) for kind in kinds],
            "places": [astuple(place) for place in places],
            "lengths": list(lengths),
            "runs": runs,
            "jobs": {token: astuple(one) for token, one in record.jobs.items()},
        }
    )


def _numbered(values: Iterable[_Value]) -> dict[_Value, int]:
    """Number different values by their first appearance."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def _read(sweep_dir: SweepDir) -> Record:
    """Read the file; empty if it is missing, damaged or of another version."""
    try:
        data = parse_json(read_plain(sweep_dir.speeds))
        if data["version"] != _VERSION:
            return _EMPTY
        kinds = [RunKind(*values) for values in data["kinds"]]
        places = [TrainingPlace(*values) for values in data["places"]]
        runs = {
            run_id: _checked(
                MeasuredRun(
                    int(row["changed"]),
                    kinds[row["kind"]],
                    places[row["place"]],
                    float(row["end_to_end_fps"]),
                    row["start"],
                    int(row["frames"]),
                    row["wall_per_training"],
                    str(data["lengths"][row["length"]]),
                    DiskUse(*row["disk"]),
                )
            )
            for run_id, row in data["runs"].items()
        }
        jobs = {token: StartupTime(*values) for token, values in data["jobs"].items()}
    except (DamagedFileError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return _EMPTY
    return Record(runs, jobs)

"""Keeping a sweep's speeds: one row for each finished run, taken from its result when it is new."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from orchestrator.errors import DamagedFileError, OrchestrateError, StorageError
from orchestrator.reading import no_garbage_collection, read_all
from orchestrator.rundir import IndexRow, SweepDir
from orchestrator.rundir.atomic import dump_json, parse_json, write_atomic
from orchestrator.rundir.journal import CLAIMED, STARTED, WorkerLog
from orchestrator.shown import plain
from orchestrator.speeds.model import Kind, Place, kind_of
from orchestrator.trainers import get_trainer
from orchestrator.types import Job, Run

_VERSION = 1
# The GPU of a run whose program did not say which it used.
_SOME_GPU = "a GPU"


@dataclass(frozen=True)
class Measured:
    """One finished run. ``changed`` tells its result from a later one's (nanoseconds)."""

    changed: int
    kind: Kind
    place: Place
    fps: float
    start: float | None
    frames: int


@dataclass(frozen=True)
class Begun:
    """One job: where, how long its worker took from its start to its first run, and from being submitted to
    its start; in seconds.
    """

    target: str
    start: float
    waited: float


@dataclass(frozen=True)
class Record:
    """What is known of a sweep's speeds: its finished runs by id, its jobs by token."""

    runs: Mapping[str, Measured]
    jobs: Mapping[str, Begun]


_EMPTY = Record({}, {})


def take_up(sweep_dir: SweepDir) -> Record:
    """The sweep's speeds, with what finished since they were kept last; kept, unless another does so now.

    Made anew from the results where the file is lost or damaged. What cannot be read or written is left out:
    the table is an aid and never a reason to stop.
    """
    known = _read(sweep_dir)
    try:
        with no_garbage_collection(), sweep_dir.lock_if_free() as alone:
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
    changed = {row.run_id: _changed(sweep_dir, row.run_id) for row in rows}
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
    return Record({**kept, **runs}, {**known.jobs, **dict(_begun(logs, jobs))})


def _changed(sweep_dir: SweepDir, run_id: str) -> int | None:
    try:
        return os.stat(sweep_dir.run(run_id).result_path).st_mtime_ns
    except OSError:
        return None


def _jobs(sweep_dir: SweepDir) -> dict[str, tuple[Job, float]]:
    """Every job that was submitted, with when, by token."""
    found = {}
    for entry in sweep_dir.read_ledger():
        for job in entry.data["jobs"] if entry.kind == "submission" else ():
            try:
                found[job["token"]] = (Job.from_json(job), float(entry.data["time"]))
            except (KeyError, TypeError, ValueError):
                continue  # another version's, or nobody's: its runs count without their target
    return found


def _trainer(sweep_dir: SweepDir, rows: Iterable[IndexRow]) -> str | None:
    for row in rows:
        try:
            return sweep_dir.run(row.run_id).description().trainer
        except (OrchestrateError, OSError):
            continue
    return None


def _measure(
    sweep_dir: SweepDir,
    trainer: str | None,
    tokens: Mapping[tuple[str | None, int | None], str],
    jobs: Mapping[str, tuple[Job, float]],
    row: IndexRow,
) -> Measured | None:
    """The run's speed by its result; ``None`` if that tells none."""
    try:
        changed = _changed(sweep_dir, row.run_id)
        result = sweep_dir.run(row.run_id).result()
        if result is None or changed is None or trainer is None:
            return None
        job, _ = jobs.get(tokens.get((row.run_id, result["attempt"]), ""), (None, 0.0))
        measured, frames = result["speed"], int(result["frames"])
        fps = measured.get("fps_lasting") or measured["fps_steady"] or measured["fps"]
        fps, start = float(fps or 0.0), None
        if result["attempts"] == 1 and result["started"] is not None:
            start = max(0.0, float(result["ended"]) - float(result["started"]) - frames / fps)
        kind = kind_of(_run_of(trainer, row))
        return _checked(Measured(changed, kind, _place(result["host"], job), fps, start, frames))
    except (OrchestrateError, OSError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _checked(one: Measured) -> Measured:
    """The same; raises ``ValueError`` for what no run does. Results can be those of another machine."""
    if not (0 < one.fps < math.inf and one.frames > 0 and 0 <= (one.start or 0.0) < math.inf):
        raise ValueError(f"no speed of a run: {one}")
    return one


def _run_of(trainer: str, row: IndexRow) -> Run:
    point = dict(row.point)
    seed, threads = point.pop("seed", 0), point.pop("threads", 1)
    target = point.pop("target", None)
    return Run(row.run_id, get_trainer(trainer).name, point, seed, threads, target)


def _place(host: Mapping[str, Any], job: Job | None) -> Place:
    cpu = plain(str(host["cpu_model"])) if host["cpu_model"] else None
    gpu = plain(str(host["gpu_model"])) if host["gpu_model"] else ""
    if job is None:
        return Place(None, cpu, gpu)
    gpu = gpu or (_SOME_GPU if job.resources.gpus else "")
    return Place(job.target, cpu, gpu, min(job.slots, len(job.run_ids)))


def _begun(logs: Iterable[WorkerLog], jobs: Mapping[str, tuple[Job, float]]) -> Iterable[tuple[str, Begun]]:
    for log in logs:
        started = next((event.time for event in log.events if event.kind == STARTED), None)
        first = next((event.time for event in log.events if event.kind == CLAIMED), None)
        if log.token in jobs and started is not None and first is not None:
            job, submitted = jobs[log.token]
            yield log.token, Begun(job.target, max(0.0, first - started), max(0.0, started - submitted))


# The file: kinds and places once each, and rows that name them by their number.


def _dumped(record: Record) -> bytes:
    kinds = {kind: number for number, kind in enumerate({one.kind: 0 for one in record.runs.values()})}
    places = {place: number for number, place in enumerate({one.place: 0 for one in record.runs.values()})}
    runs = {
        run_id: [one.changed, kinds[one.kind], places[one.place], one.fps, one.start, one.frames]
        for run_id, one in record.runs.items()
    }
    return dump_json(
        {
            "version": _VERSION,
            "kinds": [astuple(kind) for kind in kinds],
            "places": [astuple(place) for place in places],
            "runs": runs,
            "jobs": {token: astuple(one) for token, one in record.jobs.items()},
        }
    )


def _read(sweep_dir: SweepDir) -> Record:
    """The file; nothing if it is not there, not whole, or of another version."""
    try:
        data = parse_json(sweep_dir.speeds.read_bytes())
        if data["version"] != _VERSION:
            return _EMPTY
        kinds = [Kind(*values) for values in data["kinds"]]
        places = [Place(*values) for values in data["places"]]
        runs = {
            run_id: _checked(
                Measured(int(changed), kinds[kind], places[place], float(fps), start, int(frames))
            )
            for run_id, (changed, kind, place, fps, start, frames) in data["runs"].items()
        }
        jobs = {token: Begun(*values) for token, values in data["jobs"].items()}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return _EMPTY
    return Record(runs, jobs)

"""Finished results trees out of nothing: for tests and benchmarks of what comes after training.

Everything is a function of the arguments, so two trees of the same arguments hold the same bytes. The files
are written plainly, without the flushes of the real writers, so that 10,000 runs take seconds.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from orchestrator.config.trainers import get_trainer
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources, Run
from orchestrator.rundir import AttemptDir, Claim, Event, Holder, IndexRow, Row, RunDir, SweepDir
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, STARTED
from orchestrator.rundir.records.ledger_entries import parse_entry

EPOCH = 1_790_000_000.0
FRAMES_PER_ITERATION = 6_000
EVAL = "eval/reward/episode_reward_mean"
COLLECTION = "collection/reward/episode_reward_mean"
HOST = {
    "hostname": "node1",
    "cpu_model": "Example CPU 3000",
    "cpu_capability": "AVX2",
    "cores": 2,
    "gpu_model": None,
    "gpu_capability": None,
}
VERSIONS = {"benchmarl": "1.5.2", "torch": "2.13.0", "torchrl": "0.11.1", "vmas": "1.5.2"}


def matrix_runs(matrix: Mapping[str, Sequence[Any]], trainer: str = "benchmarl") -> list[Run]:
    """The product of ``matrix``'s lists as runs; the keys ``seed`` and ``threads`` as in a grid."""
    spec = get_trainer(trainer)
    runs = []
    for values in product(*matrix.values()):
        point = dict(zip(matrix, values, strict=True))
        seed, threads = point.pop("seed", 0), point.pop("threads", 1)
        runs.append(spec.identify(point, seed, threads))
    return runs


def create_sweep(results: Path, name: str, runs: Sequence[Run], grid_text: str | None = None) -> SweepDir:
    """A sweep's folder with its grid, its index and the description of every run, and nothing trained yet."""
    sweep = SweepDir(results, name)
    sweep.create()
    sweep.record_grid(grid_text or f"name: {name}\ntrainer: {runs[0].trainer if runs else 'benchmarl'}\n")
    sweep.write_index([IndexRow(run.run_id, True, run.point) for run in runs])
    for run in runs:
        folder = sweep.run(run.run_id)
        folder.attempt(1).path.parent.mkdir(parents=True)
        folder.description_path.write_text(json.dumps(plain(run)))
    return sweep


def training_rows(run: Run, iterations: int, *, evaluation: bool = True, extra: int = 6) -> list[Row]:
    """A learning curve with ``extra`` further metrics; the better, the later the algorithm's name sorts."""
    generator = random.Random(run.run_id)
    algorithm = str(run.overrides.get("algorithm", ""))
    speed = 1 + int(hashlib.sha256(algorithm.encode()).hexdigest()[:4], 16) / 65536
    rows, level = [], 4 * speed + generator.gauss(0, 0.4)
    for iteration in range(iterations):
        progress = (iteration + 1) / max(iterations, 8)
        value = level * (1 - math.exp(-3 * speed * progress)) - 2 + generator.gauss(0, 0.1)
        metrics = {
            COLLECTION: value if iteration % 3 else math.nan,
            "timers/collection_time": 1.2 + generator.random() / 10,
            "timers/training_time": 3.4 / speed + generator.random() / 10,
            "speed/end_to_end_fps": FRAMES_PER_ITERATION / (4.6 / speed),
            **{f"train/agents/loss_{number}": generator.gauss(0, 1) for number in range(extra)},
        }
        if evaluation and iteration % 2 == 0:
            metrics |= {EVAL: value + 0.1, "eval/reward/episode_len_mean": 100.0}
        frames = (iteration + 1) * FRAMES_PER_ITERATION
        rows.append(Row(iteration, frames, 4.6 * (iteration + 1), metrics))
    return rows


def write_attempt(
    attempt: AttemptDir, rows: Iterable[Row], resumed_from: Mapping[str, int] | None = None
) -> None:
    """An attempt with a claim and its metrics."""
    attempt.path.mkdir(parents=True, exist_ok=True)
    claim = Claim("0" * 16, Holder("node1", "another boot", "", 1, 0), EPOCH, "0001-0001")
    attempt.claim_path.write_text(json.dumps(plain(claim)))
    lines = [json.dumps({"resumed_from": resumed_from}).encode() + b"\n", *(row.to_line() for row in rows)]
    attempt.metrics.write_bytes(b"".join(lines))


def end_attempt(attempt: AttemptDir, outcome: str, reason: str | None = None, message: str = "") -> None:
    """The attempt's end record."""
    record = {"outcome": outcome, "reason": reason, "message": message, "frames": None, "checkpointed": None}
    attempt.end_path.write_text(json.dumps({**record, "time": EPOCH}))


def result_of(run: Run, rows: Sequence[Row], attempts: int = 1) -> dict[str, Any]:
    """A result as a worker publishes it, without its manifest."""
    finals = [row.metrics.get(EVAL, row.metrics.get(COLLECTION, math.nan)) for row in rows]
    finite = [value for value in finals if math.isfinite(value)]
    device = str(run.overrides.get("experiment.train_device", "cpu"))
    fps = (1300.0 if device == "cpu" else 9000.0) * (1 + int(run.run_id[:3], 16) / 40_000)
    seconds = FRAMES_PER_ITERATION / fps
    return {
        "run_id": run.run_id,
        "sweep": "",
        "attempt": attempts,
        "state": "done",
        "attempts": attempts,
        "frames": rows[-1].frames if rows else 0,
        "iterations": len(rows),
        "wall_time": rows[-1].wall_time if rows else 0.0,
        "started": EPOCH,
        "ended": EPOCH + 60,
        "exactness": "exact",
        "config": {"lr": 5e-5, "experiment": dict(run.overrides)},
        "config_hash": hashlib.sha256(json.dumps(run.overrides, sort_keys=True).encode()).hexdigest()[:16],
        "code_id": "c0de" * 4,
        "versions": VERSIONS,
        "host": HOST if device == "cpu" else {**HOST, "gpu_model": "Example GPU", "gpu_capability": "9.0"},
        "threads": run.threads,
        "peak_memory_mb": 612.5,
        "speed": {
            "training_fps": fps / 0.94,
            "end_to_end_fps": fps,
            "steady_iterations": max(0, len(rows) - 1),
            "seconds_per_iteration": seconds,
            "collection_seconds": 0.28 * seconds,
            "learning_seconds": 0.66 * seconds,
        },
        "final_return": finite[-1] if finite else math.nan,
        "best_return": max(finite, default=math.nan),
    }


def finish(folder: RunDir, run: Run, rows: Sequence[Row], *, checkpoint: str = "", **changes: Any) -> None:
    """One attempt that trained to the end, and its result; ``changes`` replace fields of the result.

    ``checkpoint``: the digest of a final checkpoint, without content; empty for none.
    """
    attempt = folder.attempt(1)
    write_attempt(attempt, rows)
    end_attempt(attempt, "done")
    required = [attempt.metrics]
    if checkpoint:
        attempt.checkpoints.mkdir()
        required.append(attempt.checkpoints / f"{rows[-1].frames:012d}-{checkpoint}.pt")
        required[-1].touch()
    publish(folder, {**result_of(run, rows), **changes}, required)


def publish(folder: RunDir, result: Mapping[str, Any], required: Iterable[Path]) -> None:
    """Write the result with its manifest, without flushing."""
    manifest = []
    for path in required:
        data = path.read_bytes()
        name, digest = path.relative_to(folder.path).as_posix(), hashlib.sha256(data).hexdigest()
        manifest.append({"path": name, "sha256": digest, "bytes": len(data), "required": True})
    folder.result_path.write_text(json.dumps({**result, "manifest": manifest}))


def finished_sweep(
    results: Path, name: str, matrix: Mapping[str, Sequence[Any]], *, iterations: int = 10, **rows: Any
) -> SweepDir:
    """A sweep whose every run is done; ``rows`` are further arguments of :func:`training_rows`."""
    runs = matrix_runs(matrix)
    sweep = create_sweep(results, name, runs)
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, iterations, **rows))
    return sweep


def write_journal(sweep: SweepDir, told: int = 5) -> None:
    """The submission and the journal of the worker that trained it all; ``told``: progress lines a run."""
    run_ids = sweep.run_ids()
    job = Job("0001-0001", sweep.name, "local", tuple(run_ids), 1, Resources())
    trainer = sweep.run(run_ids[0]).description().trainer
    submission = {"time": EPOCH, "trainer": trainer, "jobs": [plain(job)], "job_ids": {}, "skipped": {}}
    sweep.add_to_ledger(parse_entry({"kind": "submission", **submission}))
    holder = plain(Holder("node1", "another boot", "", 1, 0))
    journal = sweep.take_token(
        job.token, Event(STARTED, EPOCH, data={"holder": holder, "slots": 1, "host": HOST})
    )
    assert journal is not None, "a new sweep has no journals"
    for run_id in run_ids:
        journal.append(Event(CLAIMED, EPOCH, run_id, 1))
        for number in range(told):
            speed = {"end_to_end_fps": 1300.0, "iteration_fps": 1300.0}
            data = {"frames": number * FRAMES_PER_ITERATION, "total": 60_000, **speed, "return": 0.5}
            journal.append(Event(PROGRESS, EPOCH + number, run_id, 1, data))
        ended = {"outcome": "done", "reason": None, "message": "", "frames": 60_000, "checkpointed": 60_000}
        journal.append(
            Event(ENDED, EPOCH + told, run_id, 1, {**ended, "summary": {"end_to_end_fps": 1300.0}})
        )
    journal.append(Event(EXITED, EPOCH + told, data={"why": "nothing is left to do"}))

"""Read and follow the log of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core.errors import NotFoundError
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.rundir.files.plain_files import open_plain
from orchestrator.rundir.records.ledger_entries import submissions
from orchestrator.status.select_runs import one_run

_POLL_S = 0.3
_PIECE = 1 << 20


def log_pieces(
    sweep_dir: SweepDir, run: str, attempt: int | None = None, *, follow: bool = False
) -> Iterator[bytes]:
    """Yield the log of the selected run in pieces: of the newest attempt, or of the given one.

    With ``follow``, wait for more until no process works on the run, attempt after attempt. Before the first
    attempt, yield its job's own output. Raises :class:`NotFoundError`.
    """
    row = one_run(sweep_dir.read_index(), run, sweep_dir.name)
    run_dir = sweep_dir.run_to_read(row.run_id)
    if attempt is None and not run_dir.attempts() and (output := _job_output(sweep_dir, row.run_id)):
        yield f"run {row.run_id} has not begun; its job wrote:\n".encode()
        yield from _read(output, 0)
        return
    path, position = _log_path(run_dir, attempt), 0
    for data in _read(path, position):
        position += len(data)
        yield data
    over = not follow
    while not over:
        time.sleep(_POLL_S)
        over = _is_finished(run_dir)  # before the last read, which then is complete
        newest = _log_path(run_dir, attempt)
        if newest != path:
            yield from _read(path, position)
            yield f"--- attempt {newest.parent.name}\n".encode()
            path, position = newest, 0
        for data in _read(path, position):
            position += len(data)
            yield data


def _log_path(run_dir: RunDir, attempt: int | None) -> Path:
    attempts = {one.number: one for one in run_dir.attempts()}
    if not attempts:
        raise NotFoundError(
            f"run {run_dir.run_id} has not begun", hint=f"`orchestrate status {run_dir.sweep}` says why"
        )
    number = max(attempts) if attempt is None else attempt
    if number not in attempts:
        raise NotFoundError(
            f"run {run_dir.run_id} has no attempt {number} (found: {', '.join(map(str, attempts))})"
        )
    return attempts[number].log


def _job_output(sweep_dir: SweepDir, run_id: str) -> Path | None:
    """Return the own output of the run's latest job, if any: the reason for a missing start."""
    for entry in reversed(submissions(sweep_dir.read_ledger())):
        for job in entry.jobs:
            output = sweep_dir.worker_output(job.token)
            if run_id in job.run_ids and output.exists() and output.stat().st_size:
                return output
    return None


def _read(path: Path, position: int) -> Iterator[bytes]:
    try:
        with open_plain(path) as file:
            file.seek(position)
            yield from iter(lambda: file.read(_PIECE), b"")
    except FileNotFoundError:
        return


def _is_finished(run_dir: RunDir) -> bool:
    """Return whether no process works on the run, and none is expected to."""
    return run_dir.has_result() or run_dir.blocked_by() is None

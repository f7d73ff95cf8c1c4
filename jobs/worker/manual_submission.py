"""A job started by a person and not by a backend, recorded in the ledger like a submission.

So `orchestrate status`, `collect`, `report`, `cancel` and `retry` work on it, and a sweep can be worked on by
hand and by `orchestrate sweep` in turn.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence

from jobs.worker.scheduler_job import SchedulerJob
from orchestrator.config.trainers import TrainerSpec
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.machine import hardware
from orchestrator.core.types import Job, Resources, Run, Size
from orchestrator.rundir import IndexRow, SweepDir
from orchestrator.rundir.records.ledger_entries import SubmissionEntry, submissions

# The first line of a grid that this module wrote; such a grid grows with every call.
_MARK = "# Points that were trained by hand"


def record_submission(
    sweep: SweepDir,
    spec: TrainerSpec,
    named: Sequence[Run],
    runs: Sequence[Run],
    slots: int | None = None,
    nodes: int = 1,
) -> Job:
    """List all named runs in the index, and enter a job for ``runs`` into the ledger.

    ``slots``: runs at once; by default as many as there are cores, and GPUs where runs need one; on
    several ``nodes`` one. A grid that was submitted before goes on to define the sweep.
    """
    _require_finite(named)
    if nodes > 1 and not spec.several_nodes:
        raise OrchestrateError(
            f"the trainer {spec.name} trains on one node, and this was started on {nodes}",
            hint="start it on one",
        )
    sweep.create()
    with sweep.lock():
        _refuse_other_trainer(sweep, spec)
        grid = _list(sweep, spec, named)
        for problem in sweep.describe(runs).values():
            raise OrchestrateError(problem)
        ledger = sweep.read_ledger()
        number = ledger[-1].number + 1 if ledger else 1
        # The lock is only an aid, so two jobs may take one number; the rest of the token differs.
        job = _job(f"{number:04d}-{secrets.token_hex(4)}", sweep, spec, runs, slots, nodes)
        sweep.add_to_ledger(_entry(job, spec, grid))
    return job


def _list(sweep: SweepDir, spec: TrainerSpec, runs: Sequence[Run]) -> int:
    """Add new runs to the index, and to the grid if it is ours; return the grid's number."""
    latest, rows = sweep.latest_grid(), sweep.read_index()
    ours = latest is None or latest[1].startswith(_MARK)
    listed = {row.run_id for row in rows}
    new = [IndexRow(run.run_id, ours, run.point) for run in runs if run.run_id not in listed]
    rows = [*rows, *new]
    number = sweep.record_grid(_grid(sweep.name, spec, rows)) if ours or latest is None else latest[0]
    if new:
        sweep.write_index(rows)
    return number


def _grid(name: str, spec: TrainerSpec, rows: Sequence[IndexRow]) -> str:
    points = "".join(f"  - {json.dumps(row.point)}\n" for row in rows if row.in_grid)
    head = f"{_MARK}; `orchestrate sweep --grid` takes it like any other."
    return f"{head}\nname: {json.dumps(name)}\ntrainer: {spec.name}\ninclude:\n{points}"


def _job(
    token: str, sweep: SweepDir, spec: TrainerSpec, runs: Sequence[Run], slots: int | None, nodes: int
) -> Job:
    cores = {run.run_id: spec.resources_of(run, nodes).cpus_per_task for run in runs}
    least, most = min(cores.values()), max(cores.values())
    gpus = int(any(spec.needs_gpu(run) for run in runs))
    if nodes > 1:
        slots = 1
    room = Size(_cores()) if slots is None and least < most else None
    if slots is None:
        slots = min(len(runs), _cores() // least, len(hardware.gpus()) if gpus else len(runs))
    run_ids = sorted(cores, key=lambda run_id: -cores[run_id] if room else 0)
    sizes = {run_id: Size(cores[run_id]) for run_id in run_ids} if least < most else {}
    needs = Resources(cpus_per_task=most, gpus=gpus, nodes=nodes)
    return Job(token, sweep.name, "local", tuple(run_ids), max(1, slots), needs, sizes=sizes, room=room)


def _cores() -> int:
    """Return the cores of this job; some sites leave it to the job to keep to them."""
    there = hardware.whole_cores()
    return min(SchedulerJob.current().cores or there, there)


def _entry(job: Job, spec: TrainerSpec, grid: int) -> SubmissionEntry:
    """Return the entry as `orchestrate sweep` writes it; any machine may continue the sweep."""
    own = SchedulerJob.current()
    return SubmissionEntry(
        grid=grid,
        backend=own.kind,
        trainer=spec.name,
        folder=os.getcwd(),
        jobs=(job,),
        job_ids={} if own.job_id is None else {job.token: f"{own.kind}:{own.job_id}"},
    )


def _refuse_other_trainer(sweep: SweepDir, spec: TrainerSpec) -> None:
    names = [entry.trainer for entry in submissions(sweep.read_ledger())]
    if names and names[-1] != spec.name:
        raise OrchestrateError(
            f"sweep {sweep.name!r} in {sweep.results} is one of trainer {names[-1]}, not {spec.name}",
            hint="name another: --sweep NAME",
        )


def _require_finite(runs: Sequence[Run]) -> None:
    for run in runs:
        try:
            json.dumps(run.point, allow_nan=False)
        except ValueError:
            raise OrchestrateError(f"found {run.point}, expected finite numbers") from None

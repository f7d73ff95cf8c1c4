"""Jobs that have nothing left to do, and what their scheduler says of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.control import poll
from orchestrator.core.records import plain
from orchestrator.core.types import JobState, JobStatus
from orchestrator.rundir import Event, Holder
from orchestrator.rundir.records.journal import ENDED, EXITED, STARTED
from orchestrator.rundir.records.ledger_entries import submissions
from tests import helpers

MONTH_S = 30 * 86400.0


@pytest.mark.parametrize(
    ("state", "ago", "withdrawn"),
    [
        (JobState.QUEUED, 120.0, ["slurm:5_0"]),
        (JobState.RUNNING, 120.0, []),
        (JobState.UNKNOWN, 120.0, []),
        (JobState.QUEUED, 1.0, []),  # an answer from before it left
        (JobState.QUEUED, MONTH_S, []),  # nobody is asked about what ended long ago
    ],
)
def test_a_job_that_is_requeued_after_its_worker_was_through_is_withdrawn(
    results: Path, monkeypatch: pytest.MonkeyPatch, state: JobState, ago: float, withdrawn: list[str]
) -> None:
    """As when Slurm loses a node whose processes go on to the end."""
    run = helpers.command_run(["true"])
    sweep, at, cancelled = helpers.make_sweep(results, [run]), time.time() - ago, list[str]()
    job = helpers.submit(sweep)
    (entry,) = submissions(sweep.read_ledger())
    sweep.amend_ledger(replace(entry, job_ids={job.token: "slurm:5_0"}))
    journal = sweep.take_token(job.token, Event(STARTED, at, data={"holder": plain(Holder.current())}))
    assert journal is not None
    journal.append(Event(ENDED, at, run.run_id, 1, {"outcome": "done"}))
    journal.append(Event(EXITED, at, data={"why": "nothing is left to do", "asked": False}))

    class Slurm:
        def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
            return dict.fromkeys(ids, JobStatus(state))

        def cancel(self, ids: Sequence[str]) -> None:
            cancelled.extend(ids)

    monkeypatch.setattr(poll, "AllBackends", Slurm)
    notes = poll.leave_queue(sweep, poll.poll_sweep(sweep))
    assert cancelled == withdrawn
    assert bool(notes) == bool(withdrawn)

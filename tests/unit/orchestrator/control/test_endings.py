"""Why a run ended is its worker's word where there is one; else its job's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.control.poll import _with_endings
from orchestrator.core.records import plain
from orchestrator.core.types import Job, JobState, JobStatus, Reason, Resources, RunState
from orchestrator.rundir import Event, Holder, IndexRow, SweepDir, WorkerLog
from orchestrator.rundir.records.journal import CLAIMED, ENDED, STARTED
from orchestrator.rundir.records.ledger_entries import SubmissionEntry
from orchestrator.status.liveness import Moment
from orchestrator.status.survey import survey

RUN, TOKEN = "0" * 16, "0001-0001"
ELSEWHERE = Holder("node1", "another boot", "pid:[1]", 42, 1000)
TIME_LIMIT = {"outcome": "interrupted", "reason": "time limit", "message": "its job's time limit came near"}


@pytest.mark.parametrize(
    ("ended", "reason", "shown"),
    [
        (True, None, "time limit"),
        (False, None, "killed"),
        (False, Reason.NODE_FAILURE, "node failure"),
    ],
)
def test_the_reason_of_a_run_with_its_job(
    results: Path, ended: bool, reason: Reason | None, shown: str
) -> None:
    events = [
        Event(STARTED, 0.0, data={"holder": plain(ELSEWHERE)}),
        Event(CLAIMED, 1.0, RUN, 1),
        *([Event(ENDED, 2.0, RUN, 1, TIME_LIMIT)] if ended else []),
    ]
    logs = [WorkerLog(TOKEN, tuple(events))]
    job = Job(TOKEN, "tiny", "local", (RUN,), 1, Resources())
    over = {TOKEN: JobStatus(JobState.ENDED, "COMPLETED", reason)}
    seen = survey(
        [IndexRow(RUN, True, {})],
        [SubmissionEntry(number=1, jobs=(job,))],
        logs,
        Moment(lambda _: None, 3.0, 300.0),
        jobs=over,
    )
    status = _with_endings(SweepDir(results, "s"), seen, logs).statuses[RUN]
    assert (status.state, status.reason) == (RunState.INTERRUPTED, Reason(shown))

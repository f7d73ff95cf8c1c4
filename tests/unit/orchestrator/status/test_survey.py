"""States are a fold over what was written; each test writes a history and reads the state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.records import plain
from orchestrator.core.types import Job, JobState, JobStatus, Reason, Resources, RunState
from orchestrator.planning.ordering import sweep_eta
from orchestrator.rundir import Event, Holder, IndexRow, LedgerEntry, SweepDir, WorkerLog
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, REVOKED, STARTED
from orchestrator.rundir.records.ledger_entries import DamagedEntry, SubmissionEntry
from orchestrator.status.liveness import Moment
from orchestrator.status.survey import RunStatus, Survey, survey
from orchestrator.ui.cli.watch import status
from tests.helpers import ledger_entry

RUN = "00000000000000aa"
OTHER = "00000000000000bb"
HOLDER = Holder("host", "boot", "pid:[1]", 42, 1000)
TOKEN = "0001-0001"


def submission(number: int = 1, token: str = TOKEN, skipped: dict[str, str] | None = None) -> SubmissionEntry:
    runs = [run for run in (RUN, OTHER) if run not in (skipped or {})]
    jobs = (Job(token, "tiny", "local", tuple(runs), 1, Resources()),) if runs else ()
    return SubmissionEntry(number=number, jobs=jobs, skipped=skipped or {})


def started(*events: Event, token: str = TOKEN) -> WorkerLog:
    first = Event(STARTED, 0.0, data={"holder": plain(HOLDER)})
    return WorkerLog(token, (first, *events))


def ended(outcome: str, attempt: int = 1, at: float = 9.0, **data: Any) -> Event:
    return Event(ENDED, at, RUN, attempt, {"outcome": outcome, **data})


def state_of(
    ledger: list[LedgerEntry], logs: list[WorkerLog], alive: bool | None = True, now: float = 10.0
) -> RunStatus:
    return look(ledger, logs, alive, now).statuses[RUN]


def look(
    ledger: list[LedgerEntry], logs: list[WorkerLog], alive: bool | None = True, now: float = 10.0
) -> Survey:
    rows = [IndexRow(RUN, True, {"seed": 0}), IndexRow(OTHER, True, {"seed": 1})]
    return survey(rows, ledger, logs, Moment(lambda holder: alive, now, 300.0))


CLAIM = Event(CLAIMED, 5.0, RUN, 1)


@pytest.mark.parametrize(
    ("logs", "alive", "expected"),
    [
        ([], True, RunState.QUEUED),
        ([started()], True, RunState.QUEUED),
        ([started()], False, RunState.PENDING),
        ([started(CLAIM)], True, RunState.RUNNING),
        ([started(CLAIM)], False, RunState.INTERRUPTED),
        ([started(CLAIM)], None, RunState.UNKNOWN),
        ([started(CLAIM, ended("done"))], True, RunState.DONE),
        ([started(CLAIM, ended("done"))], False, RunState.DONE),
        ([started(CLAIM, ended("failed"))], False, RunState.FAILED),
        ([started(CLAIM, ended("interrupted"), Event(EXITED, 9.5))], True, RunState.INTERRUPTED),
        ([started()], None, RunState.PENDING),
        ([WorkerLog(TOKEN, (Event(REVOKED, 1.0),))], True, RunState.PENDING),
    ],
)
def test_one_worker(logs: list[WorkerLog], alive: bool | None, expected: RunState) -> None:
    assert state_of([submission()], logs, alive).state is expected


def test_a_note_of_a_run_at_work_is_said_until_its_next_progress() -> None:
    noted = Event(PROGRESS, 6.0, RUN, 1, {"frames": 0, "note": "no metrics found so far"})
    assert state_of([submission()], [started(CLAIM, noted)]).why == "no metrics found so far"
    later = Event(PROGRESS, 7.0, RUN, 1, {"frames": 10})
    assert state_of([submission()], [started(CLAIM, noted, later)]).why == ""


def test_a_worker_of_a_lost_node_that_leaves_late_ends_no_run_of_the_next_one() -> None:
    again = Event(STARTED, 20.0, data={"holder": plain(HOLDER)})
    claim, late = Event(CLAIMED, 21.0, RUN, 2), Event(EXITED, 22.0, data={"why": "lost", "asked": True})
    log = started(CLAIM, again, claim, late, Event(PROGRESS, 23.0, RUN, 2, {"frames": 10}))
    seen = look([submission()], [log], now=24.0)
    assert (seen.statuses[RUN].state, seen.statuses[RUN].frames) == (RunState.RUNNING, 10)
    assert seen.working == {TOKEN}


def test_a_late_exit_is_known_by_its_start(tmp_path: Path) -> None:
    """Before the next one has written anything after it."""
    sweep_dir = SweepDir(tmp_path, "s")
    sweep_dir.create()
    first, second = (
        sweep_dir.take_token(TOKEN, Event(STARTED, at, data={"holder": plain(holder)}))
        for at, holder in ((1.0, replace(HOLDER, job_id="12_0:0")), (20.0, replace(HOLDER, job_id="12_0:1")))
    )
    assert first is not None
    assert second is not None
    second.append(Event(CLAIMED, 21.0, RUN, 2))
    first.append(Event(EXITED, 22.0))
    (log,) = sweep_dir.read_journals()
    assert state_of([submission()], [log], now=23.0).state is RunState.RUNNING
    second.append(Event(EXITED, 24.0))
    assert sweep_dir.read_journals()[0].exited


def test_queued_jobs_are_told_from_those_at_work() -> None:
    ledger = [submission(), submission(2, "0002-0001")]
    seen = look(ledger, [started(CLAIM)])
    assert (seen.working, seen.live - seen.working) == ({TOKEN}, {"0002-0001"})


def test_the_runs_of_a_failed_set_up_wait_with_its_reason() -> None:
    failed = WorkerLog(
        TOKEN, (Event(REVOKED, 1.0, data={"why": "conda: exit code 127", "cause": "set-up failed"}),)
    )
    status = state_of([submission()], [failed])
    assert (status.state, status.why) == (RunState.PENDING, "set-up failed: conda: exit code 127")
    assert state_of([submission(), submission(2, "0002-0001")], [failed]).state is RunState.QUEUED


def test_never_submitted_is_pending() -> None:
    assert state_of([], []).state is RunState.PENDING


def test_killed_run_that_its_worker_will_try_again_is_queued() -> None:
    assert state_of([submission()], [started(CLAIM, ended("interrupted"))]).state is RunState.QUEUED


def test_a_later_worker_has_the_last_word() -> None:
    first = started(CLAIM, ended("interrupted"), Event(EXITED, 9.5))
    second = started(Event(CLAIMED, 20.0, RUN, 2), token="0002-0001")
    ledger = [submission(), submission(2, "0002-0001")]
    for logs in ([first, second], [second, first]):
        status = state_of(ledger, logs, now=21.0)
        assert (status.state, status.attempt) == (RunState.RUNNING, 2)


def test_silence_beyond_a_lease_is_stalled_and_no_more() -> None:
    logs = [started(CLAIM, Event(PROGRESS, 6.0, RUN, 1, {"frames": 10, "total": 100}))]
    assert state_of([submission()], logs, now=200.0).state is RunState.RUNNING
    assert state_of([submission()], logs, now=400.0).state is RunState.STALLED


def test_long_iterations_are_not_stalled() -> None:
    slow = [Event(PROGRESS, 5.0 + 200.0 * n, RUN, 1, {"frames": n}) for n in (1, 2)]
    assert state_of([submission()], [started(CLAIM, *slow)], now=405.0 + 900.0).state is RunState.RUNNING


def test_progress_is_kept_from_one_attempt_to_the_next() -> None:
    progress = Event(
        PROGRESS, 6.0, RUN, 1, {"frames": 60, "total": 100, "end_to_end_fps": 10.0, "return": -1.5}
    )
    status = state_of([submission()], [started(CLAIM, progress)], now=7.0)
    assert (status.frames, status.total, status.value, status.eta) == (60, 100, -1.5, 4.0)
    again = state_of([submission()], [started(CLAIM, progress, Event(CLAIMED, 8.0, RUN, 2))], now=9.0)
    assert (again.frames, again.attempt) == (60, 2)


def decision(number: int, kind: str, attempt: int) -> LedgerEntry:
    return ledger_entry(number, kind, {"runs": {RUN: attempt}})


def test_cancel_holds_until_retry() -> None:
    dead = [started(CLAIM)]
    ledger = [submission(), decision(2, "cancel", 1)]
    assert state_of(ledger, dead, alive=False).state is RunState.CANCELLED
    ledger.append(decision(3, "retry", 1))
    assert state_of(ledger, dead, alive=False).state is RunState.PENDING
    ledger.append(submission(4, "0004-0001"))
    assert state_of(ledger, dead, alive=False).state is RunState.QUEUED


def test_cancel_does_not_undo_a_finished_run() -> None:
    ledger = [submission(), decision(2, "cancel", 1)]
    assert state_of(ledger, [started(CLAIM, ended("done"))]).state is RunState.DONE


def test_retry_forgets_the_failure_it_was_meant_for_and_not_a_later_one() -> None:
    first = started(CLAIM, ended("failed", reason="code error"), Event(EXITED, 9.5))
    ledger = [submission(), decision(2, "retry", 1)]
    assert state_of(ledger, [first]).state is RunState.PENDING
    second = started(
        Event(CLAIMED, 20.0, RUN, 2), ended("failed", 2, 21.0), Event(EXITED, 22.0), token="0003-0001"
    )
    status = state_of([*ledger, submission(3, "0003-0001")], [first, second])
    assert (status.state, status.attempt) == (RunState.FAILED, 2)


def test_a_result_found_on_disk_counts() -> None:
    found = {"attempt": 1, "frames": 100, "value": 2.0, "code_id": "abc"}
    ledger = [submission(), ledger_entry(2, "found", {"runs": {RUN: found}})]
    status = state_of(ledger, [started(CLAIM)], alive=False)
    assert (status.state, status.frames, status.value) == (RunState.DONE, 100, 2.0)


def test_of_a_result_found_on_disk_no_other_attempt_s_figures_are_shown() -> None:
    ledger = [submission(), ledger_entry(2, "found", {"runs": {RUN: {"attempt": 3}}})]
    progress = Event(PROGRESS, 6.0, RUN, 1, {"frames": 60, "return": 0.5})
    status = state_of(ledger, [started(CLAIM, progress)], alive=False)
    assert (status.attempt, status.frames, status.value) == (3, None, None)


def test_skips_last_as_long_as_the_latest_submission_says() -> None:
    skipping = submission(skipped={RUN: "no GPU"})
    status = state_of([skipping], [])
    assert (status.state, status.message) == (RunState.SKIPPED, "no GPU")
    assert state_of([skipping, submission(2, "0002-0001")], []).state is RunState.QUEUED


def test_sweep_eta_counts_what_has_not_begun() -> None:
    progress = Event(PROGRESS, 6.0, RUN, 1, {"frames": 60, "total": 100, "end_to_end_fps": 10.0})
    seen = look([submission()], [started(CLAIM, progress)], now=7.0)
    assert sweep_eta(seen) == pytest.approx((40 + 100) / 10)
    idle = replace(seen, statuses={**seen.statuses, RUN: RunStatus(RUN)})
    assert sweep_eta(idle) is None


def test_a_cancellation_holds_whatever_attempt_began_meanwhile() -> None:
    ledger = [submission(), decision(2, "cancel", 0)]
    dead = [started(CLAIM)]
    assert state_of(ledger, dead, alive=False).state is RunState.CANCELLED
    assert state_of([*ledger, decision(3, "retry", 1)], dead, alive=False).state is RunState.PENDING


def test_a_result_that_is_gone_makes_its_run_pending() -> None:
    logs = [started(CLAIM, ended("done", frames=100))]
    status = state_of([submission(), decision(2, "lost", 1)], logs, alive=False)
    assert (status.state, status.frames) == (RunState.PENDING, None)


def test_what_is_said_of_a_run_by_a_worker_that_never_had_it_changes_nothing() -> None:
    stranger = started(ended("failed", 0, 6.0), token="0002-0001")
    first = started(CLAIM)
    assert state_of([submission()], [first, stranger]).state is RunState.RUNNING
    assert state_of([submission()], [stranger]).state is RunState.FAILED


def test_a_run_that_no_worker_can_take_is_failed_until_a_retry() -> None:
    first = started(CLAIM, ended("failed"), Event(EXITED, 9.5))
    refusal = started(ended("failed", 0, 21.0, message="no room"), Event(EXITED, 22.0), token="0003-0001")
    ledger = [submission(), decision(2, "retry", 1), submission(3, "0003-0001")]
    status = state_of(ledger, [first, refusal])
    assert (status.state, status.message) == (RunState.FAILED, "no room")
    ledger.append(decision(4, "retry", 1))
    assert state_of(ledger, [first, refusal]).state is RunState.PENDING
    again = started(ended("failed", 0, 15.0, message="its clock is behind"), token="0005-0001")
    status = state_of([*ledger, submission(5, "0005-0001")], [first, refusal, again])
    assert (status.state, status.message) == (RunState.FAILED, "its clock is behind")


@pytest.mark.parametrize("end", [[], [ended("interrupted")]])
def test_a_run_that_cannot_go_on_is_failed(end: list[Event]) -> None:
    first = started(CLAIM, *end, Event(EXITED, 9.5))
    refusal = started(ended("failed", 0, 21.0), Event(EXITED, 22.0), token="0002-0001")
    ledger = [submission(), submission(2, "0002-0001")]
    assert state_of(ledger, [first, refusal], alive=False).state is RunState.FAILED
    taken = started(
        Event(CLAIMED, 30.0, RUN, 2), ended("interrupted", 2, 31.0), Event(EXITED, 32.0), token="0003-0001"
    )
    seen = state_of([*ledger, submission(3, "0003-0001")], [first, refusal, taken], alive=False)
    assert (seen.state, seen.attempt) == (RunState.INTERRUPTED, 2)


def test_a_clock_set_back_stalls_nothing() -> None:
    logs = [started(CLAIM, Event(PROGRESS, 5000.0, RUN, 1, {"frames": 10}))]
    assert state_of([submission()], logs, now=10.0).state is RunState.RUNNING


def test_damaged_ledger_entries_and_journals_are_passed_over_and_named() -> None:
    journals = [WorkerLog("0008-0001", (), damaged=1), WorkerLog("0009-0001", (), damaged=2, compacted=True)]
    seen = look([submission(), DamagedEntry(number=2, problem="ledger/0002.json: cut")], journals)
    (line,) = seen.damaged
    assert line == (
        "passed over: ledger entry ledger/0002.json: cut; 1 line of journal 0008-0001.jsonl; "
        "2 lines of journal compacted.jsonl"
    )
    assert seen.statuses[RUN].state is RunState.QUEUED


QUEUED = JobStatus(JobState.QUEUED, "PENDING (Priority)")
AT_WORK = JobStatus(JobState.RUNNING, "RUNNING")
NODE_LOST = JobStatus(JobState.ENDED, "NODE_FAIL", Reason.NODE_FAILURE)
NO_NEWS = JobStatus(JobState.UNKNOWN, "squeue: no answer")


@pytest.mark.parametrize(
    ("log", "alive", "job", "expected", "why"),
    [
        (None, None, QUEUED, RunState.QUEUED, "PENDING (Priority)"),
        (None, None, NO_NEWS, RunState.QUEUED, "squeue: no answer"),
        (None, None, NODE_LOST, RunState.PENDING, "NODE_FAIL"),
        (started(CLAIM), None, AT_WORK, RunState.RUNNING, ""),
        (started(CLAIM), False, AT_WORK, RunState.QUEUED, "RUNNING"),
        (started(CLAIM), None, NO_NEWS, RunState.UNKNOWN, ""),
        (started(CLAIM), None, NODE_LOST, RunState.INTERRUPTED, "node failure: NODE_FAIL"),
        (started(CLAIM), None, QUEUED, RunState.RUNNING, "back in the queue: PENDING (Priority)"),
        (started(CLAIM, ended("interrupted"), Event(EXITED, 9.5)), None, QUEUED, RunState.QUEUED, "PENDING"),
        (
            started(CLAIM, ended("interrupted"), Event(EXITED, 9.5, data={"again": True})),
            None,
            NO_NEWS,
            RunState.QUEUED,
            "squeue",
        ),
        (started(CLAIM, ended("interrupted"), Event(EXITED, 9.5)), None, NODE_LOST, RunState.INTERRUPTED, ""),
    ],
)
def test_what_a_backend_says_of_a_job(
    log: WorkerLog | None, alive: bool | None, job: JobStatus, expected: RunState, why: str
) -> None:
    rows = [IndexRow(RUN, True, {"seed": 0})]
    logs = [] if log is None else [log]
    told = survey(rows, [submission()], logs, Moment(lambda _: alive, 10.0, 300.0), jobs={TOKEN: job})
    assert told.statuses[RUN].state is expected
    assert why in told.statuses[RUN].why


@pytest.mark.parametrize(
    ("silent", "state"), [(29.0, RunState.RUNNING), (31.0, RunState.QUEUED), (301.0, RunState.QUEUED)]
)
def test_a_worker_that_outlived_its_job_is_at_work_as_long_as_it_is_heard(
    silent: float, state: RunState
) -> None:
    rows, log = [IndexRow(RUN, True, {"seed": 0})], started(CLAIM)
    now = log.events[-1].time + silent
    told = survey(rows, [submission()], [log], Moment(lambda _: None, now, 300.0), jobs={TOKEN: QUEUED})
    assert told.statuses[RUN].state is state
    assert told.live == {TOKEN}


@pytest.mark.parametrize(
    ("backend", "log", "alive", "expected"),
    [
        ("slurm", None, None, RunState.QUEUED),
        ("slurm", started(), None, RunState.QUEUED),
        ("slurm", started(), False, RunState.QUEUED),
        ("slurm", started(CLAIM), None, RunState.UNKNOWN),
        ("slurm", started(CLAIM), False, RunState.QUEUED),
        ("slurm", started(CLAIM, ended("interrupted"), Event(EXITED, 9.5)), None, RunState.QUEUED),
        ("slurm", WorkerLog(TOKEN, (Event(REVOKED, 1.0),)), None, RunState.PENDING),
        ("local", started(), None, RunState.PENDING),
        ("local", started(CLAIM), False, RunState.INTERRUPTED),
        ("local", started(CLAIM, ended("interrupted"), Event(EXITED, 9.5)), None, RunState.INTERRUPTED),
    ],
)
def test_a_queue_that_does_not_answer_frees_no_run(
    backend: str, log: WorkerLog | None, alive: bool | None, expected: RunState
) -> None:
    """A job that was preempted waits for its turn, unseen; a process that is gone does not come back."""
    entry = submission()
    entry = replace(entry, backend=backend)
    rows, logs = [IndexRow(RUN, True, {"seed": 0})], [] if log is None else [log]
    told = survey(rows, [entry], logs, Moment(lambda _: alive, 10.0, 300.0), jobs={TOKEN: NO_NEWS})
    assert told.statuses[RUN].state is expected
    assert told.unanswered == (expected is RunState.UNKNOWN)


def test_watching_goes_on_while_a_queue_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [IndexRow(RUN, True, {"seed": 0})]
    unknown = {RUN: RunStatus(RUN, RunState.UNKNOWN, token=TOKEN)}
    looks = [
        Survey(rows, unknown, frozenset(), jobs={TOKEN: NO_NEWS}),
        Survey(rows, {RUN: RunStatus(RUN, RunState.RUNNING)}, frozenset()),
        Survey(rows, {RUN: RunStatus(RUN, RunState.DONE)}, frozenset()),
    ]
    monkeypatch.setattr(status, "_look", lambda *_: looks.pop(0))
    monkeypatch.setattr(status, "_REFRESH_S", 0.0)
    status._watch([SweepDir(tmp_path, "speed")], exchange=False)
    assert looks == []
    assert "done" in capsys.readouterr().out


def test_a_revoked_job_is_nobodys_while_its_backend_still_has_it() -> None:
    """Its run may be another target's from the moment on that the token is gone."""
    rows = [IndexRow(RUN, True, {"seed": 0})]
    queued = {TOKEN: JobStatus(JobState.QUEUED, "PENDING")}
    logs = [WorkerLog(TOKEN, (Event(REVOKED, 1.0),))]
    seen = survey(rows, [submission()], logs, Moment(lambda _: True, 2.0, 300.0), jobs=queued)
    assert seen.statuses[RUN].state is RunState.PENDING
    assert not seen.live
    waiting = survey(rows, [submission()], [], Moment(lambda _: True, 2.0, 300.0), jobs=queued)
    assert waiting.statuses[RUN].state is RunState.QUEUED
    assert waiting.target(RUN) == "local"

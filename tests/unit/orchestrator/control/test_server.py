"""What a tree behind ssh does with the runs that it is given."""

from __future__ import annotations

import time
from pathlib import Path

from orchestrator.control.remote.messages import Decision, SentGrid, SentProfile, SubmitRequest
from orchestrator.control.remote.server import _take_share
from orchestrator.control.submit import AS_USUAL
from orchestrator.core.records import plain
from orchestrator.core.types import RunState
from orchestrator.rundir import Claim, Event, Holder
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.journal import CLAIMED, ENDED, STARTED
from orchestrator.rundir.ledger_entries import CancelEntry
from orchestrator.status.ownership import RELEASED
from orchestrator.status.survey import survey
from tests.helpers import command_run, make_sweep, submit


def test_a_run_that_failed_here_and_is_given_again_is_to_be_done(results: Path) -> None:
    run, now = command_run(["true"]), time.time()
    sweep = make_sweep(results, [run])
    job = submit(sweep)
    holder = Holder("node7", "other boot", "pid:[1]", 4711, 99)
    events = [
        Event(STARTED, now, data={"holder": plain(holder), "slots": 1}),
        Event(CLAIMED, now, run.run_id, 1),
        Event(ENDED, now, run.run_id, 1, {"outcome": "failed"}),
    ]
    journal = sweep.path / "journals" / f"{job.token}.jsonl"
    journal.write_bytes(b"".join(event.to_line() for event in events))
    assert sweep.run(run.run_id).take(Claim.fresh(job.token)) is not None
    sweep.add_to_ledger(CancelEntry(runs={run.run_id: 1}, why=RELEASED))
    request = SubmitRequest(
        runs=(run.run_id,),
        grid=SentGrid("", ""),
        profile=SentProfile("", ""),
        wish=AS_USUAL,
        options=(),
        code=SentCode("", (), None),
        adopt=True,
        decision=Decision("home", "me:/x", 3),
    )
    _take_share(request, sweep)
    seen = survey(
        sweep.read_index(),
        sweep.read_ledger(),
        sweep.read_journals(),
        alive=lambda _: False,
        now=now,
        lease=1,
    )
    assert seen.statuses[run.run_id].state is RunState.PENDING

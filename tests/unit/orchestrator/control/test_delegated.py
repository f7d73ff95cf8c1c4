"""What a tree behind ssh does with the decisions of the tree that assigned its runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backends.local import LocalBackend
from orchestrator.control.decisions import cancel_runs, retry_runs
from orchestrator.control.remote.delegated import Assignment, Decision, _take_share, release, require_home
from orchestrator.control.submit import inspect_sweep, plan_sweep
from orchestrator.core.errors import FormatError, OrchestrateError
from orchestrator.core.records import plain
from orchestrator.core.types import RunState, Sweep
from orchestrator.rundir import Claim, Event, Holder, SweepDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.journal import CLAIMED, ENDED, STARTED
from orchestrator.rundir.records.ledger_entries import ReturnedEntry
from orchestrator.status.liveness import Moment
from orchestrator.status.ownership import share
from orchestrator.status.survey import survey
from tests.helpers import command_run, make_sweep, submit, submit_sweep

text, whole = st.text(max_size=8), st.integers(0, 1 << 40)
texts = st.lists(text, max_size=3).map(tuple)
decided = {"home": st.none() | text, "owner": text, "number": whole, "run_ids": texts}
codes = st.builds(SentCode, text, texts, st.none() | text)
grids = dict.fromkeys(("sweep", "grid", "grid_path", "profile_name", "profile"), text)
decisions = st.builds(Decision, **decided) | st.builds(
    Assignment, **decided, **grids, code=codes, adopt=st.booleans()
)


@given(decisions)
def test_a_decision_is_read_as_it_was_sent(decision: Decision) -> None:
    assert type(decision).from_bytes(decision.to_bytes()) == decision


@pytest.mark.parametrize(
    "sent", [b"", b"[]", b"{", b'{"home": "a"}', b'{"home": 1, "number": "x", "owner": 2}']
)
def test_what_is_no_decision(sent: bytes) -> None:
    with pytest.raises(OrchestrateError, match="found no decision of another tree"):
        Assignment.from_bytes(sent)


def test_a_decision_of_a_later_version() -> None:
    with pytest.raises(FormatError, match="found format 99"):
        Decision.from_bytes(json.dumps({"format": 99, "version": "9.9"}).encode())


def assignment(number: int, *run_ids: str, home: str = "home", adopt: bool = False) -> Assignment:
    given = {"sweep": "tiny", "grid": "", "grid_path": "", "profile_name": "", "profile": ""}
    code = SentCode("", (), None)
    return Assignment(
        home=home, owner="me:/x", number=number, run_ids=run_ids, code=code, adopt=adopt, **given
    )


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
    sweep.add_to_ledger(ReturnedEntry(runs={run.run_id: 1}))
    _take_share(assignment(3, run.run_id, adopt=True), sweep)
    seen = survey(
        sweep.read_index(),
        sweep.read_ledger(),
        sweep.read_journals(),
        Moment(lambda _: False, now, 1),
    )
    assert seen.statuses[run.run_id].state is RunState.PENDING


def test_an_earlier_decision_is_refused_after_a_later_one(results: Path) -> None:
    """An assignment that was on its way while its runs were requested back, on a tree without the sweep."""
    runs = [command_run(["true"], seed=seed) for seed in range(2)]
    ids = [run.run_id for run in runs]
    sweep = make_sweep(results, runs)
    with pytest.raises(OrchestrateError, match="was submitted on that machine itself"):
        _take_share(assignment(3, *ids), sweep)
    _take_share(assignment(3, *ids, adopt=True), sweep)
    recall = Decision(home="home", owner="me:/x", number=4, run_ids=(ids[0],))
    assert release(recall, sweep, moved=False, waiting=False) == {"released": [ids[0]], "held": {}}
    own = share(sweep.read_ledger())
    assert own is not None
    assert (own.run_ids, own.number) == ({ids[1]}, 4)
    with pytest.raises(OrchestrateError, match="decided anew meanwhile"):
        _take_share(assignment(3, *ids), sweep)
    with pytest.raises(OrchestrateError, match="a sweep of this name is me:/x's"):
        require_home(Decision(home="other", owner="you", number=9), sweep)
    _take_share(assignment(5, *ids), sweep)


def test_a_submission_that_is_being_checked_finds_its_runs_requested_back(results: Path) -> None:
    """Its command entered them, and has not listed them yet: home's connection was cut meanwhile."""
    runs = [command_run(["true"], seed=seed) for seed in range(2)]
    ids = [run.run_id for run in runs]
    folder = SweepDir(results, "tiny")
    _take_share(assignment(3, *ids), folder)
    recall = Decision(home="home", owner="me:/x", number=4, run_ids=tuple(ids))
    assert release(recall, folder, moved=False, waiting=True) == {"released": sorted(ids), "held": {}}
    sweep = Sweep(name="tiny", trainer="command", runs=tuple(runs), grid_text="name: tiny\n")
    capacity = LocalBackend().capacity(ask=False)
    assert plan_sweep(inspect_sweep(sweep, folder), capacity).plan.run_ids == ()
    assert not submit_sweep(sweep, folder, LocalBackend()).plan.jobs
    _take_share(assignment(5, *ids), folder)
    assigned = plan_sweep(inspect_sweep(sweep, folder), capacity).plan.run_ids
    assert set(assigned) == set(ids), "assigned once more"


@pytest.mark.parametrize("decide", [cancel_runs, retry_runs])
def test_no_later_decision_comes_between_the_check_of_one_and_its_entry(
    results: Path, decide: Callable[..., list[str]]
) -> None:
    sweep, alone = make_sweep(results, [command_run(["true"])]), list[bool]()

    def check() -> None:
        with sweep.lock_if_free() as free:
            alone.append(not free)
        raise OrchestrateError("a later one came first")

    ids = tuple(row.run_id for row in sweep.read_index())
    with pytest.raises(OrchestrateError, match="a later one came first"):
        decide(sweep, ids, check)
    assert alone == [True]
    assert not sweep.read_ledger()

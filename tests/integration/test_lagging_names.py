"""Nodes of a shared file system that each keep old names for seconds: what decides is looked up past that.

Each view is a node of its own: another node's files appear in it a minute late, unless they are looked for.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.worker.assignment import Assignment, Availability, Decisions
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Claim, End, RunDir, SweepDir
from orchestrator.rundir.attempts.claims import age_by_file_server
from orchestrator.status.disk_check import inspect
from tests import helpers
from tests.audit import check_finished
from tests.lagfs import view_of

DONE = End(RunState.DONE)


@pytest.fixture
def node(results: Path, tmp_path: Path) -> Iterator[Path]:
    """The results folder as another node sees it."""
    results.mkdir()
    with view_of(results, tmp_path / "node", lag=60) as view:
        yield view.path


@pytest.fixture
def here(results: Path, node: Path) -> SweepDir:
    return helpers.make_sweep(results, [helpers.command_run(["-c", "pass"])])


def other(one: RunDir, node: Path) -> RunDir:
    return SweepDir(node, one.sweep).run(one.run_id)


def claim_elsewhere() -> Claim:
    claim = Claim.fresh("0001-0001")
    return dataclasses.replace(claim, holder=dataclasses.replace(claim.holder, boot_id="another"))


@pytest.mark.fuse
def test_a_finished_run_is_not_taken_where_its_result_was_absent(here: SweepDir, node: Path) -> None:
    run = here.run(here.run_ids()[0])
    seen = other(run, node)
    attempt = run.take(claim_elsewhere())
    assert attempt is not None
    assert seen.result() is None  # and from now on it is known to be absent
    assert not seen.result_path.exists()
    attempt.metrics.write_text('{"resumed_from": null}\n')
    run.publish({"attempt": 1}, [(attempt.metrics, True)])
    attempt.write_end(DONE)
    sweep = SweepDir(node, here.name)
    assert Assignment(sweep, (), Decisions(sweep, 1)).look(run.run_id) is Availability.OVER
    assert seen.take(Claim.fresh("0002-0001")) is None
    assert inspect(sweep, [run.run_id])[run.run_id].result == run.result()
    assert len(run.attempts()) == 1


@pytest.mark.fuse
def test_the_end_record_decides_where_no_result_can_be_seen(here: SweepDir) -> None:
    """Unless the loss of the result is on record."""
    run = here.run(here.run_ids()[0])
    attempt = run.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    attempt.write_end(DONE)
    decisions = Decisions(here, 1)
    assert Assignment(here, (), decisions).look(run.run_id) is Availability.OVER
    helpers.enter(here, "lost", {"time": 0, "runs": {run.run_id: 1}})
    decisions.refresh()
    assert Assignment(here, (), decisions).look(run.run_id) is Availability.READY


@pytest.mark.fuse
def test_a_retired_result_is_not_taken_for_one(here: SweepDir, node: Path) -> None:
    run = here.run(here.run_ids()[0])
    attempt = run.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    run.publish({"attempt": 1}, [])
    attempt.write_end(DONE)
    seen = other(run, node)
    assert seen.has_result()
    run.retire_result()
    assert seen.result_path.exists()  # so the node says
    assert not seen.has_result()


@pytest.mark.fuse
def test_what_an_attempt_leaves_is_found_where_it_was_absent(here: SweepDir, node: Path) -> None:
    run = here.run(here.run_ids()[0])
    seen = other(run, node)
    attempt, late = run.attempt(2), seen.attempt(2)
    assert run.take(claim_elsewhere()) is not None
    for path in (late.path, late.claim_path, late.end_path, late.checkpoints):
        assert not path.exists()
    attempt.checkpoints.mkdir(parents=True)
    attempt.checkpoint_name(100, "0" * 16).write_bytes(b"x")
    attempt.claim_path.write_bytes(run.attempt(1).claim_path.read_bytes())
    attempt.write_end(End(RunState.INTERRUPTED, Reason.STOPPED))
    assert not late.claim_path.exists()
    assert seen.superseded(seen.attempt(1))
    assert seen.newest_attempt() == 2
    assert late.end() == attempt.end()
    assert late.checkpointed() == 100
    assert [file.frames for file in seen.checkpoints()] == [100]


@pytest.mark.fuse
def test_a_worker_that_began_is_seen_where_its_journal_was_absent(here: SweepDir, node: Path) -> None:
    sweep, job = SweepDir(node, here.name), helpers.submit(here)
    assert not sweep.has_begun(job.token)
    helpers.finish(helpers.start_worker(here, job))
    assert sweep.has_begun(job.token)
    assert [log.token for log in sweep.read_journals()] == [job.token]


@pytest.mark.fuse
def test_a_renewed_claim_is_not_old_where_its_age_was_looked_up(here: SweepDir, node: Path) -> None:
    run = here.run(here.run_ids()[0])
    attempt = run.take(claim_elsewhere())
    assert attempt is not None
    os.utime(attempt.claim_path, (1, 1))
    claim = other(run, node).attempt(1).claim_path
    assert age_by_file_server(claim) > 1000
    os.utime(attempt.claim_path)
    assert claim.stat().st_mtime == 1
    assert age_by_file_server(claim) < 1000


@pytest.mark.fuse
def test_two_nodes_do_each_run_once(results: Path, node: Path, tmp_path: Path) -> None:
    runs = helpers.count_runs(tmp_path / "audit", 8)
    sweep = helpers.make_sweep(results, runs)
    jobs = [helpers.submit(sweep) for _ in range(2)]
    workers = [helpers.start_worker(SweepDir(results, sweep.name), jobs[0])]
    workers.append(helpers.start_worker(SweepDir(node, sweep.name), jobs[1]))
    assert [helpers.finish(worker) for worker in workers] == [0, 0]
    assert [len(sweep.run(run.run_id).attempts()) for run in runs] == [1] * len(runs)
    check_finished(sweep, runs, tmp_path / "audit")

"""What is on record after a scheduler refused some of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from orchestrator.backends.script import Script, Setting
from orchestrator.config.trainers.command import COMMAND
from orchestrator.control import submit
from orchestrator.core.errors import OrchestrateError, QueueFullError, RefusedError
from orchestrator.core.types import Array, Capacity, JobStatus, Plan, Sweep
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import jobs_of, submissions
from tests.helpers import submit_sweep

RUNS = tuple(COMMAND.identify({"command": ["true"]}, seed, 1) for seed in range(10))
SWEEP = Sweep("tiny", "command", RUNS, "name: tiny\n")


class Stingy:
    """A scheduler with room for so many jobs, which knows no machine by name. Stands in for limits and sites
    that the test cluster cannot have.
    """

    kind: ClassVar[str] = "stingy"
    queues: ClassVar[bool] = True
    address = "stingy"
    options: Sequence[str] = ()

    def __init__(self, room: int, array_size: int = 100) -> None:
        self.room, self.submitted = room, list[Array]()
        self._array_size = array_size

    def capacity(self, ask: bool = True) -> Capacity:
        return Capacity("stingy", 1, 0, pack=1, array_size=self._array_size, can_avoid=True)

    def render(self, array: Array, setting: Setting) -> str:
        return f"{len(array.jobs)} jobs, not on {array.avoid}"

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        if script.array.avoid:
            raise RefusedError("invalid node name")
        if len(script.array.jobs) > self.room:
            raise QueueFullError("no more jobs")
        self.room -= len(script.array.jobs)
        self.submitted.append(script.array)
        assert script.path.read_text() == script.text
        return {job.token: f"stingy:{job.token}" for job in script.array.jobs}

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        return {}

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        return {}

    def cancel(self, ids: Sequence[str]) -> None:
        return None


def jobs_on_record(sweep_dir: SweepDir) -> list[str]:
    return [job.token for _, job in jobs_of(sweep_dir.read_ledger())]


@pytest.mark.parametrize(("room", "array_size"), [(1, 100), (5, 100), (9, 4), (10, 3)])
def test_what_the_queue_does_not_take_waits_and_leaves_no_trace(
    results: Path, room: int, array_size: int
) -> None:
    sweep_dir, backend = SweepDir(results, "tiny"), Stingy(room, array_size)
    plan = submit_sweep(SWEEP, sweep_dir, backend).plan
    taken = [job.token for array in backend.submitted for job in array.jobs]
    assert taken
    assert jobs_on_record(sweep_dir) == taken == [job.token for job in plan.jobs]
    assert sorted([*plan.run_ids, *plan.waiting]) == sorted(run.run_id for run in RUNS)
    (entry,) = submissions(sweep_dir.read_ledger())
    assert entry.waiting == bool(plan.waiting)
    assert set(entry.job_ids) == set(taken)


def test_where_nothing_is_taken_the_error_says_so_and_nothing_seems_queued(results: Path) -> None:
    sweep_dir = SweepDir(results, "tiny")
    with pytest.raises(QueueFullError):
        submit_sweep(SWEEP, sweep_dir, Stingy(0))
    assert jobs_on_record(sweep_dir) == []
    assert {status.state.value for status in submit.poll_sweep(sweep_dir).statuses.values()} == {"pending"}


def test_what_cannot_be_rendered_is_not_on_record(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of the plan can be."""
    backend = Stingy(10, array_size=4)

    def render(array: Array, setting: Setting) -> str:
        if array.run_ids[0] != RUNS[0].run_id:
            raise OrchestrateError("--comment is the program's own")
        return "fine"

    monkeypatch.setattr(backend, "render", render)
    with pytest.raises(OrchestrateError, match="--comment"):
        submit_sweep(SWEEP, SweepDir(results, "tiny"), backend)
    assert (jobs_on_record(SweepDir(results, "tiny")), backend.submitted) == ([], [])
    seen = submit.poll_sweep(SweepDir(results, "tiny"))
    assert {status.state.value for status in seen.statuses.values()} == {"pending"}


def test_a_checked_plan_is_submitted_only_if_nothing_was_decided_since(results: Path) -> None:
    """Another command submits half of the sweep while the first one checks its plan."""
    sweep_dir, backend, other = SweepDir(results, "tiny"), Stingy(10), Stingy(5)
    checked = submit.plan_sweep(submit.inspect_sweep(SWEEP, sweep_dir), backend.capacity())
    assert len(checked.plan.jobs) == len(RUNS)
    first = submit_sweep(SWEEP, sweep_dir, other).plan
    again: list[Plan] = []
    second = submit.submit_checked(checked, backend, again.append).plan
    assert not set(first.run_ids) & set(second.run_ids), "submitted twice"
    assert {*first.run_ids, *second.run_ids} == {run.run_id for run in RUNS}
    assert [plan.run_ids for plan in again] == [second.run_ids], "checked anew"


def test_a_checked_plan_is_not_made_again(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_dir, backend = SweepDir(results, "tiny"), Stingy(10)
    checked = submit.plan_sweep(submit.inspect_sweep(SWEEP, sweep_dir), backend.capacity())
    monkeypatch.delattr(submit, "make_plan")
    done = submit.submit_checked(checked, backend)
    assert done.plan == checked.plan


def test_a_name_that_the_scheduler_does_not_know_stops_nothing(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Stingy(10)
    original = submit.make_plan

    def planned(*arguments: object, **options: object) -> object:
        plan = original(*arguments, **options)  # type: ignore[arg-type]
        arrays = tuple(submit.replace(array, avoid=("node.example.org",)) for array in plan.arrays)
        return submit.replace(plan, arrays=arrays)

    monkeypatch.setattr(submit, "make_plan", planned)
    submit_sweep(SWEEP, SweepDir(results, "tiny"), backend)
    assert [array.avoid for array in backend.submitted] == [()]

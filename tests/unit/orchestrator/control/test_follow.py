"""Staying with a sweep whose backend cannot be submitted to now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.synthetic import EPOCH, create_sweep, matrix_runs, write_journal
from orchestrator.backends.local import LocalBackend
from orchestrator.control import follow, submit
from orchestrator.control.cloud.exchange import exchange_with_instances
from orchestrator.control.poll import give_up, poll_sweep
from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.types import Capacity, RunState, Sweep
from orchestrator.rundir import Event, SweepDir
from orchestrator.rundir.records.journal import PROGRESS, Journal
from orchestrator.status.survey import Survey
from tests import helpers


class Queue(LocalBackend):
    """A queue that is in the way ``times`` times: what is asked of it then says ``obstacle``."""

    queues = True  # type: ignore[misc]

    def __init__(self, obstacle: Callable[[Capacity], Capacity], times: int) -> None:
        super().__init__()
        self.obstacle, self.left = obstacle, times

    def capacity(self, ask: bool = True) -> Capacity:
        capacity = super().capacity(ask)
        if not ask or not self.left:
            return capacity
        self.left -= 1
        return self.obstacle(capacity)


def away(_: Capacity) -> Capacity:
    raise BackendUnavailableError("scontrol: unable to contact slurm controller")


def full(capacity: Capacity) -> Capacity:
    return replace(capacity, array_size=1, room=0)


def refuses(_: Capacity) -> Capacity:
    raise RefusedError("invalid account")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_PATIENCE_S", 0.01)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep("tiny", "command", tuple(helpers.count_runs(tmp_path / "audit", 1, 2)), "name: tiny\n")


@pytest.mark.parametrize(
    ("obstacle", "said"),
    [
        (away, "cannot submit now: scontrol: unable to contact slurm controller; tried again until it works"),
        (full, "the queue takes no more jobs of yours now; tried again until it works"),
    ],
)
def test_what_cannot_be_submitted_now_is_submitted_later_and_that_is_said_once(
    results: Path, sweep: Sweep, obstacle: Callable[[Capacity], Capacity], said: str
) -> None:
    told: list[str] = []
    backend = Queue(obstacle, times=5)
    target = follow.OneTarget(sweep, SweepDir(results, "tiny"), backend)
    (*_, last) = follow.follow(target, told.append)
    assert [status.state for status in last.statuses.values()] == [RunState.DONE]
    assert told == [said]


def test_a_no_ends_the_following(results: Path, sweep: Sweep) -> None:
    with pytest.raises(RefusedError):
        list(follow.follow(follow.OneTarget(sweep, SweepDir(results, "tiny"), Queue(refuses, times=1))))


def test_a_run_whose_job_was_given_up_for_another_target_is_submitted_again(
    results: Path, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two things at once: a worker claimed the run as its job was given up, saw that, and left the run."""
    sweep_dir = SweepDir(results, "tiny")
    target = follow.OneTarget(sweep, sweep_dir, LocalBackend())
    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "submit", lambda *_: {})
        target.submit()
    with sweep_dir.lock():
        give_up(sweep_dir, ["0001-0001"], "taken by another target")
    (*_, last) = follow.follow(target)
    assert [status.state for status in last.statuses.values()] == [RunState.DONE]


def test_a_further_look_reads_only_what_is_new(tmp_path: Path) -> None:
    """However many runs have finished. The ledger is read each time: it holds little more than their ids."""
    few, many = (cost_of_a_further_look(tmp_path, count) for count in (200, 2000))
    for calls, size in (few, many):
        assert calls < 20
        assert size < 2000


def cost_of_a_further_look(results: Path, count: int) -> tuple[int, int]:
    """System calls that read, and bytes beside the ledger's, in a round of :func:`follow.follow`."""
    runs = matrix_runs({"algorithm": ["mappo"], "seed": range(count)})
    sweep, sweep_dir = Sweep(f"of{count}", "benchmarl", tuple(runs), ""), SweepDir(results, f"of{count}")
    write_journal(create_sweep(results, sweep.name, runs), told=0)

    def take_a_round() -> Survey:
        exchange_with_instances(sweep_dir, print, orphans=True)
        return poll_sweep(sweep_dir, submit.rows_of(sweep, sweep_dir))

    assert take_a_round().counts() == {RunState.DONE: count}
    journal = sweep_dir.path / "journals" / "0001-0001.jsonl"
    Journal(journal).append(Event(PROGRESS, EPOCH + 1, runs[0].run_id, 1, {"frames": 1}))
    before = reads()
    take_a_round()
    calls, size = (after - begun for after, begun in zip(reads(), before, strict=True))
    ledger = sum(path.stat().st_size for path in (sweep_dir.path / "ledger").iterdir())
    return calls, size - ledger


def reads() -> tuple[int, int]:
    """System calls of this process that read, and the bytes that they read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    counts = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    return counts["syscr"], counts["rchar"]

"""Staying with a sweep whose backend cannot be submitted to now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.backends.local import LocalBackend
from orchestrator.control import follow
from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.types import Capacity, RunState, Sweep
from orchestrator.rundir import SweepDir
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
    (*_, last) = follow.follow(sweep, SweepDir(results, "tiny"), backend, tell=told.append)
    assert [status.state for status in last.statuses.values()] == [RunState.DONE]
    assert told == [said]


def test_a_no_ends_the_following(results: Path, sweep: Sweep) -> None:
    with pytest.raises(RefusedError):
        list(follow.follow(sweep, SweepDir(results, "tiny"), Queue(refuses, times=1)))

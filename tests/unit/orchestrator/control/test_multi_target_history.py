"""What one following of a shared sweep remembers of its targets, and how fast a split takes them to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.control.multi_target import SharedSweep, history, one_shot
from orchestrator.control.multi_target.history import TargetHealth, TargetHistory
from orchestrator.control.submit import SubmitOptions
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Sweep
from orchestrator.planning.estimate import Range
from orchestrator.rundir import SweepDir
from orchestrator.status.survey import RunStatus

RUN = RunStatus("r")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the monotonic clock, to be moved."""
    now = [1000.0]
    monkeypatch.setattr(history.time, "monotonic", lambda: now[0])
    return now


def a_past() -> TargetHistory:
    return TargetHistory(
        {"a": TargetHealth(), "b": TargetHealth()}, lambda _, status: (status.attempt, status.frames or 0)
    )


def test_a_run_is_dealt_three_times_in_vain_and_no_more() -> None:
    found, statuses = a_past(), {"r": RUN}
    for _ in range(2):
        found.assigned(["r"], "a", statuses)
    assert found.without_progress("a", statuses) == set()
    found.assigned(["r"], "a", statuses)
    assert found.without_progress("a", statuses) == {"r"}
    assert found.without_progress("b", statuses) == set(), "another target may try"
    further = {"r": replace(RUN, attempt=1)}
    assert found.without_progress("a", further) == set(), "it was begun since"
    found.assigned(["r"], "a", further)
    assert found.without_progress("a", further) == set()


def test_what_was_taken_before_it_began_was_no_try() -> None:
    found, statuses = a_past(), {"r": RUN}
    for _ in range(5):
        found.assigned(["r"], "a", statuses)
        found.reassigned(["r"], "a")
    assert found.without_progress("a", statuses) == set()
    assert found.patience_factor(["r", "other"]) == 32
    assert found.patience_factor(["other"]) == 1


def test_who_fails_is_left_alone_for_longer_each_time(clock: list[float]) -> None:
    one = TargetHealth()
    for rest in (2, 8, 30, 120, 300, 300):
        assert one.open
        one.failed()
        clock[0] += rest - 0.1
        assert not one.open
        clock[0] += 0.2
    assert one.hopeless
    assert one.unsettled
    one.went_well(submitted=True)
    assert one.open
    assert not one.hopeless
    one.went_well(submitted=False)
    assert not one.open, "its queue is full"


def test_reminders_come_once_in_a_while(clock: list[float]) -> None:
    one = TargetHealth()
    assert one.to_be_reminded()
    assert not one.to_be_reminded()
    clock[0] += 31
    assert one.to_be_reminded()
    one.left = True
    clock[0] += 31
    assert not one.to_be_reminded()


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"a": [10.0, 30.0], "b": [5.0]}, {"a": 0.05, "b": 0.2}),
        ({"a": [10.0], "b": [5.0, None]}, None),
        ({"a": [10.0], "b": []}, None),
        (None, None),
    ],
)
def test_a_split_rests_on_what_is_predicted_or_on_nothing(
    times: Any, expected: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def predicted(*_: object) -> list[Any]:
        if times is None:
            raise OrchestrateError("no catalog")
        return [
            SimpleNamespace(
                runs=[SimpleNamespace(seconds=one and Range(one, one, one)) for one in times[name]]
            )
            for name in ("a", "b")
        ]

    monkeypatch.setattr(one_shot, "forecasts", predicted)
    shared = SharedSweep(Sweep("s", "command", (), ""), SweepDir(tmp_path, "s"), SubmitOptions())
    targets: Any = [SimpleNamespace(name=name, address=name) for name in ("a", "b")]
    assert one_shot._speeds(shared, targets) == expected

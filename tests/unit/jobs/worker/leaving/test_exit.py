"""The table of a worker's exit: why it leaves, whether it takes another run, whether its job comes back."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.worker.assignment import Assignment
from jobs.worker.leaving.exit import AGAIN, DONE, INTERRUPTED, NO_STORAGE, SOME_FAILED, TOO_SHORT, Exit
from jobs.worker.leaving.shutdown import Shutdown

NOTHING, HELD = "nothing is left to do", "1 of its runs are held by other workers, nothing else is left"
FULL, STUCK = "no room on the disk; free some", "could not start a process (no memory)"
WARNED = {"why": "received SIGUSR1", "warned": True}
NEAR_END = {**WARNED, "out_of_time": True}
STOPPED = {"why": "received SIGTERM", "stopped": True}
PREEMPTED = {"why": "received SIGTERM"}
ALONE = "no agent answers on 2 of the job's nodes (there: node2)"


def exit_of(shutdown: dict[str, Any], waiting: int = 0, held: int = 0, **recorded: Any) -> Exit:
    asked = {"why": "", "warned": False, "stopped": False, "out_of_time": False, "for_good": False} | shutdown
    left = SimpleNamespace(waiting=deque("w" * waiting), held=deque("h" * held), over=not waiting)
    return Exit(cast(Shutdown, SimpleNamespace(**asked)), cast(Assignment, left), **recorded)


@pytest.mark.parametrize(
    ("left", "why", "code", "takes_runs", "comes_back", "submits_rest"),
    [
        (exit_of({}), NOTHING, DONE, True, False, True),
        (exit_of({}, began=True, failed=2), NOTHING, SOME_FAILED, True, False, True),
        (exit_of({}, held=1), HELD, DONE, True, False, True),
        (exit_of({}, held=1, no_process=STUCK), STUCK, DONE, True, False, True),
        (exit_of({}, waiting=1), NOTHING, DONE, True, False, True),
        (exit_of(WARNED, waiting=1), WARNED["why"], AGAIN, False, True, False),
        (exit_of(WARNED, began=True, interrupted=1), WARNED["why"], AGAIN, False, True, False),
        (exit_of({**WARNED, "for_good": True}, waiting=1), WARNED["why"], AGAIN, False, True, True),
        (exit_of(WARNED, began=True), WARNED["why"], DONE, False, False, True),
        (exit_of(WARNED, began=True, failed=1), WARNED["why"], SOME_FAILED, False, False, True),
        (exit_of(NEAR_END, began=True, waiting=1), WARNED["why"], AGAIN, False, True, False),
        (exit_of(NEAR_END, waiting=1), TOO_SHORT, INTERRUPTED, False, False, False),
        (exit_of(NEAR_END), WARNED["why"], DONE, False, False, True),
        (exit_of(STOPPED, waiting=1), STOPPED["why"], INTERRUPTED, False, False, False),
        (exit_of(STOPPED, began=True, failed=1), STOPPED["why"], INTERRUPTED, False, False, False),
        (exit_of(PREEMPTED, waiting=1), PREEMPTED["why"], INTERRUPTED, False, False, True),
        (exit_of({}, waiting=1, storage_error=FULL), FULL, NO_STORAGE, False, False, True),
        (exit_of(WARNED, waiting=1, storage_error=FULL), FULL, NO_STORAGE, False, False, True),
        (exit_of(NEAR_END, waiting=1, storage_error=FULL), FULL, NO_STORAGE, False, False, False),
        (exit_of(STOPPED, failed=1, storage_error=FULL), FULL, NO_STORAGE, False, False, False),
        (exit_of({}, waiting=1, no_agents=ALONE), ALONE, INTERRUPTED, False, False, False),
    ],
)
def test_the_table(
    left: Exit, why: str, code: int, takes_runs: bool, comes_back: bool, submits_rest: bool
) -> None:
    told = (left.why, left.code, left.takes_runs, left.comes_back, left.may_submit_rest)
    assert told == (why, code, takes_runs, comes_back, submits_rest)
    assert left.obstacle == (why if why in (FULL, TOO_SHORT, ALONE) else None)
    assert left.found_nothing_more is (takes_runs and not left.assignment.waiting)


@pytest.mark.parametrize(
    ("left", "at_work", "due"),
    [
        (exit_of({}), 0, True),
        (exit_of({}), 1, False),
        (exit_of({}, waiting=1), 0, False),
        (exit_of(STOPPED, waiting=1), 0, True),
        (exit_of(STOPPED, waiting=1), 1, False),
        (exit_of({}, waiting=1, storage_error=FULL), 0, True),
        (exit_of({}, waiting=1, storage_error=FULL), 2, False),
    ],
)
def test_it_waits_for_its_runs(left: Exit, at_work: int, due: bool) -> None:
    assert left.is_due(at_work) is due

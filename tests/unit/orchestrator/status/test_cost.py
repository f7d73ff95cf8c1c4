"""What jobs have cost: their time by their journals, and a price."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.records import plain
from orchestrator.rundir import Event, Holder, SweepDir, WorkerLog
from orchestrator.rundir.records.journal import CLAIMED, EXITED, PROGRESS, REVOKED, STARTED
from orchestrator.status.cost import Cost, job_cost, job_seconds

HOLDER = {"holder": plain(Holder("host", "boot", "pid:[1]", 42, 1000))}
RUN = "00000000000000aa"


def log(*events: tuple[str, float]) -> WorkerLog:
    return WorkerLog(
        "0001-0001",
        tuple(
            Event(kind, at, RUN, 1) if kind in (CLAIMED, PROGRESS) else Event(kind, at, data=HOLDER)
            for kind, at in events
        ),
    )


@pytest.mark.parametrize(
    ("events", "lives", "expected"),
    [
        ([], False, 0),
        ([(REVOKED, 5)], False, 0),
        ([(STARTED, 10)], True, 990),
        ([(STARTED, 10)], False, 0),
        ([(STARTED, 10), (CLAIMED, 12), (PROGRESS, 40)], True, 990),
        ([(STARTED, 10), (CLAIMED, 12), (PROGRESS, 40)], False, 30),
        ([(STARTED, 10), (CLAIMED, 12), (EXITED, 60)], False, 50),
        # Given back to the queue from 60 to 200.
        ([(STARTED, 10), (EXITED, 60), (STARTED, 200), (PROGRESS, 230)], False, 80),
        ([(STARTED, 10), (EXITED, 60), (STARTED, 200), (PROGRESS, 230)], True, 850),
        ([(STARTED, 10), (EXITED, 60)], False, 50),
        # Killed at some moment after 40, and begun again.
        ([(STARTED, 10), (PROGRESS, 40), (STARTED, 200), (EXITED, 210)], False, 40),
        # Its clock is ahead of ours.
        ([(STARTED, 2000)], True, 0),
        ([(STARTED, 900), (PROGRESS, 1200)], True, 300),
    ],
)
def test_the_time_of_a_job(events: list[tuple[str, float]], lives: bool, expected: float) -> None:
    assert job_seconds(log(*events), lives=lives, now=1000) == expected


KINDS = st.sampled_from([STARTED, REVOKED, CLAIMED, PROGRESS, EXITED])


@given(st.lists(st.tuples(KINDS, st.floats(0, 1e9)), max_size=12), st.booleans(), st.floats(0, 1e9))
def test_no_journal_makes_time_run_backwards_or_longer_than_there_was(
    events: list[tuple[str, float]], lives: bool, now: float
) -> None:
    seconds = job_seconds(log(*events), lives=lives, now=now)
    times = [at for _, at in events]
    starts = sum(kind == STARTED for kind, _ in events)
    assert 0 <= seconds <= starts * (max([*times, now]) - min([*times, now])) + 1e-3


def test_the_cost_is_the_same_after_journals_are_folded_together(tmp_path: Path) -> None:
    sweep = SweepDir(tmp_path, "tiny")
    sweep.create()
    journal = sweep.take_token("0001-0001", Event(STARTED, 10.0, data=HOLDER))
    assert journal is not None
    for kind, at in ((EXITED, 60.0), (STARTED, 200.0), (EXITED, 230.0), (STARTED, 300.0), (EXITED, 301.0)):
        journal.append(Event(kind, at, data=HOLDER if kind == STARTED else {}))
        journal.append(Event(PROGRESS, at, RUN, 1, {"frames": 1}))
    before = sweep.read_journals()
    sweep.compact_journals(before)
    (after,) = sweep.read_journals()
    assert job_seconds(before[0], lives=False, now=1000) == job_seconds(after, lives=False, now=1000) == 81


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ([], "–"),
        ([job_cost(0, 2.0)], "–"),
        ([job_cost(3600, None)], "–"),
        ([job_cost(3600, 2.0)], "$2.00"),
        ([job_cost(3600, 0.0)], "$0.00"),
        ([job_cost(1800, 2.0), job_cost(3600, 3000.0)], "$3,001.00"),
        ([job_cost(1800, 2.0), job_cost(3600, None), job_cost(0, None)], "$1.00+"),
    ],
)
def test_a_sum_says_what_it_lacks(costs: list[Cost], said: str) -> None:
    assert str(sum(costs, Cost())) == said


def test_costs_add_up_part_by_part() -> None:
    assert Cost(1.0, 1, 2) + Cost(0.5, 2, 3) == Cost(1.5, 3, 5)

"""What was predicted against what became of it, by the ledger and the journals alone."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis.cells import Table
from orchestrator.analysis.collect import collect
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.export import as_csv
from orchestrator.analysis.report.sections.costs import money
from orchestrator.analysis.report.sections.costs.money import money_of
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources
from orchestrator.planning.estimate import Range
from orchestrator.planning.predictions import bills, lines, rates
from orchestrator.rundir import Event, Holder, SweepDir
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, STARTED
from tests.helpers import enter

RUN, OTHER = "a" * 16, "b" * 16
SAID = {"seconds": Range(50, 100, 200).to_json(), "dollars": Range(0.5, 1, 2).to_json()}


class Past:
    """A sweep's ledger and journals, written as they would have been."""

    def __init__(self, results: Path) -> None:
        self.sweep = SweepDir(results, "speed")
        self.sweep.create()

    def submission(self, tokens: list[str], at: float, backend: str = "local", **cost: Any) -> None:
        jobs = [plain(Job(token, "speed", "l4", (RUN, OTHER), 1, Resources())) for token in tokens]
        data = {
            "time": at,
            "jobs": jobs,
            "job_ids": {},
            "skipped": {},
            "target": "l4",
            "backend": backend,
            "cost": {"price_per_hour": 36.0} | cost,
        }
        enter(self.sweep, "submission", data)

    def worker(self, token: str, started: float, *events: Event, left: float | None = None) -> None:
        journal = self.sweep.take_token(
            token, Event(STARTED, started, data={"holder": plain(Holder.current())})
        )
        assert journal is not None
        for event in events:
            journal.append(event)
        if left is not None:
            journal.append(Event(EXITED, left))


def claimed(run: str, attempt: int, at: float) -> Event:
    return Event(CLAIMED, at, run, attempt)


def reached(run: str, attempt: int, at: float, frames: int) -> Event:
    return Event(PROGRESS, at, run, attempt, {"frames": frames})


def done(run: str, attempt: int, at: float, frames: int) -> Event:
    return Event(ENDED, at, run, attempt, {"outcome": "done", "frames": frames})


@pytest.fixture
def past(results: Path) -> Past:
    return Past(results)


def test_a_bill_is_the_time_of_its_jobs_at_the_price_of_then(past: Past) -> None:
    past.submission(["0001-0001", "0001-0002"], 1000.0, prediction=SAID)
    past.worker("0001-0001", 1010.0, claimed(RUN, 1, 1011), done(RUN, 1, 1050, 400), left=1060.0)
    past.worker("0001-0002", 1020.0, claimed(OTHER, 1, 1021), done(OTHER, 1, 1100, 600), left=1110.0)
    (bill,) = bills(past.sweep)
    assert (bill.seconds, bill.frames, bill.runs, bill.over) == (100.0, 1000, 2, True)
    assert bill.dollars == pytest.approx(1.4)
    assert bill.predicted == Range(50, 100, 200)
    (said,) = lines([bill])
    assert (
        said == "l4: 1:40 (predicted 1:40, 80 %: 0:50 to 3:20), $1.40 (predicted $1.00, 80 %: $0.50 to $2.00)"
    )
    (rate,) = rates([bill])
    assert rate.per_million == pytest.approx(1400)


def test_frames_count_once_and_what_was_done_twice_still_costs(past: Past) -> None:
    past.submission(["0001-0001"], 1000.0)
    past.worker("0001-0001", 1000.0, claimed(RUN, 1, 1001), reached(RUN, 1, 1050, 500), left=1100.0)
    past.submission(["0002-0001"], 2000.0)
    past.worker("0002-0001", 2000.0, claimed(RUN, 2, 2001), done(RUN, 2, 2100, 800), left=2100.0)
    first, second = bills(past.sweep)
    assert (first.frames, second.frames) == (500, 300)
    (rate,) = rates([first, second])
    assert (rate.frames, rate.dollars) == (800, pytest.approx(2.0))


def test_an_instance_costs_from_the_moment_it_is_asked_for(past: Past) -> None:
    past.submission(["0001-0001"], 1000.0, backend="skypilot")
    past.worker("0001-0001", 1300.0, claimed(RUN, 1, 1301), left=1400.0)
    (bill,) = bills(past.sweep)
    assert bill.dollars == pytest.approx(4.0)


def test_without_a_price_or_a_prediction_nothing_is_made_up(past: Past) -> None:
    past.submission(["0001-0001"], 1000.0, price_per_hour=None, prediction=None)
    past.worker("0001-0001", 1000.0, claimed(RUN, 1, 1001), left=1100.0)
    (bill,) = bills(past.sweep)
    assert (bill.dollars, bill.predicted, bill.dollars_predicted) == (None, None, None)
    assert lines([bill]) == []
    assert rates([bill]) == []
    submissions, targets = money_of([past.sweep])
    assert [cell.text for cell in submissions.rows[0][3:]] == ["–", "1:40", "–", "–", "–", "–"]
    assert targets.rows == ()


@pytest.mark.parametrize("damaged", ["much", {"low": 1}, {"low": "x", "expected": 1, "high": 2}, 7, []])
def test_a_prediction_that_cannot_be_read_is_none(past: Past, damaged: Any) -> None:
    past.submission(["0001-0001"], 1000.0, prediction={"seconds": damaged, "dollars": damaged})
    past.worker("0001-0001", 1000.0, claimed(RUN, 1, 1001), left=1100.0)
    (bill,) = bills(past.sweep)
    assert (bill.predicted, bill.dollars_predicted) == (None, None)


def test_the_page_says_what_came_out_otherwise(past: Past) -> None:
    past.submission(["0001-0001"], 1000.0, prediction=SAID)
    past.worker("0001-0001", 1000.0, done(RUN, 1, 1300, 400), left=1300.0)
    past.submission(["0002-0001"], 2000.0)
    past.submission(["0003-0001"], 3000.0)
    past.worker("0003-0001", 3000.0, reached(OTHER, 1, 3010, 100))
    first, at_work = money_of([past.sweep])[0].rows
    assert [cell.text for cell in first[2:]] == [
        "2",
        "1:40 [0:50, 3:20]",
        "5:00",
        "300%, outside the range",
        "$1.00 [$0.50, $2.00]",
        "$3.00",
        "300%, outside the range",
    ]
    assert at_work[4].text == "0:10, so far"


def test_the_files_of_the_table_of_money_hold_plain_numbers(past: Past) -> None:
    past.submission(["0001-0001"], 1000.0, prediction=SAID)
    past.worker("0001-0001", 1000.0, done(RUN, 1, 1300, 400), left=1300.0)
    section = money.section(report_data([past.sweep], collect([past.sweep])))
    assert section is not None
    table = section.blocks[0]
    assert isinstance(table, Table)
    (row,) = csv.DictReader(io.StringIO(as_csv(table)))
    told = {name: float(value) for name, value in row.items() if "predicted" in name and "note" not in name}
    assert told == {
        "time predicted (s)": 100.0,
        "time predicted (s)_low": 50.0,
        "time predicted (s)_high": 200.0,
        "of that predicted": 3.0,
        "dollars predicted": 1.0,
        "dollars predicted_low": 0.5,
        "dollars predicted_high": 2.0,
        "of those predicted": 3.0,
    }
    assert (float(row["actual time (s)"]), float(row["actual dollars"])) == (300.0, 3.0)
    assert row["of that predicted_note"] == "outside the range"

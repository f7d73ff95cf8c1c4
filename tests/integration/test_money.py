"""Time and money through the commands: a sweep fills the table, estimate predicts, a budget holds."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.records import plain
from orchestrator.core.types import Reason
from orchestrator.planning.predictions import bills, rates
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import jobs_of
from tests.helpers import kill, wait_for
from tests.integration.test_cli import Bench

# A dollar a second: sums in cents are times in hundredths.
A_DOLLAR_A_SECOND = 3600.0


class Market(Bench):
    """A bench with a profile of this machine that has a price."""

    def price(self, per_hour: float = A_DOLLAR_A_SECOND) -> None:
        text = f"backend: local\nprice_per_hour: {per_hour}\npack: 1\n"
        (self.folder / "mine.yaml").write_text(text)

    def pace(self, seconds: float) -> None:
        """How long a step takes, from now on."""
        (self.folder / "pace").write_text(str(seconds))

    def write_grid(self, seeds: int = 4, steps: int = 10, seconds: float | None = None, **more: Any) -> None:
        super().write_grid(seeds, steps, 0.0, **more)
        pace = seconds if seconds is not None else self.folder / "pace"
        self.grid.write_text(self.grid.read_text().replace('"0.0"', json.dumps(str(pace))))

    def estimate(self, *more: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self.run("estimate", "grid.yaml", "--on", "./mine.yaml", "--json", *more)
        )
        return answer

    def jobs(self) -> list[dict[str, Any]]:
        return [plain(job) for _, job in jobs_of(SweepDir(self.results, "tiny").read_ledger())]

    def work(self, *more: str, code: int = 0) -> str:
        return self.sweep("--on", "./mine.yaml", *more, code=code)


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Market]:
    market = Market(tmp_path)
    market.price()
    market.pace(0.005)
    market.write_grid()
    yield market
    for process in market.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    for pid in market.live_workers() if market.results.exists() else []:
        kill(pid)


def test_a_sweep_fills_the_table_and_estimate_predicts_the_next(market: Market) -> None:
    market.write_grid(seeds=2, steps=20, seconds=0.02)
    before = market.run("estimate", "grid.yaml", "--on", "./mine.yaml")
    assert "unknown number of frames of runs of command" in before
    assert "--canary" in before
    market.work()
    assert market.estimate()["targets"][0]["runs"] == []

    market.write_grid(seeds=6, steps=20, seconds=0.02)
    (target,) = market.estimate()["targets"]
    assert len(target["runs"]) == 4
    (data,) = target["rests_on"]
    assert data["data"] == "2 finished runs of the same configuration"
    assert (data["measured_runs"], data["shipped"], data["runs"]) == (2, False, 4)
    assert all(run["frames"] == 2000 for run in target["runs"])
    market.work()
    _, second = bills(SweepDir(market.results, "tiny"))
    assert second.predicted is not None
    assert second.seconds is not None
    assert second.predicted.to_json() == target["seconds"]
    # Twice or half is what a noisy machine makes of half a second.
    assert second.predicted.mid / 3 < second.seconds < 3 * second.predicted.mid + 2
    assert second.dollars == pytest.approx(second.seconds, abs=0.1)
    (rate,) = rates([second])
    assert (rate.target, rate.frames) == ("mine", 4 * 2000)


def test_a_launch_predicted_above_the_budget_is_refused(market: Market) -> None:
    market.write_grid(seeds=1, steps=20, seconds=0.02)
    market.work()
    done = market.steps()
    market.write_grid(seeds=100, steps=20, seconds=0.02)
    market.work("--budget", "5", "--dry-run", code=4)
    assert "above the budget of $5.00, of which" in market.errors
    market.work("--budget", "5", code=4)
    assert "predicted to cost $" in market.errors
    assert "80 %" in market.errors
    assert "above the budget of $5.00, of which" in market.errors
    assert "orchestrate estimate" in market.errors
    assert market.steps() == done
    assert len(market.jobs()) == 1


def test_a_target_without_a_price_keeps_to_no_budget(market: Market) -> None:
    market.sweep("--budget", "5", code=2)
    assert "cost unknown" in market.errors
    assert "price_per_hour" in market.errors
    assert market.steps() == []


def test_a_budget_stops_a_sweep_and_a_larger_one_goes_on(market: Market) -> None:
    market.pace(0.05)
    market.write_grid(seeds=2, steps=400)  # 20 s each
    said = market.work("--budget", "3", code=4)
    assert "$3.00 may not be enough" in said
    assert "larger --budget" in market.errors
    (sweep,) = json.loads(market.run("status", "tiny", "--json"))
    states = [run["state"] for run in sweep["runs"]]
    assert states == ["interrupted", "pending"]
    cut = next(run for run in sweep["runs"] if run["state"] == "interrupted")
    assert cut["reason"] == "budget reached"
    assert "budget reached" in market.run("status", "tiny")
    (bill,) = bills(SweepDir(market.results, "tiny"))
    assert bill.dollars is not None
    assert 2.0 < bill.dollars < 6.0

    # What was checkpointed is not done again, and the budget that was named holds where none is.
    steps = market.steps()
    market.work(code=4)
    assert market.steps() == steps
    assert "used up" in market.errors
    market.pace(0.0)
    assert "2/2 done" in market.work("--budget", "inf")
    doubled = len(market.steps()) - 2 * 400
    assert 0 <= doubled <= 3  # steps after the last checkpoint


@pytest.mark.nightly
def test_the_worker_stops_by_itself_when_the_command_line_is_killed(market: Market) -> None:
    market.pace(0.05)
    market.write_grid(seeds=2, steps=400)
    command = market.start("sweep", "--grid", "grid.yaml", "--on", "./mine.yaml", "--budget", "2.5")
    wait_for(market.steps, what="the first step")
    command.send_signal(signal.SIGKILL)
    command.communicate()
    wait_for(lambda: not market.live_workers(), what="the worker to leave")
    (log,) = SweepDir(market.results, "tiny").read_journals()
    assert log.exited
    assert log.events[-1].exit.cause is Reason.BUDGET
    assert 1.5 < log.worked() < 6.0
    assert market.states()[0] == "interrupted"
    assert len(market.steps()) < 400


def test_a_settled_sweep_and_its_status_read_no_table(market: Market) -> None:
    market.write_grid(seeds=1, steps=2)
    market.work()
    table = SweepDir(market.results, "tiny").speeds
    assert table.exists()
    table.unlink()
    market.work()
    market.run("status", "tiny")
    assert not table.exists()
    market.run("collect", "tiny")
    assert table.exists()


def test_a_killed_run_shows_all_its_time_and_the_time_that_counts(market: Market) -> None:
    market.pace(0.05)
    market.write_grid(seeds=1, steps=40)
    command = market.start("sweep", "--grid", "grid.yaml", "--on", "./mine.yaml")
    wait_for(lambda: len(market.steps()) > 10, what="steps that will be undone or kept")
    (pid,) = market.live_workers()
    for process in (command.pid, pid):
        kill(process, signal.SIGKILL)
    command.communicate()
    market.work()
    market.run("collect", "tiny")
    with open(market.results / "tiny" / "results.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["attempts"] == "2"
    assert float(row["train_time"]) < float(row["wall_time"])
    (rate,) = rates(bills(SweepDir(market.results, "tiny")))
    assert float(row["wall_time"]) == pytest.approx(rate.dollars, abs=3.0)  # at a dollar a second

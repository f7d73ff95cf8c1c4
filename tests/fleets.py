"""A fleet for tests of `orchestrate top`: it is seen as it was staged, and notes what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.core.records import plain
from orchestrator.core.types import Job, JobStatus, Resources
from orchestrator.rundir import Event, Holder, IndexRow, LedgerEntry, SweepDir, WorkerLog
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, STARTED
from orchestrator.status.liveness import Moment
from orchestrator.status.survey import Survey, survey
from orchestrator.ui.top.model import History
from tests.helpers import ledger_entry

NOON = 1_790_078_400.0  # 2026-09-22, 12:00 UTC
HOLDER = Holder("host", "boot", "pid:[1]", 42, 1000)


def run_id(number: int) -> str:
    return f"{number:08x}{number:08x}"


def claimed(number: int, at: float, attempt: int = 1) -> Event:
    return Event(CLAIMED, at, run_id(number), attempt)


def progress(number: int, at: float, attempt: int = 1, **data: Any) -> Event:
    return Event(PROGRESS, at, run_id(number), attempt, data)


def ended(number: int, at: float, outcome: str = "done", attempt: int = 1, **data: Any) -> Event:
    return Event(ENDED, at, run_id(number), attempt, {"outcome": outcome, **data})


class Stage:
    """One sweep: its runs, submissions and workers' events as they are written, and what a backend says."""

    def __init__(self, name: str, points: Sequence[Mapping[str, Any]]) -> None:
        self.sweep_dir = SweepDir(Path("results"), name)
        self.rows = [IndexRow(run_id(number), True, dict(point)) for number, point in enumerate(points)]
        self.ledger: list[LedgerEntry] = []
        self.logs: dict[str, WorkerLog] = {}
        self.jobs: dict[str, JobStatus] = {}
        self.alive = True
        self.problem: Exception | None = None

    def submit(
        self,
        token: str,
        numbers: Sequence[int],
        said: JobStatus | None = None,
        on: str = "gpu",
        slots: int = 1,
    ) -> None:
        run_ids = tuple(run_id(number) for number in numbers)
        job = plain(Job(token, self.sweep_dir.name, on, run_ids, slots, Resources()))
        ids = {token: f"slurm:{1000 + len(self.ledger)}_1"}
        data = {
            "time": NOON - 7200,
            "on": on,
            "jobs": [job],
            "job_ids": ids,
            "skipped": {},
            "backend": "slurm",
        }
        self.ledger.append(ledger_entry(len(self.ledger) + 1, "submission", data))
        if said is not None:
            self.jobs[token] = said

    def work(self, token: str, began: float, *events: Event, left: float | None = None) -> None:
        """Add to a worker's journal; with ``left`` it exits then."""
        first = Event(STARTED, began, data={"holder": plain(HOLDER)})
        last = [Event(EXITED, left)] if left is not None else []
        self.logs[token] = WorkerLog(token, (first, *events, *last))

    def seen(self, now: float) -> Survey:
        if self.problem is not None:
            raise self.problem
        logs = list(self.logs.values())
        alive = self.alive
        return survey(self.rows, self.ledger, logs, Moment(lambda _: alive, now, 300.0), jobs=self.jobs)


class StagedFleet:
    """Stages as a fleet. It is looked at as often as :meth:`allow` allows, once to begin with."""

    def __init__(self, *stages: Stage, prices: Mapping[str, float] | None = None, logs: str = "") -> None:
        self.stages = {stage.sweep_dir.name: stage for stage in stages}
        self.now = NOON
        self.asked: list[tuple[str, str, list[str]]] = []
        self.refusal: Exception | None = None
        self._prices, self._logs = prices or {}, logs
        self._looks = threading.Semaphore(1)

    def allow(self, looks: int = 1) -> None:
        self._looks.release(looks)

    def sweeps(self) -> Sequence[SweepDir]:
        self._looks.acquire()
        return [stage.sweep_dir for stage in self.stages.values()]

    def present(self, sweep_dir: SweepDir) -> Survey:
        return self.stages[sweep_dir.name].seen(self.now)

    def recorded(self, sweep_dir: SweepDir) -> Survey:
        return self.stages[sweep_dir.name].seen(self.now)

    def history(self, sweep_dir: SweepDir) -> History:
        stage = self.stages[sweep_dir.name]
        return History(list(stage.ledger), list(stage.logs.values()))

    def price(self, on: str, kept: float | None = None) -> float | None:
        return self._prices.get(on)

    def cancel(self, sweep_dir: SweepDir, run_ids: Sequence[str]) -> str:
        return self._act("cancel", sweep_dir, run_ids)

    def retry(self, sweep_dir: SweepDir, run_ids: Sequence[str]) -> str:
        return self._act("retry", sweep_dir, run_ids)

    def exchange(self, sweep_dir: SweepDir) -> str:
        return self._act("exchange", sweep_dir, [])

    def log(self, sweep_dir: SweepDir, run_id: str) -> str:
        return self._logs

    def _act(self, what: str, sweep_dir: SweepDir, run_ids: Sequence[str]) -> str:
        self.asked.append((what, sweep_dir.name, list(run_ids)))
        if self.refusal is not None:
            raise self.refusal
        return f"{what}: understood"

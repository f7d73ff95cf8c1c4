"""``python -m benchmarks.top``: `orchestrate top` on a sweep of 10,000 runs, 400 of which train.

How long a look takes by itself, and, while one look follows the other without any rest, how long the screen
takes to follow a key. Ends with 1 if a goal is not met.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.run import MATRIX, POINTS, Measured
from benchmarks.synthetic import matrix_runs
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources
from orchestrator.rundir import Event, Holder, IndexRow, SweepDir
from orchestrator.rundir.records.journal import CLAIMED, ENDED, PROGRESS, STARTED
from orchestrator.rundir.records.ledger_entries import parse_entry
from orchestrator.ui.top import refresher
from orchestrator.ui.top.app import Top
from orchestrator.ui.top.fleet_access import FleetTree, next_state
from orchestrator.ui.top.model import FleetState
from orchestrator.ui.top.table_widget import ListTable
from orchestrator.ui.top.views import key_of

JOBS, AT_WORK = 40, 10
KEYS = ("down", "pagedown", "end", "home", "3", "1")
SECONDS = 10.0


def write_fleet(results: Path) -> SweepDir:
    """A sweep in the midst of its work: 40 live jobs, 10 runs at work in each, the others done."""
    runs = matrix_runs(MATRIX)
    sweep, now = SweepDir(results, "many"), time.time()
    sweep.create()
    sweep.record_grid("name: many\n")
    sweep.write_index([IndexRow(run.run_id, True, run.point) for run in runs])
    size = len(runs) // JOBS
    jobs = [
        Job(f"0001-0001.{number}", "many", "gpu", tuple(run.run_id for run in part), AT_WORK, Resources())
        for number, part in enumerate(runs[at : at + size] for at in range(0, len(runs), size))
    ]
    data = {"time": now, "trainer": "benchmarl", "jobs": [plain(job) for job in jobs]}
    sweep.add_to_ledger(parse_entry({"kind": "submission", **data, "job_ids": {}, "skipped": {}}))
    holder = plain(Holder.current())
    for job in jobs:
        journal = sweep.take_token(job.token, Event(STARTED, now - 9000, data={"holder": holder}))
        assert journal is not None, "a new sweep has no journals"
        lines = []
        for number, run_id in enumerate(job.run_ids):
            lines.append(Event(CLAIMED, now - 8000, run_id, 1))
            for step in range(5):
                told = {
                    "frames": step * 6000,
                    "total": 60_000,
                    "end_to_end_fps": 1000.0 + step,
                    "iteration_fps": 1000.0 + step,
                }
                lines.append(Event(PROGRESS, now - 10 + step, run_id, 1, told))
            if number >= AT_WORK:
                lines.append(Event(ENDED, now, run_id, 1, {"outcome": "done", "frames": 60_000}))
        with open(journal._path, "ab") as file:  # at once: 70,000 times opened takes a minute
            file.writelines(line.to_line() for line in lines)
    return sweep


def look(tree: FleetTree) -> float:
    """Seconds of a look at everything."""
    began = time.perf_counter()
    picture = next_state(tree, FleetState(), time.time())
    assert sum(picture.counts.values()) == POINTS, picture.sights[0].problem
    return time.perf_counter() - began


async def press_keys(tree: FleetTree) -> list[float]:
    """Seconds from each of many keys to what it does, while looks follow each other."""
    app, waits = Top(tree), []
    async with app.run_test(size=(120, 40)):
        while app.picture.at is None:
            await asyncio.sleep(0.01)
        table, end = app.query_one(ListTable), time.monotonic() + SECONDS
        while time.monotonic() < end:
            for key in KEYS:
                before, began = key_of(table.row), time.perf_counter()
                app.simulate_key(key)
                while key_of(table.row) == before:
                    await asyncio.sleep(0)
                waits.append(time.perf_counter() - began)
                await asyncio.sleep(0.02)
    return waits


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="orchestrate-bench-") as folder:
        tree = FleetTree(write_fleet(Path(folder)).results)
        look(tree)
        looks = [look(tree) for _ in range(5)]
        refresher._REST, refresher._REFRESH_S = 0, 0.0
        waits = sorted(asyncio.run(press_keys(tree)))
    rows = [
        Measured(f"top: a look at {POINTS:,} runs", median(looks), 2, "s"),
        Measured("  and the screen follows a key (median)", 1000 * median(waits), 50, "ms"),
        Measured("  … and at the 99th of 100 keys", 1000 * waits[int(len(waits) * 0.99)], 150, "ms"),
    ]
    for row in rows:
        print(row.line(), flush=True)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

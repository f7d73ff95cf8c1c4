"""A file server that fails for a moment costs no run, and a complete training is published."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from orchestrator.rundir import SweepDir
from tests import helpers, warm
from tests.audit import check_finished
from tests.lagfs import View, view_of

# Operations on one run's files, each of which fails once.
FAULTS = [
    ("create", "attempts/1/metrics.jsonl"),
    ("open", "attempts/1/metrics.jsonl"),
    ("write", "attempts/1/metrics.jsonl"),
    ("fsync", "attempts/1/metrics.jsonl"),
    ("read", "attempts/1/metrics.jsonl"),
    ("getattr", "attempts/1/metrics.jsonl"),
    ("mkdir", "attempts/1"),
    ("mkdir", "checkpoints"),
    ("write", r"attempts/1/\.claim"),
    ("link", "attempts/1/claim"),
    ("readdir", "attempts$"),
    ("readdir", "scratch/checkpoints"),
    ("open", "scratch/checkpoints/"),
    ("rename", "scratch/"),
    ("read", "attempts/1/checkpoints/"),
    ("create", "attempts/1/log.txt"),
    ("create", r"\.result.json"),
    ("write", r"\.result.json"),
    ("link", "result.json"),
    ("read", "result.json"),
    ("getattr", "result.json"),
    ("link", "end.json"),
    ("getattr", "attempts/1/end.json"),
]
# And operations on a sweep's own files, by its commands and workers.
SHARED = [
    ("link", "ledger/0001.json"),
    ("readdir", "ledger$"),
    ("open", "ledger/0001.json"),
    ("write", "index.tsv"),
    ("create", "grids/"),
    ("link", "descriptions/"),
    ("readdir", "journals$"),
    ("write", "journals/"),
    ("open", r"journals/.*\.jsonl"),
    ("read", r"journals/.*\.jsonl"),
]
SERVER = [errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.ETIMEDOUT]
# More than any one operation is tried again.
LASTING = 6


@pytest.fixture
def view(tmp_path: Path, results: Path) -> Iterator[View]:
    results.mkdir()
    with view_of(results, tmp_path / "view") as view:
        yield view


def ends(sweep: SweepDir) -> list[tuple[str, str | None]]:
    return [(data["outcome"], data["reason"]) for kind, _, data in helpers.events(sweep) if kind == "ended"]


@pytest.mark.fuse
@pytest.mark.nightly
def test_single_faults_cost_no_run(view: View, tmp_path: Path) -> None:
    runs = helpers.count_runs(tmp_path / "audit", len(FAULTS))
    sweep = helpers.make_sweep(view.path, runs)
    job, errors = helpers.submit(sweep, slots=2), cycle(SERVER)
    for run, (operation, match) in zip(runs, FAULTS, strict=True):
        view.fail(operation, f"{run.run_id}/.*{match}", next(errors))
    assert helpers.finish(helpers.start_worker(sweep, job)) == 0
    assert len(view.struck()) == len(FAULTS)
    check_finished(sweep, runs, tmp_path / "audit")
    assert {end for end in ends(sweep) if end[0] != "done"} <= {("interrupted", "storage error")}


@pytest.mark.fuse
def test_a_lasting_fault_interrupts_and_a_complete_training_waits_for_its_publication(
    view: View, tmp_path: Path
) -> None:
    broken, complete = runs = helpers.count_runs(tmp_path / "audit", 2)
    sweep = helpers.make_sweep(view.path, runs)
    view.fail("write", f"{broken.run_id}/attempts/1/metrics.jsonl", errno.ESTALE, LASTING)
    view.fail("link", f"{complete.run_id}/result.json", errno.EIO, LASTING)
    assert helpers.work(sweep, slots=2) == 0
    assert sorted(ends(sweep)) == [("done", None), ("done", None), ("interrupted", "storage error")]
    assert sweep.run(complete.run_id).newest_attempt() == 1
    check_finished(sweep, runs, tmp_path / "audit")


@pytest.mark.fuse
def test_faults_end_no_command(view: View, tmp_path: Path) -> None:
    argv = json.dumps(
        [sys.executable, str(helpers.COMMANDS / "count.py"), str(tmp_path / "audit"), "20", "0"]
    )
    grid = f"name: two\ntrainer: command\nbase: {{command: {argv}}}\nmatrix: {{seed: range(2)}}\n"
    (tmp_path / "two.yaml").write_text(grid)
    errors = cycle(SERVER)
    for operation, match in SHARED:
        view.fail(operation, match, next(errors))
    command = [warm.FRESH, "-m", "orchestrator.ui.cli", "sweep", "two.yaml", "--results", "view"]
    env = {**os.environ, "PYTHONPATH": str(helpers.ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(view.struck()) == len(SHARED)

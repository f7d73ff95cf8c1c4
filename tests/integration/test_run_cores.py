"""Runs of different sizes on this machine: each has the cores that it asks for, small ones share them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests import warm
from tests.helpers import ROOT

# Notes when it is at work with which cores. Runs of one actor go on once all of them have begun.
PROGRAM = """
import json, os, sys, time
actors, shared = int(sys.argv[1]), os.path.join(os.environ["ORCHESTRATE_SUBMIT_DIR"], "log")
def note(what):
    with open(shared, "a") as log:
        log.write(json.dumps([what, os.environ["ORCHESTRATE_RUN"], sorted(os.sched_getaffinity(0))]) + "\\n")
def begun():
    return sum(what == "begin" and len(cores) == 1 for what, _, cores in map(json.loads, open(shared)))
note("begin")
while actors == 1 and begun() < 2:
    time.sleep(0.05)
with open(os.environ["ORCHESTRATE_METRICS"], "a") as metrics:
    metrics.write(json.dumps({"frames": 1000, "metrics": {"return": 1.0}}) + "\\n")
note("end")
"""
GRID = f"""name: actors
trainer: command
base: {{command: [{sys.executable}, program.py, "{{actors}}"]}}
matrix: {{seed: [0, 1], actors: [1, 2, 9999]}}
exclude: [{{seed: 1, actors: 9999}}]
resources: {{cpus_per_task: "{{actors}}"}}
"""


@pytest.fixture
def two_cores() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("needs two cores")
    os.sched_setaffinity(0, sorted(allowed)[:2])
    yield
    os.sched_setaffinity(0, allowed)


def judge(log: Path) -> None:
    """Check what four runs noted: those of two cores had the machine alone, before the others."""
    at_work: dict[str, list[int]] = {}
    sizes = []
    for line in log.read_text().splitlines():
        what, run, cores = json.loads(line)
        if what == "end":
            del at_work[run]
            continue
        sizes.append(len(cores))
        at_work[run] = cores
        used = [core for own in at_work.values() for core in own]
        assert len(used) == len(set(used)), "no core has two runs"
    assert sizes == [2, 2, 1, 1], "the largest first, and those of one core at once"


def orchestrate(folder: Path, *arguments: str, module: str = "orchestrator.ui.cli") -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, **warm.COMMANDS, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("two_cores")
def test_each_run_has_its_own_number_of_cores(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "grid.yaml").write_text(GRID)
    planned = json.loads(orchestrate(tmp_path, "sweep", "--grid", "grid.yaml", "--dry-run", "--json"))
    why = "needs 9999 cores, this machine has 2: ask for fewer, or choose a larger target (--on)"
    assert list(planned["skipped"].values()) == [why]
    (job,) = planned["jobs"]
    assert (job["room"][0], job["slots"]) == (2, 2)
    assert [job["sizes"][run_id][0] for run_id in job["run_ids"]] == [2, 2, 1, 1]
    orchestrate(tmp_path, "sweep", "--grid", "grid.yaml")

    judge(tmp_path / "log")

    said = orchestrate(tmp_path, "compare", "actors", "--by", "actors")
    assert "efficiency: speed-up per core, over that of actors=1" in said
    orchestrate(tmp_path, "collect", "actors")
    table = pl.read_parquet(tmp_path / "results" / "actors" / "results.parquet")
    done = table.filter(pl.col("state") == "done")
    assert done["actors"].to_list() == done["run_cores"].to_list() == [1, 2, 1, 2]


@pytest.mark.usefixtures("two_cores")
def test_so_it_is_for_runs_that_a_person_starts(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = f"command=[{sys.executable},program.py,'{{threads}}']"
    orchestrate(tmp_path, "command", command, "threads=1,2", "seed=0,1", module="jobs.train")
    judge(tmp_path / "log")

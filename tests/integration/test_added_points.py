"""A point that the ledger adds to a grid is a run of the sweep, for every command."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from orchestrator.rundir.records.ledger_entries import AddEntry
from tests.slurm.lab import Lab

GRID = ("--grid", "tiny.yaml")


def add_seeds(lab: Lab, *seeds: int) -> None:
    """What a search or a decision does: add points under the sweep's lock."""
    point = lab.descriptions()[0].point
    entry = AddEntry(points=tuple({**point, "seed": seed} for seed in seeds), by="test", why="more seeds")
    with lab.dir().lock():
        lab.dir().add_to_ledger(entry)


@pytest.mark.nightly
def test_an_added_point_is_a_run_for_every_command(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    lab.count_grid(runs=2)
    lab.run("sweep", *GRID)
    add_seeds(lab, 7, 1)  # one of them is in the grid
    assert "1 to do, 2 done" in lab.run("check", *GRID)
    (target,) = json.loads(lab.run("estimate", *GRID, "--json"))["targets"]
    assert len(target["runs"]) == 1
    (job,) = json.loads(lab.run("sweep", *GRID, "--dry-run", "--json"))["jobs"]
    assert "tiny: 1 run to do" in lab.run("sweep", *GRID)
    (added,) = job["run_ids"]
    assert lab.dir().run(added).description().seed == 7
    rows = {row.run_id: row.in_grid for row in lab.dir().read_index()}
    assert (len(rows), rows[added]) == (3, True)
    (status,) = json.loads(lab.run("status", "tiny", "--json"))
    assert [run["point"]["seed"] for run in status["runs"]] == [0, 1, 7]
    lab.run("collect", "tiny")
    assert sorted(pl.read_parquet(lab.dir().table_parquet)["seed"].to_list()) == [0, 1, 7]
    lab.run("report", "tiny")
    page = (lab.results / "tiny" / "report" / "index.html").read_text()
    assert added in page
    assert "outside this grid" not in page
    assert "1 run to do again" in lab.run("retry", "tiny", added)
    lab.count_grid(runs=3)  # a later version of the grid keeps what was added
    assert "tiny: 1 run to do" in lab.run("sweep", *GRID)
    assert lab.states() == ["done"] * 4

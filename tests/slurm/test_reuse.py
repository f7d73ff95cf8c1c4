"""Runs on a cluster go on from shorter ones and are taken from a library, also from a laptop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.rundir import SweepDir
from orchestrator.rundir.copies.adoption import adopted_from
from tests.integration.test_extend import program, train
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab
from tests.slurm.test_remote import Laptop, laptop

__all__ = ["laptop"]

pytestmark = pytest.mark.nightly


def grid(lab: Lab, name: str, steps: int, seeds: int, **sections: Any) -> None:
    content = {**program(lab, steps, length="steps", **sections), "name": name}
    (lab.folder / f"{name}.yaml").write_text(json.dumps({**content, "matrix": {"seed": list(range(seeds))}}))


def reuse(lab: Lab, old: Lab) -> None:
    """Two of three runs are adopted; then three longer ones go on from them all."""
    train(old, program(old, 4))
    grid(lab, "new", 4, 3, library=str(old.results))
    assert f"2 of 3 runs are in the library {old.results}" in lab.sweep("new", "--follow")
    assert lab.states("new") == ["done"] * 3
    grid(lab, "new", 9, 3)
    assert "3 runs go on from 3 shorter ones: 12 of 27 frames are there" in lab.sweep("new", "--follow")
    assert lab.states("new") == ["done"] * 6


def check(sweep: SweepDir) -> None:
    runs = [sweep.run_to_read(run_id) for run_id in sweep.run_ids()]
    assert sum(adopted_from(run) is not None for run in runs) == 2
    assert sorted([len(piece.rows) for piece in run.chain()] for run in runs) == [[4]] * 3 + [[4, 5]] * 3


def test_on_a_cluster(slurm: Cluster, tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    reuse(lab, Lab(tmp_path / "old"))
    check(lab.dir("new"))


def test_from_a_laptop(laptop: Laptop, tmp_path: Path) -> None:
    reuse(laptop, Lab(tmp_path / "old"))
    check(SweepDir(laptop.there / "results", "new"))
    laptop.run("sync", "profile.yaml")
    check(laptop.dir("new"))

"""A lab's own programs, unedited, on a cluster: the grids that `init --from` drafts run there as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.afternoon import PROGRAMS, write_programs
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab


@pytest.mark.nightly
def test_drafted_grids_run_on_a_cluster_unchanged(lab: Lab, slurm: Cluster) -> None:
    write_programs(lab.folder)
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    names = {Path(program).stem: number for program, number in PROGRAMS.items()}
    for program in PROGRAMS:
        lab.run("init", "--from", program)
    for name in names:
        lab.sweep(f"sweeps/{name}", env=path)
    for name, number in names.items():
        lab.wait_done(name)
        lab.run("collect", name)
        runs = pl.read_parquet(lab.results / name / "results.parquet")
        assert runs["state"].to_list() == ["done"] * number
        assert runs["final_return"].n_unique() == number

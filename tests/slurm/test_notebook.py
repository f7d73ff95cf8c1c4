"""The notebook of docs/, its cells unchanged but for the target: the same sweep on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import submissions
from tests.notebooks import execute, install_kernel, our_notebook, shown
from tests.slurm.cluster import Cluster


@pytest.mark.nightly
def test_the_same_cells_run_on_a_cluster(slurm: Cluster, own_world: Path, tmp_path: Path) -> None:
    install_kernel()
    notebook = our_notebook()
    cells = {cell.id: cell for cell in notebook.cells}
    assert cells["folder"].source.count("ON = None") == 1
    cells["folder"].source = cells["folder"].source.replace("ON = None", "ON = 'test-cluster'")
    execute(notebook, tmp_path)
    (followed,) = shown(cells["follow"])
    assert followed.startswith("quick  4/4 done\n")
    assert len(shown(cells["returns"], "image/png")) == len(shown(cells["speed"], "image/png")) == 1
    sweep = SweepDir.existing(own_world / "first-sweep" / "results", "quick")
    (submission,) = submissions(sweep.read_ledger())
    ids = submission.job_ids.values()
    assert ids
    assert all(job_id.startswith("slurm:") for job_id in ids)

"""Libraries behind ssh and in a bucket: of them, what is needed comes to a cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.rundir.copies.adoption import adopted_from
from tests import warm
from tests.buckets import BUCKET, BucketServer
from tests.integration.test_extend import program, train
from tests.slurm.lab import Lab
from tests.ssh.server import ALIAS, Server


@pytest.fixture
def old(tmp_path: Path) -> Lab:
    """A lab that has trained two seeds."""
    lab = Lab(tmp_path / "old")
    train(lab, program(lab, 4))
    return lab


def adopts(new: Lab, library: str) -> None:
    grid = program(new, 4, library=library)
    grid["matrix"]["seed"] = [0, 1, 2]
    (new.folder / "grid.yaml").write_text(json.dumps(grid))
    assert f"2 of 3 runs are in the library {library}" in new.run("sweep", "grid.yaml", "--dry-run")
    new.run("sweep", "grid.yaml", env=warm.WORKERS)
    assert new.states() == ["done"] * 3
    runs = [new.dir().run(run_id) for run_id in new.dir().run_ids()]
    assert sum(adopted_from(run) is not None for run in runs) == 2
    for run in runs:
        run.verify(run.result(), checksums=True)
    longer = program(new, 9, length="steps", library=library)
    (new.folder / "grid.yaml").write_text(json.dumps(longer | {"name": "longer"}))
    told = new.run("sweep", "grid.yaml", "--results", "others", env=warm.WORKERS)
    assert "2 runs go on from 2 shorter ones: 8 of 18 frames are there" in told
    assert new.run("status", "longer", "--results", "others").count("done") >= 2


def test_a_library_behind_ssh(old: Lab, server: Server, tmp_path: Path) -> None:
    old.results.rename(server.home / "results")
    adopts(Lab(tmp_path / "new"), f"ssh:{ALIAS}:results")


@pytest.mark.nightly
def test_a_library_in_a_bucket(old: Lab, bucket: BucketServer, tmp_path: Path) -> None:
    client = bucket.client()
    for path in sorted(old.results.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), BUCKET, f"lab/{path.relative_to(old.results)}")
    adopts(Lab(tmp_path / "new"), f"s3://{BUCKET}/lab")

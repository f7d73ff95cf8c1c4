"""Forks on a cluster: left to its jobs, in arrays and chains, over several targets, behind ssh."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.rundir import SweepDir
from tests import helpers
from tests.integration.test_fork import AT, STEPS, expected, program, returns_of
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab
from tests.slurm.test_remote import Laptop, laptop

__all__ = ["laptop"]

pytestmark = pytest.mark.nightly

FORKS = "4 runs waiting for 2 runs to fork from, trained first"
WITH_LOCAL = ("sweep", "tiny.yaml", "--on", "local,profile.yaml", "--slots", "1")


def write(lab: Lab, **sections: Any) -> None:
    (lab.folder / "tiny.yaml").write_text(json.dumps(program(lab, **sections)))


def check(sweep: SweepDir, number: int) -> None:
    """Every run is done once, forks from the ends of their trunks, with one stream of random numbers."""
    rows = sweep.read_index()
    assert len(rows) == number
    for row in rows:
        run = sweep.run_to_read(row.run_id)
        assert run.result().attempts == 1
        assert returns_of(run) == expected(row.point["seed"], row.point["gain"], row.point["steps"])
        lengths = [AT] if row.point["steps"] == AT else [AT, STEPS - AT]
        assert [len(piece.rows) for piece in run.chain()] == lengths


def wait(lab: Lab, slurm: Cluster, number: int) -> None:
    helpers.wait_for(lambda: lab.results_of() == number, what="all results")
    helpers.wait_for(lambda: lab.left_queue("tiny", slurm), what="the end of the jobs")
    assert lab.states() == ["done"] * number


@pytest.mark.parametrize("keys", [{}, {"pack": 1}, {"chain": 2, "requeue": False}])
def test_jobs_that_end_submit_the_forks(slurm: Cluster, lab: Lab, keys: dict[str, Any]) -> None:
    lab.profile(**keys)
    write(lab)
    assert f"{FORKS}; jobs that end submit them" in lab.sweep("tiny", "--detach")
    assert "6/6 done" in lab.run("status", "tiny", "--watch")
    wait(lab, slurm, 6)
    check(lab.dir(), 6)
    assert "6/6 done" in lab.sweep()


def test_a_command_that_stays_submits_them(slurm: Cluster, lab: Lab) -> None:
    write(lab)
    assert f"{FORKS}; this command submits them then" in lab.sweep("tiny", "--follow")
    wait(lab, slurm, 6)
    check(lab.dir(), 6)


def test_trunk_and_fork_on_different_targets_of_a_tree(slurm: Cluster, lab: Lab) -> None:
    write(lab)
    assert FORKS in lab.run(*WITH_LOCAL, "--dry-run")
    assert f"{FORKS}; this command again submits them then" in lab.run(*WITH_LOCAL, "--detach")
    helpers.wait_for(lambda: lab.results_of() == 2, what="the trunks")
    lab.run(*WITH_LOCAL)
    wait(lab, slurm, 6)
    check(lab.dir(), 6)


def test_from_a_laptop(laptop: Laptop) -> None:
    """Also without the checkpoints of the trunks here; a variant added later trains no trunk again."""
    write(laptop)
    planned = laptop.sweep("tiny", "--dry-run")
    assert "1 job, 2 runs, 2 at once" in planned
    assert FORKS in planned
    assert f"{FORKS}; jobs that end submit them" in laptop.sweep("tiny", "--follow")
    assert laptop.states() == ["done"] * 6
    write(laptop, matrix={"gain": [1, 2, 3], "seed": [0, 1]})
    assert "2 runs go on from 2 shorter ones: 8 of 20 frames are there" in laptop.sweep("tiny", "--follow")
    check(laptop.tree(), 8)
    write(laptop, matrix={"gain": [1, 2, 3, 4], "seed": [0, 1]})
    assert "bring it with orchestrate sync" in laptop.run("sweep", "tiny.yaml", "--on", "local")
    laptop.run("sync", "profile.yaml")
    laptop.run("sweep", "tiny.yaml", "--on", "local")
    check(laptop.dir(), 10)
    laptop.run("collect", "tiny")


def test_a_fork_in_another_tree_than_its_trunk_is_refused(laptop: Laptop) -> None:
    write(laptop, matrix={"gain": [1], "seed": [0, 1]})
    laptop.run("sweep", "tiny.yaml", "--on", "local")
    write(laptop, matrix={"gain": [1, 2], "seed": [0, 1]})
    assert "fork: no finished run" in laptop.sweep("tiny", code=2)
    laptop.run("sweep", "tiny.yaml", "--on", "local")
    check(laptop.dir(), 6)


def test_forks_stay_with_their_trunk_where_a_laptop_and_a_cluster_share(laptop: Laptop) -> None:
    write(laptop)
    laptop.run(*WITH_LOCAL)
    assert laptop.states() == ["done"] * 6
    check(laptop.dir(), 6)
    there = {row.run_id for row in laptop.tree().read_index()}
    assert len(there) == 3
    write(laptop, matrix={"gain": [1, 2, 3], "seed": [0, 1]})
    laptop.run(*WITH_LOCAL)
    check(laptop.dir(), 8)
    assert len(laptop.tree().read_index()) == 4

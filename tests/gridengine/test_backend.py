"""Run the example plug-in examples/grid-engine on a real Grid Engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.audit import Audit
from tests.gridengine.cell import PROGRAMS, Cell
from tests.helpers import wait_for
from tests.slurm.lab import STEPS, Lab


def job_ids(lab: Lab) -> dict[str, str]:
    return {token: one.removeprefix("gridengine:") for token, one in lab.job_ids().items()}


def test_a_sweep_is_worked_through(lab: Lab, cell: Cell) -> None:
    lab.count_grid(runs=6)
    dry = lab.sweep("tiny", "--dry-run")
    assert "#$ -pe smp 2" in dry
    assert "#$ -l h_rt=3600,s_rt=3480" in dry
    lab.sweep("tiny", "--follow")
    assert lab.states() == ["done"] * 6
    assert {log.holder.job_id.split(".")[0] for log in lab.dir().read_journals() if log.holder} == {
        one.split(".")[0] for one in job_ids(lab).values()
    }
    assert "Grid Engine" in lab.run("doctor", "--on", "profile.yaml", "--json", code=0)


@pytest.mark.nightly
def test_a_job_near_its_time_limit_goes_back_and_goes_on(lab: Lab, cell: Cell) -> None:
    profile = lab.folder / "profile.yaml"
    profile.write_text(profile.read_text().replace('"1:00:00"', '"0:01:00"') + "signal: 30\n")
    lab.count_grid(runs=1, last=STEPS // 2)  # held there until the warning has come
    lab.sweep("tiny", "--slots", "1")
    (job,) = job_ids(lab).values()
    wait_for(lambda: any(kind == "leave" for kind, *_ in Audit(lab.folder / "audit").lines), what="a warning")
    lab.pace(0.0)
    wait_for(lambda: set(lab.states()) == {"done"}, what="a finished run")
    assert len(lab.hosts()) == 2, "the same job began again"
    assert list(job_ids(lab).values()) == [job]


@pytest.mark.nightly
def test_jobs_submit_what_the_queue_had_no_room_for(lab: Lab, cell: Cell) -> None:
    profile = lab.folder / "profile.yaml"
    profile.write_text(profile.read_text() + "max_jobs: 2\npack: 1\n")
    lab.count_grid(runs=4)
    assert "2 runs" in lab.sweep("tiny")
    wait_for(lambda: set(lab.states()) == {"done"}, what="finished runs")
    assert len(job_ids(lab)) == 4


def test_cancelled_jobs_save_and_leave(lab: Lab, cell: Cell) -> None:
    lab.count_grid(runs=6, last=4)
    lab.sweep("tiny")
    wait_for(lambda: lab.steps() >= 4, what="runs at work")
    lab.run("cancel", "tiny")
    wait_for(lambda: cell.tasks() == [], what="an empty queue")
    assert set(lab.states()) == {"cancelled"}
    assert {kind for kind, *_ in Audit(lab.folder / "audit").lines} >= {"saved", "leave"}


def test_a_submission_whose_answer_was_lost_is_found(lab: Lab, cell: Cell, tmp_path: Path) -> None:
    lab.count_grid(runs=2, last=4)
    fake = tmp_path / "qsub"
    fake.write_text(f'#!/bin/bash\n{PROGRAMS}/qsub "$@" >/dev/null\necho "error: commlib" >&2\nexit 1\n')
    fake.chmod(0o755)
    lab.sweep("tiny", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert sorted(job_ids(lab).values()) == sorted(cell.tasks())


def test_keys_and_options_of_a_plug_in(lab: Lab, cell: Cell) -> None:
    lab.count_grid(runs=1)
    assert "#$ -p -5" in lab.sweep("tiny", "--dry-run", "--", "-p", "-5")
    profile = lab.folder / "profile.yaml"
    profile.write_text(profile.read_text() + "partition: gpu\n")
    assert "found partition, which is no key of backend: gridengine" in lab.sweep("tiny", code=2)
    profile.write_text(profile.read_text().replace("partition: gpu", "quue: all.q"))
    assert "did you mean queue?" in lab.sweep("tiny", code=2)

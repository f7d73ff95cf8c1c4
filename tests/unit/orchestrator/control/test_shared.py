"""A sweep on several targets is inspected once for a command, as on one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.backends.local import LocalBackend
from orchestrator.backends.script import Script
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.control import flow, submit
from orchestrator.control.cloud.exchange import quietly
from orchestrator.core.types import Array, JobState, JobStatus
from orchestrator.planning.plan import SubmitOptions
from orchestrator.rundir import SweepDir
from orchestrator.status import disk_check

GRID = "name: tiny\ntrainer: command\nbase: {command: ['true']}\nmatrix: {seed: range(4)}\n"


@pytest.mark.parametrize("dry", [True, False])
def test_the_run_folders_are_inspected_once_for_all_targets(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry: bool
) -> None:
    names = [f"{tmp_path}/{name}.yaml" for name in ("left", "right")]
    for name in names:
        Path(name).write_text("backend: local\npack: 1\n")
    looks = []

    def inspect(*arguments: object) -> object:
        looks.append(arguments)
        return original(*arguments)  # type: ignore[arg-type]

    original = disk_check.inspect
    monkeypatch.setattr(submit, "inspect", inspect)
    sweep = runs_of(parse_grid(GRID, "tiny.yaml"))
    sweep_dir, planned = SweepDir(results, "tiny"), list[Array]()

    def take(_: LocalBackend, script: Script, after: Sequence[str]) -> dict[str, str]:
        planned.append(script.array)
        return {job.token: f"local:{job.token}" for job in script.array.jobs}

    monkeypatch.setattr(LocalBackend, "submit", take)
    monkeypatch.setattr(LocalBackend, "poll", lambda _, ids: dict.fromkeys(ids, JobStatus(JobState.QUEUED)))
    work = flow.flow_of(sweep, sweep_dir, SubmitOptions(), ",".join(names))
    if dry:
        arrays = [(one["token"], one["run_ids"]) for one in work.rehearse()["arrays"]]
    else:
        work.start(quietly, quietly, detach=True)
        arrays = [(array.token, list(array.run_ids)) for array in planned]
    assert [token for token, _ in arrays] == ["0001-0001", "0002-0001"]
    assert sorted(run_id for _, run_ids in arrays for run_id in run_ids) == sorted(sweep.points)
    assert len(looks) == 1

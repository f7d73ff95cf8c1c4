"""A program that follows no protocol: its files are its metrics, while it runs, at its end and later."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from orchestrator.rundir import SweepDir
from tests.integration.test_programs import Project

PROGRAM = """import sys
kind, seed = sys.argv[1], int(sys.argv[2])
tables = {
    "usual": ("progress.csv", "time/total_timesteps,rollout/ep_rew_mean"),
    "odd": ("scores.csv", "tick,score"),
}
if kind in tables:
    name, head = tables[kind]
    rows = "".join(f"{100 * step},{step + seed}\\n" for step in range(1, 4))
    open(name, "w").write(f"{head}\\n{rows}")
"""
GRID = """name: mine
trainer: command
base: {command: [PYTHON, train.py, "{kind}", "{seed}"]}
matrix: {kind: [usual, odd, none], seed: [0]}
""".replace("PYTHON", sys.executable)


def test_a_programs_files_are_its_metrics_at_once_or_later(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", git=False)
    project.write("train.py", PROGRAM)
    project.write("data.csv", "step,reward\n1,1\n")  # of the project, and none of a run's metrics
    project.write("grid.yaml", GRID)
    said = project.run("sweep", "grid.yaml")
    assert "3/3 done" in said
    status = project.run("status", "mine")
    assert "no metrics found: looked for TensorBoard" in status
    assert "without frames or values: scores.csv" in project.run("status", "mine", "--json")

    def returns() -> dict[str, tuple[float | None, int]]:
        return {row["kind"]: (row["last_return"], row["frames"]) for row in project.table().to_dicts()}

    assert returns() == {"usual": (3.0, 300), "odd": (None, 0), "none": (None, 0)}
    # The grid names them later: nothing is trained again.
    project.write("grid.yaml", GRID + "metrics: {from: csv, frames: tick, return: score}\n")
    assert "nothing" in project.run("sweep", "grid.yaml")
    assert returns() == {"usual": (3.0, 300), "odd": (3.0, 300), "none": (None, 0)}
    sweep = SweepDir(project.folder / "results", "mine")
    assert all(len(sweep.run(run_id).attempts()) == 1 for run_id in sweep.run_ids())
    chosen = json.loads(
        project.run("collect", "mine", "--json", "--final", "last", "--return", "rollout/ep_rew_mean")
    )
    assert chosen["final"].endswith("of rollout/ep_rew_mean (higher is better)")

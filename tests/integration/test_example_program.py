"""examples/program, the program that docs/run-protocol.md shows: interrupted, and finished twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from orchestrator.rundir import RunDir, SweepDir
from tests.helpers import ROOT

GRID = """name: hill
trainer: command
base: {{command: [{python}, train.py, "{steps}", "0.5"]}}
matrix: {{seed: [0]}}
"""


def trained(folder: Path, steps: int = 25) -> RunDir:
    """The run of the example's program in a copy of its folder, as the command line leaves it."""
    if not folder.exists():
        shutil.copytree(ROOT / "examples" / "program", folder)
    (folder / "grid.yaml").write_text(GRID.format(python=sys.executable, steps=steps))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator.ui.cli", "sweep", "--grid", "grid.yaml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sweep = SweepDir(folder / "results", "hill")
    (run_id,) = sweep.run_ids()
    return sweep.run(run_id)


def history(run: RunDir) -> list[tuple[int, dict[str, float]]]:
    return [(row.frames, dict(row.metrics)) for row in run.history()]


def lose_result(run: RunDir) -> None:
    """Leave the run as its machine does that dies when the program has left and its result is not written."""
    run.result_path.unlink()
    run.attempts()[-1].end_path.unlink()


def test_the_example_says_what_it_is(tmp_path: Path) -> None:
    result = trained(tmp_path / "a").result()
    assert result is not None
    assert (result.frames, result.fields["exactness"]) == (2500, "exact")
    assert result.fields["versions"]["hill-climber"] == "1.0"


def test_a_program_that_finished_is_started_again_from_its_last_checkpoint(tmp_path: Path) -> None:
    """Its last side effect comes twice, its metrics once."""
    run = trained(tmp_path / "a")
    before = history(run)
    (summary,) = (tmp_path / "a").glob("summary-*.txt")
    told = summary.read_text()
    summary.unlink()
    lose_result(run)
    assert trained(tmp_path / "a").path == run.path
    first, second = run.attempts()
    assert [first.number, second.number] == [1, 2]
    assert summary.read_text() == told  # written a second time
    assert history(run) == before
    assert [file.frames for file in run.checkpoints()] == [2500]
    assert summary.name in second.log.read_text()


def test_interrupted_it_is_what_it_would_have_been(tmp_path: Path) -> None:
    """Going on from a checkpoint in the middle, as exactly as it says."""
    run = trained(tmp_path / "whole")
    whole = history(run)
    environment = {
        **os.environ,
        "ORCHESTRATE_RUN": str(run.description_path),
        "ORCHESTRATE_SEED": "0",
        "ORCHESTRATE_METRICS": str(tmp_path / "metrics"),
        "ORCHESTRATE_CHECKPOINT_DIR": str(tmp_path),
    }
    program = [sys.executable, str(ROOT / "examples" / "program" / "train.py")]
    subprocess.run([*program, "10", "0.5"], cwd=tmp_path, env=environment, check=True)
    environment["ORCHESTRATE_RESUME"] = str(tmp_path / "1000.json")
    subprocess.run([*program, "25", "0.5"], cwd=tmp_path, env=environment, check=True)
    lines = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    assert [(row["frames"], row["metrics"]) for row in lines if "frames" in row] == whole

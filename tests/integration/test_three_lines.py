"""Programs that resume by the three lines of ``orchestrate_run``: killed, stopped, compared bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.trainers.command import program_hook
from tests.helpers import ROOT, command_run, make_sweep, published, work

HOOK = Path(program_hook.__file__).parent
EXAMPLES = ROOT / "examples" / "resume"


@pytest.mark.nightly(but=["without a library"])
@pytest.mark.parametrize(
    "programs",
    [
        pytest.param(["evolution", "ppo"], id="without a library"),
        pytest.param(["torchrl_reinforce", "sb3_ppo", "lightning_fit", "jax_regression"], id="libraries"),
    ],
)
def test_a_stopped_program_equals_one_left_alone(tmp_path: Path, programs: list[str]) -> None:
    """By SIGKILL, then by SIGTERM, then by SIGUSR1; each start goes on from the last checkpoint."""
    scripts = [str(EXAMPLES / f"{name}.py") for name in programs]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "resumed_program.py"), "6", *scripts],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(HOOK),
            "OMP_NUM_THREADS": "1",
            "ORCHESTRATE_RESUME": "checkpoints",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot be saved" not in done.stderr
    exits = json.loads((tmp_path / "exits.json").read_text())
    for name in programs:
        assert exits[f"{name}/whole"] == [0], done.stderr
        assert exits[f"{name}/stopped"] == [-9, 75, 75, 0], done.stderr
        whole, stopped = (metrics(tmp_path / name / kind / "metrics.jsonl") for kind in ("whole", "stopped"))
        assert len(whole) == 6
        assert stopped == whole, name


def test_under_orchestrate_a_killed_program_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    """The module is found without a copy, and a copy beside the script comes first."""
    program = tmp_path / "train.py"
    program.write_text(
        "import os, orchestrate_run\n"
        "from orchestrate_run import run\n"
        "start, total = run.resume(total=4, exactness='exact'), run.value('total', 0)\n"
        "for step in range(start + 1, 5):\n"
        "    total += step\n"
        "    run.log(step, total=total, copied='program_hook' not in orchestrate_run.__file__)\n"
        "    run.save(step, now=True, total=total)\n"
        "    if step == 2 and start == 0: os.kill(os.getpid(), 9)\n"
    )
    (tmp_path / "vendored").mkdir()
    for file in (program, HOOK / "orchestrate_run.py"):
        shutil.copy(file, tmp_path / "vendored")
    programs = program, tmp_path / "vendored" / "train.py"
    sweep = make_sweep(tmp_path / "results", map(command_run, [[script] for script in programs]))
    assert work(sweep) == 0
    copied = []
    for run in map(sweep.run, sweep.run_ids()):
        rows = [dict(row.metrics) for row in run.history()]
        assert [row["total"] for row in rows] == [1, 3, 6, 10]
        assert len(run.attempts()) == 2
        assert published(run).fields["exactness"] == "exact"
        copied.append(rows[-1]["copied"])
    assert sorted(copied) == [0, 1]


def metrics(path: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "program" not in line]

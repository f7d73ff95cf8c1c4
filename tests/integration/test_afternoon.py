"""A lab's own programs, unedited, go from `init --from` to a report in five commands each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests import warm
from tests.afternoon import FILES, PROGRAMS, write_programs
from tests.helpers import ROOT


@pytest.mark.nightly(but=["steps.py", "sim.sh"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_from_a_program_to_a_report(program: str, tmp_path: Path) -> None:
    write_programs(tmp_path)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    name = Path(program).stem

    def orchestrate(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.ui.cli", *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                **warm.COMMANDS,
                "PYTHONPATH": str(ROOT),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    orchestrate("init", "--from", program)
    assert "all good" in orchestrate("check", f"sweeps/{name}.yaml")
    orchestrate("sweep", "--grid", f"sweeps/{name}.yaml")
    orchestrate("collect", name)
    orchestrate("report", name)

    runs = pl.read_parquet(tmp_path / "results" / name / "results.parquet")
    assert runs["state"].to_list() == ["done"] * PROGRAMS[program]
    assert runs["final_return"].n_unique() == PROGRAMS[program], "each run's seed and keys reach the program"
    curves = pl.read_parquet(tmp_path / "results" / name / "metrics.parquet")
    assert curves.group_by("run_id").len()["len"].min() >= 3
    assert 'id="answer"' in (tmp_path / "results" / name / "report" / "index.html").read_text()
    assert {path for path in FILES if (tmp_path / path).read_text() != FILES[path].lstrip("\n")} == set()
    assert not (tmp_path / "progress.csv").exists()

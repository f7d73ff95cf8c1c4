"""What `collect` says of the files that it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.rundir import SweepDir
from orchestrator.ui.cli.results.collect import _print_written


@pytest.mark.parametrize(
    ("problems", "end"),
    [
        ([], "marl_eval.json"),
        (["speed/a1: metrics.csv: cut off"], "marl_eval.json, without 1 damaged run"),
        (["speed/a1: x", "speed/a1: y", "speed/b2: z", "other/c3: z"], ", without 2 damaged runs"),
    ],
)
def test_damaged_runs_are_counted_where_files_are_named(
    problems: list[str], end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _print_written(SweepDir(tmp_path, "speed"), [], problems)
    assert capsys.readouterr().out.replace("\n", "").endswith(end)

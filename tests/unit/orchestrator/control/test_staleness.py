"""What is said of the code of finished runs where today's is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.control.staleness import with_stale
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, SweepDir
from orchestrator.rundir.copy_origin import Copy, write_copy
from orchestrator.status.survey import RunStatus, Survey


@pytest.mark.parametrize(
    ("codes", "notes"),
    [
        (
            ("0a", "0a", "0b", None),
            (
                "3 finished runs were trained by 2 different codes (0a: 2, 0b: 1), and which runs are stale "
                "is unknown",
            ),
        ),
        (("0a", "0a", None), ()),
    ],
)
def test_a_copy_says_that_different_code_trained_its_runs(
    tmp_path: Path, codes: tuple[str | None, ...], notes: tuple[str, ...]
) -> None:
    sweep = SweepDir(tmp_path, "copied")
    write_copy(sweep.path, Copy("cluster", "copied", 0.0))
    names = [f"run{number}" for number in range(len(codes))]
    statuses = {
        name: RunStatus(name, RunState.DONE, code_id=code) for name, code in zip(names, codes, strict=True)
    }
    seen = with_stale(Survey([IndexRow(name, True, {}) for name in names], statuses, frozenset()), sweep)
    assert seen.statuses == statuses
    assert seen.notes == notes

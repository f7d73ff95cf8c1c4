"""`status --why` refuses options that it does not follow, and reads damaged results."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import RunState
from orchestrator.ui.cli import app
from orchestrator.ui.cli.watch import why


@pytest.mark.parametrize("option", ["--json", "--watch", "--exchange"])
def test_why_with_another_view_is_refused(option: str, tmp_path: Path) -> None:
    argv = ["status", "lab", "--why", "seed=0", option, "--results", str(tmp_path)]
    error = CliRunner().invoke(app, argv).exception
    assert isinstance(error, OrchestrateError)
    assert error.hint == f"leave {option} out"


@pytest.mark.parametrize("versions", [None, 3, ["torch"], {"": "1"}, {"no-such-package": "1"}])
def test_versions_that_cannot_be_compared_are_left_out(
    versions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, status = SimpleNamespace(run_id="a"), SimpleNamespace(state=RunState.STALE, why="another version")
    today = SimpleNamespace(unknown=None, today=None, differences=lambda row, status: ("the whole code",))
    monkeypatch.setattr(why, "present", lambda sweep_dir: SimpleNamespace(rows=[row], statuses={"a": status}))
    monkeypatch.setattr(why, "one_run", lambda rows, selector, name: row)
    monkeypatch.setattr(why, "Staleness", lambda sweep_dir: today)
    result = SimpleNamespace(fields={"versions": versions})
    sweep_dir: Any = SimpleNamespace(
        name="lab", run_to_read=lambda run_id: SimpleNamespace(result=lambda: result)
    )
    first, last = why.why_lines(sweep_dir, "a")
    assert first == "a is stale: another version"
    assert last.startswith("next: orchestrate accept lab a")

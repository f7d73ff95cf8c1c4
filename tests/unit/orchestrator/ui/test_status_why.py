"""`status --why` refuses options that it does not follow, and reads damaged results."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.control.flow.leaving_runs import LeavingRuns
from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.cli import app
from orchestrator.ui.cli.submit.sweep import _consent
from orchestrator.ui.cli.watch.why import _versions


@pytest.mark.parametrize("option", ["--json", "--watch", "--exchange"])
def test_why_with_another_view_is_refused(option: str, tmp_path: Path) -> None:
    argv = ["status", "lab", "--why", "seed=0", option, "--results", str(tmp_path)]
    error = CliRunner().invoke(app, argv).exception
    assert isinstance(error, OrchestrateError)
    assert error.hint == f"leave {option} out"


@pytest.mark.parametrize("versions", [None, 3, ["torch"], {"": "1"}, {"no-such-package": "1"}])
def test_versions_that_cannot_be_compared_are_left_out(versions: Any) -> None:
    result = SimpleNamespace(fields={"versions": versions})
    sweep_dir: Any = SimpleNamespace(run_to_read=lambda run_id: SimpleNamespace(result=lambda: result))
    assert [*_versions(sweep_dir, "a")] == []


def test_the_question_of_a_sweep_is_no_part_of_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def confirm(text: str, **words: Any) -> bool:
        asked.append(words)
        return True

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", confirm)
    _consent(LeavingRuns(1, {}), yes=False)
    assert asked == [{"err": True}]

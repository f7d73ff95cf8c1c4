"""`retry` of runs that several trees have: each does its own again, and none gets those of another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.control import fleet, flow, submit
from orchestrator.rundir import SweepDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import AssignedEntry, CancelEntry, TreePlace
from orchestrator.ui.cli import app
from orchestrator.ui.cli.submit import work_through

GRID = "name: tiny\ntrainer: command\nbase: {command: ['true']}\nmatrix: {seed: range(3)}\n"


def test_each_tree_does_its_own_runs_again(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = runs_of(parse_grid(GRID, "tiny.yaml"))
    own, *others = [run.run_id for run in sweep.runs]
    folder = SweepDir(results, "tiny")
    submit.record(sweep, folder)
    for name, run_id in zip("ab", others, strict=True):
        place = TreePlace(name, f"{name}.yaml", name, f"/{name}")
        given = frozenset([run_id])
        folder.add_to_ledger(
            AssignedEntry(place=place, code=SentCode("c", (), None), run_ids=given, home="h")
        )
    folder.add_to_ledger(CancelEntry(runs={own: 0}))
    shares: dict[str | None, Collection[str]] = {}

    def decide(_: SweepDir, one: Any, command: Sequence[str], run_ids: Sequence[str]) -> Any:
        assert command == ["retry", "tiny", "--delegated"]
        return {"runs": run_ids, "problems": []}

    def again(_: Any, __: SweepDir, ___: Any, on: str | None, run_ids: Collection[str]) -> None:
        shares[on] = [*run_ids]

    monkeypatch.setattr(fleet, "decide", decide)
    monkeypatch.setattr(flow, "again_flow", again)
    monkeypatch.setattr(work_through, "work_through", lambda *_, **__: 0)
    named = [own, *others]
    done = CliRunner().invoke(app, ["retry", "tiny", *named, "--results", str(results)])
    assert "3 runs to do again" in done.output
    assert shares == {None: [own], "a.yaml": others[:1], "b.yaml": others[1:]}

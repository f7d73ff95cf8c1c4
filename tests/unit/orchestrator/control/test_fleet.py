"""Decisions about a sweep whose runs several trees have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control import fleet
from orchestrator.core.errors import OrchestrateError, StorageError, UnreachableError
from orchestrator.rundir import SweepDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import AssignedEntry, TreePlace
from orchestrator.status.ownership import TreeAssignment
from tests.helpers import command_run, make_sweep


@pytest.fixture
def shared(results: Path) -> SweepDir:
    """A sweep of two runs, one at ``first`` and one at ``second``."""
    runs = [command_run(["true"], seed=seed) for seed in range(2)]
    folder = make_sweep(results, runs)
    for name, run in zip(("first", "second"), runs, strict=True):
        place = TreePlace(name, f"{name}.yaml", name, f"/{name}")
        given = frozenset([run.run_id])
        folder.add_to_ledger(
            AssignedEntry(place=place, code=SentCode("c", (), None), run_ids=given, home="h")
        )
    return folder


def test_a_place_that_is_out_of_reach_keeps_no_other_from_stopping(
    shared: SweepDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def decide(_: SweepDir, one: TreeAssignment, __: Sequence[str]) -> Any:
        asked.append(one.place.name)
        if one.place.name == "first":
            raise UnreachableError("first does not answer")
        return {"stopped": True}

    monkeypatch.setattr(fleet, "decide", decide)
    with pytest.raises(UnreachableError, match="first does not answer"):
        fleet.stop(shared)
    assert asked == ["first", "second"]


def test_what_a_place_could_not_do_is_a_problem_of_the_decision(
    shared: SweepDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = fleet.DecisionReport((), {}, (StorageError("the disk is full", hint="make room"),))

    def decide(_: SweepDir, one: TreeAssignment, __: Sequence[str], run_ids: Sequence[str]) -> Any:
        return {**full.to_json(), "runs": run_ids}

    monkeypatch.setattr(fleet, "decide", decide)
    run_ids = [row.run_id for row in shared.read_index()]
    decided = fleet.cancel(shared, run_ids)
    assert decided.run_ids == run_ids
    found: list[OrchestrateError] = list(decided.problems)
    assert [(str(one), one.hint, one.exit_code) for one in found] == [
        (f"{name}: the disk is full", "make room", StorageError.exit_code) for name in ("first", "second")
    ]

"""What is said of the code of finished runs where today's is not known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.control import staleness
from orchestrator.control.staleness import with_stale
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, SweepDir
from orchestrator.rundir.copy_origin import Copy, write_copy
from orchestrator.rundir.records.ledger_entries import AcceptEntry, Change
from orchestrator.status.ledger import accepted_changes
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


def test_an_accepted_code_of_a_trainer_makes_no_run_stale_and_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = SweepDir(tmp_path, "mine")
    sweep.create()
    today = ["new"]
    monkeypatch.setattr(staleness, "_trainer_of", lambda _: SimpleNamespace(runs_program=False))
    monkeypatch.setattr(staleness, "is_installed", lambda _: True)
    monkeypatch.setattr(staleness, "code_id", lambda _: today[0])
    codes = {"a": "old", "b": "old", "c": "new", "d": None}
    statuses = {name: RunStatus(name, RunState.DONE, code_id=code) for name, code in codes.items()}
    seen = Survey([IndexRow(name, True, {}) for name in codes], statuses, frozenset())

    def stale() -> set[str]:
        found = with_stale(seen, sweep).statuses
        return {name for name, status in found.items() if status.state is RunState.STALE}

    assert stale() == {"a", "b"}
    assert with_stale(seen, sweep).statuses["a"].message == "trained by other code (old, today's is new)"
    entry = AcceptEntry(run_ids=frozenset({"a"}), changes=(Change("", "old", "new"),), by="me", time=0)
    sweep.add_to_ledger(entry)
    assert stale() == {"b"}
    (line,) = accepted_changes(sweep.read_ledger())
    assert line.startswith("1 change accepted: the trainer's code, for 1 run, by me on 19")
    today[0] = "newer"
    assert stale() == {"a", "b", "c"}

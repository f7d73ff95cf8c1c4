"""What `status` says below its table."""

from __future__ import annotations

from rich.console import Console

from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import IndexRow
from orchestrator.status.survey import RunStatus, Survey
from orchestrator.ui.cli.watch.sweep_table import sweep_view


def test_reasons_of_one_cause_are_one_line() -> None:
    """Amounts of memory, addresses and numbers of processes differ from run to run; a place does not."""
    said = [
        "CUDA out of memory. Tried to allocate 2.00 GiB (pid 17)",
        "CUDA out of memory. Tried to allocate 512.00 MiB (pid 18)",
        "KeyError: 3 (train.py:5 in main)",
        "KeyError: 3 (train.py:9 in main)",
    ]
    ids = [f"{number:016d}" for number in range(len(said))]
    statuses = {
        run_id: RunStatus(run_id, RunState.FAILED, message=message)
        for run_id, message in zip(ids, said, strict=True)
    }
    seen = Survey([IndexRow(run_id, True, {"seed": run_id}) for run_id in ids], statuses, frozenset())
    console = Console(width=200)
    with console.capture() as shown:
        console.print(sweep_view("tiny", seen, None))
    lines = [line.strip() for line in shown.get().splitlines() if line.startswith("failed ")]
    assert lines == [
        f"failed 2 runs: {said[0]}",
        f"failed {ids[2][:8]}: {said[2]}",
        f"failed {ids[3][:8]}: {said[3]}",
    ]


def test_a_reason_that_only_repeats_the_state_is_left_out() -> None:
    run_id = "0" * 16
    statuses = {run_id: RunStatus(run_id, RunState.CANCELLED, reason=Reason.CANCELLED)}
    console = Console(width=200)
    with console.capture() as shown:
        console.print(
            sweep_view("tiny", Survey([IndexRow(run_id, True, {"seed": 0})], statuses, frozenset()), None)
        )
    assert "cancelled 00000000" not in shown.get()

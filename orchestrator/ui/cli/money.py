"""Print the cost of a sweep at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from orchestrator.rundir import SweepDir


def settle_up(sweep_dir: SweepDir, since: float, *, quiet: bool) -> None:
    """Record the runs' speeds; print predicted and actual cost of submissions ``since`` (epoch seconds)."""
    from orchestrator.planning.predictions import bills, lines
    from orchestrator.planning.throughput.record import take_up

    take_up(sweep_dir)
    if not quiet:
        for line in lines([bill for bill in bills(sweep_dir) if bill.time >= since]):
            typer.echo(line)

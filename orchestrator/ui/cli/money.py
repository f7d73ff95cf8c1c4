"""What commands say of money when a sweep is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from orchestrator.rundir import SweepDir


def settle_up(sweep_dir: SweepDir, since: float, *, quiet: bool) -> None:
    """Take up how fast its runs were; say what submissions made ``since`` then (epoch seconds) came to."""
    from orchestrator.planning.predictions import bills, lines
    from orchestrator.planning.throughput import take_up

    take_up(sweep_dir)
    if not quiet:
        for line in lines([bill for bill in bills(sweep_dir) if bill.time >= since]):
            typer.echo(line)

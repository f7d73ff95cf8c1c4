from __future__ import annotations

import os
import sys

import typer

from orchestrator.ui.cli.common import RESULTS, Results, Sweeps, chosen


def top(
    sweeps: Sweeps = None,
    results: Results = RESULTS,
) -> None:
    """Watch and control the jobs and runs of all targets on one screen; ? lists the keys.

    Shows jobs, runs, speed, cost so far and failures. Jobs go on when you
    leave.

    [bold]Examples[/bold]

      orchestrate top
      orchestrate top speed multiwalker
    """
    from orchestrator.core.errors import OrchestrateError

    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        raise OrchestrateError(
            "top needs a terminal to draw on, and this is none",
            hint=" ".join(["print it instead: orchestrate status", *(sweeps or ["--watch"])[:1]]),
        )
    chosen(results, sweeps or [])  # refuse an unknown name before the screen opens
    from orchestrator.ui.top.app import Top
    from orchestrator.ui.top.fleet_access import FleetTree

    app = Top(FleetTree(results, sweeps or []))
    app.run()
    for act in app.unfinished:
        typer.echo("finishing what you asked for (Ctrl-C leaves it undone)", err=True)
        act.join()
    if app.return_code:
        raise typer.Exit(app.return_code)

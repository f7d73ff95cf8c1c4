from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.core.formatting import count
from orchestrator.ui.cli.common import RESULTS, Json, Results, SweepName, chosen_runs, print_json


def accept(
    sweep: SweepName,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Id prefixes, or key=value,key=value for all that fit."),
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Declare changed code harmless: stale runs count as done again.

    Covers all stale runs, or those named, and the changes made until now: a
    later change makes the runs stale again. Reports name what was accepted.
    Look first: `orchestrate status SWEEP --why RUN`.

    [bold]Examples[/bold]

      orchestrate accept speed
      orchestrate accept speed 3fa9c1d2
    """
    from orchestrator.control.decisions import accept_changes
    from orchestrator.rundir import SweepDir
    from orchestrator.status.ledger import accepted_changes

    sweep_dir = SweepDir.existing(results, sweep)
    run_ids = {row.run_id for row in chosen_runs(sweep_dir, runs or [])}
    entry = accept_changes(sweep_dir, run_ids)
    if as_json:
        accepted = sorted(entry.run_ids) if entry else []
        changes = entry.changes if entry else ()
        print_json({"sweep": sweep, "accepted": accepted, "changes": changes})
    elif entry is None:
        typer.echo(f"{sweep}: none of {count(len(run_ids), 'run')} is stale, nothing to accept")
    else:
        typer.echo(f"{sweep}: {accepted_changes([entry])[0]}")

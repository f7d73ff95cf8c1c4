from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import RESULTS, Json, Results, chosen_runs, print_json

_Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN", help="Id prefixes, or key=value,key=value for all that fit."),
]
_Sweep = Annotated[str, typer.Argument(metavar="SWEEP")]


def cancel(sweep: _Sweep, runs: _Runs = None, results: Results = RESULTS, as_json: Json = False) -> None:
    """Stop runs, all that are named or have not ended; their checkpoints stay.

    They are out of the sweep until they are retried.

    [bold]Examples[/bold]

      orchestrate cancel speed
      orchestrate cancel speed algorithm=iql
      orchestrate cancel speed 3fa9c1d2
    """
    from orchestrator.control import cancel_runs
    from orchestrator.rundir import SweepDir

    sweep_dir = SweepDir.existing(results, sweep)
    rows = chosen_runs(sweep_dir, runs or [])
    concerned = cancel_runs(sweep_dir, [row.run_id for row in rows])
    if as_json:
        print_json({"sweep": sweep, "cancelled": concerned})
    else:
        left = len(rows) - len(concerned)
        already = f"; {left} had ended already" if left else ""
        typer.echo(f"{sweep}: {len(concerned)} runs cancelled{already}")


def retry(
    sweep: _Sweep,
    runs: _Runs = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit and leave.")] = False,
    slots: Annotated[int | None, typer.Option("--slots", min=1, metavar="N", help="Runs at once.")] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Run again what failed, was cancelled or is stale, or what is named.

    A finished run that is named is trained anew; its old result is kept
    beside the new one.

    [bold]Examples[/bold]

      orchestrate retry speed
      orchestrate retry speed algorithm=mappo,seed=0
    """
    from orchestrator.cli.sweep import work_through
    from orchestrator.control import present, retry_runs
    from orchestrator.rundir import SweepDir
    from orchestrator.sweep import load_sweep
    from orchestrator.types import RunState

    sweep_dir = SweepDir.existing(results, sweep)
    rows = chosen_runs(sweep_dir, runs or [])
    if not runs:
        seen = present(sweep_dir)
        again = (RunState.FAILED, RunState.CANCELLED, RunState.STALE)
        rows = [row for row in rows if seen.statuses[row.run_id].state in again]
    concerned = retry_runs(sweep_dir, [row.run_id for row in rows])
    if not as_json:
        typer.echo(
            f"{sweep}: {len(concerned)} runs to do again" if concerned else f"{sweep}: nothing to retry"
        )
    if concerned:
        loaded = load_sweep(sweep_dir.latest_grid_path())
        work_through(loaded, results, on=None, detach=detach, slots=slots, as_json=as_json)
    elif as_json:
        print_json({"sweep": sweep, "jobs": [], "runs": []})

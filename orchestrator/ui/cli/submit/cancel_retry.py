from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.core.formatting import count
from orchestrator.ui.cli.common import (
    RESULTS,
    Delegated,
    Json,
    Results,
    SweepName,
    chosen_runs,
    delegated_runs,
    print_json,
    print_kept,
    print_problems_there,
    print_warnings,
)

if TYPE_CHECKING:
    from orchestrator.rundir import SweepDir

_Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN", help="Id prefixes, or key=value,key=value for all that fit."),
]


def cancel(
    sweep: SweepName,
    runs: _Runs = None,
    delegated: Delegated = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Stop runs: those named, or all that have not ended. Checkpoints are kept.

    Cancelled runs leave the sweep until `retry`.

    [bold]Examples[/bold]

      orchestrate cancel speed
      orchestrate cancel speed algorithm=iql
      orchestrate cancel speed 3fa9c1d2
    """
    from orchestrator.control import fleet
    from orchestrator.control.cloud.instance_costs import costs
    from orchestrator.rundir import SweepDir

    if delegated:
        sweep_dir = SweepDir(results, sweep)
        print_json(fleet.cancel(sweep_dir, *delegated_runs(sweep_dir)).to_json())
        return
    sweep_dir = SweepDir.existing(results, sweep)
    run_ids = [row.run_id for row in chosen_runs(sweep_dir, runs or [])]
    decided = fleet.cancel(sweep_dir, run_ids)
    if as_json:
        print_json({"sweep": sweep, "cancelled": decided.run_ids})
    else:
        left = len(run_ids) - len(decided.run_ids)
        already = f"; {left} had ended or been skipped already" if left and not decided.problems else ""
        typer.echo(f"{sweep}: {count(len(decided.run_ids), 'run')} cancelled{already}")
        for line in (*decided.news, *costs(sweep_dir)):
            typer.echo(line)
    print_problems_there(decided.problems)


def retry(
    sweep: SweepName,
    runs: _Runs = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="TARGET", help="Where; by default where they were.", show_default=False),
    ] = None,
    lost: Annotated[
        bool,
        typer.Option("--lost", help="With --on: where they were is gone for good, nothing works on them."),
    ] = False,
    detach: Annotated[
        bool | None,
        typer.Option("--detach/--follow", help="Submit and leave, or stay to the end.", show_default=False),
    ] = None,
    slots: Annotated[int | None, typer.Option("--slots", min=1, metavar="N", help="Runs at once.")] = None,
    delegated: Delegated = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Run failed, cancelled and stale runs again, or the runs named.

    A finished run that is named is trained anew; its old result is kept
    under another name.

    [bold]Examples[/bold]

      orchestrate retry speed
      orchestrate retry speed algorithm=mappo,seed=0
      orchestrate retry speed 3fa9c1d2 --on local
    """
    from orchestrator.control import fleet
    from orchestrator.control.cloud.exchange import exchange_with_instances
    from orchestrator.control.flow import again_flow
    from orchestrator.control.remote import delegate
    from orchestrator.control.submit import latest_sweep
    from orchestrator.core.types import RunState
    from orchestrator.planning.plan import SubmitOptions
    from orchestrator.rundir import SweepDir
    from orchestrator.ui.cli.submit.work_through import work_through

    if delegated:  # the submission follows, with code and profile as they are there
        sweep_dir = SweepDir(results, sweep)
        print_json(fleet.retry_for_home(sweep_dir, *delegated_runs(sweep_dir)).to_json())
        return
    sweep_dir = SweepDir.existing(results, sweep)
    rows = chosen_runs(sweep_dir, runs or [])
    if not runs:
        exchange_with_instances(sweep_dir, partial(typer.echo, err=True))
        seen = fleet.present(sweep_dir)
        print_warnings(seen.remarks)
        again = {RunState.FAILED, RunState.CANCELLED, RunState.STALE}
        if lost:
            again |= {RunState.UNKNOWN, RunState.PENDING}
        rows = [row for row in rows if seen.statuses[row.run_id].state in again]
    run_ids = [row.run_id for row in rows]
    kept = {} if on is None else delegate.take_back(latest_sweep(sweep_dir), sweep_dir, run_ids, lost=lost)
    print_kept(kept)
    decided = fleet.retry(sweep_dir, [run_id for run_id in run_ids if run_id not in kept])
    # Runs taken back from another tree are to be done, in any state they had there.
    anew = [run_id for run_id in run_ids if run_id not in kept] if on is not None else decided.run_ids
    if not as_json:
        _tell_again(sweep, anew, sweep_dir)
    codes = [1 if kept else 0]
    if anew:
        latest, options = latest_sweep(sweep_dir), SubmitOptions(slots)
        places = [(place.address, runs) for place, runs in decided.there.items()]
        shares: list[tuple[str | None, Sequence[str]]] = (
            [(None, decided.here), *places] if on is None else [(on, anew)]
        )
        for target, share in shares:
            if share:
                flow = again_flow(latest, sweep_dir, options, target, share)
                codes.append(work_through(flow, detach=detach, as_json=as_json))
    elif as_json:
        print_json({"sweep": sweep, "jobs": [], "runs": []})
    print_problems_there(decided.problems)
    raise typer.Exit(max(codes))


def _tell_again(sweep: str, anew: list[str], sweep_dir: SweepDir) -> None:
    from orchestrator.control.fleet import present

    left = 0 if anew else len(present(sweep_dir).left)
    waits = f"; {count(left, 'run')} to be submitted: the sweep command goes on with that" if left else ""
    again = f"{count(len(anew), 'run')} to do again" if anew else f"nothing to retry{waits}"
    typer.echo(f"{sweep}: {again}")

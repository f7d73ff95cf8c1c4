from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.ui.cli.common import (
    RESULTS,
    Changes,
    Grid,
    GridOption,
    Json,
    Results,
    grid_file,
    print_json,
)

if TYPE_CHECKING:
    from orchestrator.rundir.records.audits import Audit


def audit(
    grid: Grid = None,
    grid_option: GridOption = None,
    changes: Changes = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Chooses the checkpoints after which it is killed.")
    ] = 0,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Find out what a run loses when it is killed and resumed.

    Trains the grid's first run three times on this machine: twice straight,
    once killed after one to three of its checkpoints. Make it short by --set.

    [bold]Examples[/bold]

      orchestrate audit mine.yaml --set steps=2000
    """
    from orchestrator.config.sweep import load_sweep
    from orchestrator.control.audit.audit import audit as audited
    from orchestrator.core.progress import report_step
    from orchestrator.core.records import plain
    from orchestrator.rundir import SweepDir
    from orchestrator.ui.terminal.working import working

    file = grid_file(grid, grid_option, "audit")
    with working(f"reading {file}"):
        sweep = load_sweep(file, results, changes or ())
        found = audited(sweep, SweepDir(results, sweep.name), seed, report_step)
    if as_json:
        print_json(plain(found))
    else:
        _print(found)
    if found.verdict != "exact":
        raise typer.Exit(1)


def _print(found: Audit) -> None:
    from orchestrator.control.audit.wording import lines

    for line in lines(found):
        typer.echo(line)

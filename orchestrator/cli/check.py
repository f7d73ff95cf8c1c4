from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.common import Json, print_json, print_problems


def check(
    grid: Annotated[Path, typer.Argument(metavar="GRID", help="The grid file.")],
    on: Annotated[str | None, typer.Option("--on", metavar="TARGET", help="Check for this target.")] = None,
    as_json: Json = False,
) -> None:
    """Parse a grid, expand it, and try every distinct structure in it.

    Starts no training.

    [bold]Examples[/bold]

      orchestrate check sweeps/speed.yaml
    """
    from orchestrator.check import check_sweep
    from orchestrator.sweep import load_sweep
    from orchestrator.targets import find_target

    sweep = load_sweep(grid)
    find_target(on or sweep.targets[0])
    report = check_sweep(sweep)
    if as_json:
        print_json(
            {
                "sweep": sweep.name,
                "points": report.points,
                "structures": report.structures,
                "seconds": round(report.seconds, 2),
                "problems": [problem.to_json() for problem in report.problems],
            }
        )
    else:
        print_problems(report.problems)
        verdict = "" if report.problems else "all good: "
        counted = f"{report.points} runs in {report.structures} structures"
        typer.echo(f"{verdict}{counted}, checked in {report.seconds:.1f} s")
    if report.problems:
        raise typer.Exit(2)

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import RESULTS, Json, Results, print_json, print_problems

if TYPE_CHECKING:
    from orchestrator.types import Plan


def check(
    grid: Annotated[Path, typer.Argument(metavar="GRID", help="The grid file.")],
    on: Annotated[str | None, typer.Option("--on", metavar="TARGET", help="Check for this target.")] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Parse a grid, expand it, and try every distinct structure in it.

    Starts no training and writes nothing; says what `sweep` would do.

    [bold]Examples[/bold]

      orchestrate check sweeps/speed.yaml
    """
    from orchestrator.check import check_sweep
    from orchestrator.control import plan_sweep
    from orchestrator.rundir import SweepDir
    from orchestrator.sweep import load_sweep
    from orchestrator.targets import target_of

    sweep = load_sweep(grid)
    capacity = target_of(sweep, on).capacity()
    plan = plan_sweep(sweep, SweepDir(results, sweep.name), capacity).plan
    report = check_sweep(sweep)
    if as_json:
        print_json(
            {
                "sweep": sweep.name,
                "points": report.points,
                "structures": report.structures,
                "seconds": round(report.seconds, 2),
                "to_do": list(plan.run_ids),
                "skipped": dict(plan.skipped),
                "problems": [problem.to_json() for problem in report.problems],
            }
        )
    else:
        print_problems(report.problems)
        verdict = "" if report.problems else "all good: "
        counted = f"{report.points} runs in {report.structures} structures"
        typer.echo(f"{verdict}{counted}, checked in {report.seconds:.1f} s")
        _say_what_is_to_do(plan)
    if report.problems:
        raise typer.Exit(2)


def _say_what_is_to_do(plan: Plan) -> None:
    left = len(plan.sweep.runs) - len(plan.run_ids) - len(plan.skipped)
    done = f", {left} done or at work" if left else ""
    typer.echo(f"{len(plan.run_ids)} to do{done}")
    for why, count in Counter(plan.skipped.values()).items():
        typer.echo(f"{count} skipped: {why}")

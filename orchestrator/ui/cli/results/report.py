from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.ui.cli.common import (
    FINAL,
    RESULTS,
    Final,
    Json,
    Metric,
    Others,
    Results,
    Sweeps,
    amount,
    print_json,
    print_warnings,
    required_sweeps,
)

# Damaged files named at most.
_NAMED = 3


def report(
    sweeps: Sweeps = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Where to; by default report/ in the sweep's folder."
        ),
    ] = None,
    others: Others = None,
    final: Final = FINAL,
    metric: Metric = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="RETURN",
            help="The return to which times are measured; by default one of each task.",
            callback=amount("a return", "--threshold 10"),
        ),
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Write a report: one page that needs no network, with pictures (SVG, PDF) and tables (CSV, LaTeX).

    [bold]Examples[/bold]

      orchestrate report speed
      orchestrate report speed multiwalker --output comparison
      orchestrate report speed --with their_runs
      orchestrate report speed --final last
      orchestrate report speed --metric loss:min
    """
    from dataclasses import replace
    from datetime import datetime

    from orchestrator.analysis.chosen_metric import ChosenMetric
    from orchestrator.analysis.collect import collect, read_others
    from orchestrator.analysis.report import write_report
    from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
    from orchestrator.control.fleet import present
    from orchestrator.ui.terminal.working import working

    measure, chosen = FinalMeasure.parse(final), ChosenMetric.parse(metric)
    sweep_dirs = required_sweeps(results, sweeps)
    # A report of several sweeps belongs to none of their folders.
    folder = output or (sweep_dirs[0].report if len(sweep_dirs) == 1 else results / "report")
    generated = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    with working("reading results"):
        collected = measured_by(
            collect(sweep_dirs, present, others=read_others(others or [], sweep_dirs), chosen=chosen), measure
        )
    print_warnings(collected.problems[:_NAMED])
    if (more := len(collected.problems) - _NAMED) > 0:
        print_warnings([f"{more} more files are damaged; the report names them"])
    collected = replace(collected, threshold=threshold)
    with working("writing the report"):
        page = write_report(sweep_dirs, collected, folder, generated=generated)
    if as_json:
        print_json({"page": str(page), "pictures": sorted(str(picture) for picture in folder.glob("*.svg"))})
    else:
        typer.echo(f"wrote {page}")

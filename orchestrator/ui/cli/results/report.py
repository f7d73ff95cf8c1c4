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
    required_sweeps,
)
from orchestrator.ui.cli.results.reading import print_damaged, read_results


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

    from orchestrator.analysis.report import write_report
    from orchestrator.ui.terminal.working import working

    sweep_dirs = required_sweeps(results, sweeps)
    # A report of several sweeps belongs to none of their folders.
    folder = output or (sweep_dirs[0].report if len(sweep_dirs) == 1 else results / "report")
    generated = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    with working("reading results"):
        collected = replace(read_results(sweep_dirs, others, final, metric), threshold=threshold)
    print_damaged(collected.problems)
    with working("writing the report"):
        page = write_report(sweep_dirs, collected, folder, generated=generated)
    if as_json:
        print_json({"page": str(page), "pictures": sorted(str(picture) for picture in folder.glob("*.svg"))})
    else:
        typer.echo(f"wrote {page}")

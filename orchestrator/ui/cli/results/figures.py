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
    print_json,
    required_sweeps,
)
from orchestrator.ui.cli.results.reading import print_damaged, read_results


def figures(
    sweeps: Sweeps = None,
    settings: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Panels, labels, order, colours and style, as YAML."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where to; by default figures/ of the sweep."),
    ] = None,
    others: Others = None,
    final: Final = FINAL,
    metric: Metric = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Draw the figures of a paper: curves, aggregate scores (PDF, SVG) and a table (LaTeX).

    [bold]Examples[/bold]

      orchestrate figures speed
      orchestrate figures speed --file figures.yaml --output paper/figures
    """
    from orchestrator.analysis.report import write_figures
    from orchestrator.ui.terminal.working import working

    sweep_dirs = required_sweeps(results, sweeps)
    with working("reading results"):
        collected = read_results(sweep_dirs, others, final, metric)
    print_damaged(collected.problems)
    folder = output or (sweep_dirs[0].figures if len(sweep_dirs) == 1 else results / "figures")
    with working("drawing figures"):
        written, scores = write_figures(collected, settings, folder)
    if as_json:
        print_json({"files": [str(path) for path in written], "scores": scores or None})
        return
    if scores:
        typer.echo(scores)
    typer.echo(f"wrote {', '.join(map(str, written))}")

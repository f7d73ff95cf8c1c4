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
    print_warnings,
    required_sweeps,
)


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
    from orchestrator.analysis.chosen_metric import ChosenMetric
    from orchestrator.analysis.collect import collect, read_others
    from orchestrator.analysis.report import write_figures
    from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
    from orchestrator.control.fleet import present
    from orchestrator.ui.terminal.working import working

    measure, chosen = FinalMeasure.parse(final), ChosenMetric.parse(metric)
    sweep_dirs = required_sweeps(results, sweeps)
    with working("drawing figures"):
        past = read_others(others or [], sweep_dirs)
        collected = measured_by(collect(sweep_dirs, present, others=past, chosen=chosen), measure)
        folder = output or (sweep_dirs[0].figures if len(sweep_dirs) == 1 else results / "figures")
        written, scores = write_figures(collected, settings, folder)
    print_warnings(collected.problems[:3])
    if as_json:
        print_json({"files": [str(path) for path in written], "scores": scores or None})
        return
    if scores:
        typer.echo(scores)
    typer.echo(f"wrote {', '.join(map(str, written))}")

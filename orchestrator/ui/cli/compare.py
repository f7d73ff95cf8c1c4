from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.ui.cli.collect import Others, found_sweeps
from orchestrator.ui.cli.common import RESULTS, Json, Results, print_json

if TYPE_CHECKING:
    from orchestrator.analysis.compare import KeyComparison


_MOST_SECTIONS = 30
_MOST_NOTES = 12


def compare(
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP…", help="One sweep, or several.")],
    by: Annotated[
        str, typer.Option("--by", metavar="KEY", help="A key of the grid, in full or short: n_envs.")
    ],
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="VALUE",
            help="What the others are set against; the grid's first with five seeds.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Where to; by default compare-KEY/ in the sweep's folder."
        ),
    ] = None,
    others: Others = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Compare the values of one key.

    Runs that differ only in that key and their seed are compared:
    speed-up and efficiency, returns at equal frames and at equal time,
    memory. A table here and as CSV, a picture as PNG. Besides the grid's keys:
    threads, target, device, environments, hardware, sweep.

    [bold]Examples[/bold]

      orchestrate compare speed --by threads
      orchestrate compare speed --by train_device --baseline cuda
      orchestrate compare old new --by sweep
      orchestrate compare speed --with their_runs --by sweep
    """
    from orchestrator.analysis.collect import gather, read_others
    from orchestrator.analysis.compare import compare_by, wording
    from orchestrator.analysis.report.compare_figures import write_comparison
    from orchestrator.analysis.report.target_comparison import prices
    from orchestrator.control.fleet import present
    from orchestrator.core.formatting import plain
    from orchestrator.rundir.sweep import comparison_dir

    found = found_sweeps(results, sweeps)
    collected = gather(found, present, others=read_others(others or [], found))
    paid = {(one.name, run_id): price for one in found for run_id, price in prices(one).items()}
    compared = compare_by(collected, by, baseline=baseline, prices=paid)
    # A comparison of several sweeps belongs to none of their folders.
    home = found[0].path if len(found) == 1 else results
    folder = output or comparison_dir(home, compared.short)
    written = write_comparison(compared, folder)
    if as_json:
        print_json({**wording.as_json(compared), "files": [str(path) for path in written]})
        return
    _print(compared)
    for problem in collected.problems:
        typer.echo(f"problem: {plain(problem)}", err=True)
    typer.echo(f"wrote {', '.join(str(path) for path in written if not path.stem.endswith('-dark'))}")


def _print(compared: KeyComparison) -> None:
    from rich.markup import escape

    from orchestrator.analysis.compare.wording import columns, notes, sections, verdict
    from orchestrator.core.formatting import plain
    from orchestrator.ui.cli import sweep_table

    console = sweep_table.console()
    told = sections(compared)
    head = columns(compared)
    heads = [list(line) for line in zip(*(name.rpartition("\n")[::2] for name in head), strict=True)]
    widths = [
        max(map(len, column))
        for column in zip(*heads, *(row for _, rows in told for row in rows), strict=True)
    ]
    for line in heads:
        if any(line):
            console.print(_line(line, widths), style="bold", markup=False, highlight=False, soft_wrap=True)
    shown = told if len(told) <= _MOST_SECTIONS else [*told[: _MOST_SECTIONS - 1], told[-1]]
    for label, rows in shown:
        console.print(plain(label), style="cyan", markup=False, highlight=False, soft_wrap=True)
        for row in rows:
            console.print(_line(row, widths), markup=False, highlight=False, soft_wrap=True)
    if len(shown) < len(told):
        console.print(f"… {len(told) - len(shown)} more combinations: the CSV file has all", style="dim")
    for note in notes(compared)[:_MOST_NOTES]:
        console.print(f"[yellow]note[/yellow] {escape(plain(note))}", soft_wrap=True)
    console.print(escape(plain(verdict(compared))), soft_wrap=True)


def _line(cells: list[str], widths: list[int]) -> str:
    from orchestrator.core.formatting import plain

    first, *others = map(plain, cells)
    return "  ".join(
        [
            f"  {first:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)),
        ]
    )

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import RESULTS, Json, Results, chosen, print_json
from orchestrator.errors import NotFoundError

if TYPE_CHECKING:
    from orchestrator.collect import Collected
    from orchestrator.rundir import SweepDir

Sweeps = Annotated[list[str] | None, typer.Argument(metavar="SWEEP", help="All sweeps if left away.")]


def collect(
    sweeps: Sweeps = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the content of every file against its checksum.")
    ] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Merge run folders into tables in the sweep's folder.

    results.parquet and results.csv have a row a run, metrics.parquet every
    metric of every run.

    [bold]Examples[/bold]

      orchestrate collect speed
      orchestrate collect --verify
    """
    from orchestrator.collect import write
    from orchestrator.summary import summary_table

    for sweep_dir in found_sweeps(results, sweeps):
        collected = gather([sweep_dir], verify)
        write(collected, sweep_dir)
        columns, rows = summary_table(collected)
        if as_json:
            print_json(
                {
                    "sweep": sweep_dir.name,
                    "groups": [dict(zip(columns, row, strict=True)) for row in rows],
                    "missing": [item._asdict() for item in collected.missing],
                    "problems": list(collected.problems),
                    "files": [
                        str(path)
                        for path in (sweep_dir.table_parquet, sweep_dir.table_csv, sweep_dir.metrics_parquet)
                    ],
                }
            )
        else:
            _print(sweep_dir, collected, columns, rows)


def found_sweeps(results: object, names: list[str] | None) -> list[SweepDir]:
    from pathlib import Path

    assert isinstance(results, Path)
    found = chosen(results, names or [])
    if not found:
        raise NotFoundError(f"no sweep in {results}/ yet", hint="begin with: orchestrate sweep --grid GRID")
    return found


def gather(found: list[SweepDir], verify: bool = False) -> Collected:
    """The sweeps' runs and metrics, with the states that `status` shows."""
    from orchestrator.collect import collect as collect_runs
    from orchestrator.control import look, today_code
    from orchestrator.state import mark_stale

    states, reasons = {}, {}
    for sweep_dir in found:
        seen, today = look(sweep_dir), today_code(sweep_dir)
        statuses = (mark_stale(seen, today) if today else seen).statuses
        states[sweep_dir.name] = {run_id: status.state for run_id, status in statuses.items()}
        reasons[sweep_dir.name] = {run_id: status.why for run_id, status in statuses.items()}
    return collect_runs(found, states=states, reasons=reasons, checksums=verify)


def _print(sweep_dir: SweepDir, collected: Collected, columns: list[str], rows: list[list[str]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from orchestrator.cli import view
    from orchestrator.labels import run_labels

    console = view.console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console.print(table)
    labels = run_labels([item.point for item in collected.missing])
    for item, label in zip(collected.missing, labels, strict=True):
        console.print(f"[yellow]missing[/yellow] {item.run_id[:8]} {escape(label)}: {escape(item.why)}")
    for problem in collected.problems:
        console.print(f"[red]problem[/red] {escape(problem)}")
    console.print(
        f"wrote {sweep_dir.table_parquet}, {sweep_dir.table_csv.name}, {sweep_dir.metrics_parquet.name}"
    )

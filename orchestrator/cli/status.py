from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import RESULTS, Json, Results, chosen, print_json

if TYPE_CHECKING:
    from orchestrator.rundir import SweepDir
    from orchestrator.state import Survey

_REFRESH_S = 1.0
_ROWS = 100


def status(
    sweep: Annotated[str | None, typer.Argument(metavar="SWEEP", help="All sweeps if left away.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep it on screen until all is over.")
    ] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Say where every run stands, from journals alone: quick also for 10,000 runs.

    [bold]Examples[/bold]

      orchestrate status
      orchestrate status speed --watch
      orchestrate status speed --json
    """
    from orchestrator.reading import no_garbage_collection

    found = chosen(results, [sweep] if sweep else [])
    if as_json:
        print_json([_as_json(sweep_dir, _look(sweep_dir)) for sweep_dir in found])
        return
    if not found:
        typer.echo(f"no sweep in {results}/ yet; begin with: orchestrate sweep --grid GRID")
        return
    if watch:
        _watch(found)
        return
    with no_garbage_collection():
        _print(found, detailed=sweep is not None)


def _look(sweep_dir: SweepDir) -> Survey:
    from orchestrator.control import present
    from orchestrator.targets import find_target

    backend, _ = find_target("local")
    return present(sweep_dir, backend)


def _print(found: list[SweepDir], detailed: bool) -> None:
    from orchestrator.cli import view

    console = view.console()
    for sweep_dir in found:
        seen = _look(sweep_dir)
        if detailed:
            console.print(view.sweep_view(sweep_dir.name, seen, limit=_ROWS))
        else:
            console.print(view.sweep_line(sweep_dir.name, seen))
        if seen.damaged_lines:
            console.print(f"{seen.damaged_lines} unreadable journal lines were passed over", style="yellow")


def _watch(found: list[SweepDir]) -> None:
    from rich.console import Group
    from rich.live import Live

    from orchestrator.cli import view

    with Live(console=view.console(), auto_refresh=False) as live:
        while True:
            seen = [(sweep_dir.name, _look(sweep_dir)) for sweep_dir in found]
            live.update(Group(*(view.sweep_view(name, one, view.ROWS) for name, one in seen)), refresh=True)
            if not any(one.active for _, one in seen):
                return
            time.sleep(_REFRESH_S)


def _as_json(sweep_dir: SweepDir, seen: Survey) -> dict[str, object]:
    runs = [
        {**seen.statuses[row.run_id].to_json(), "in_grid": row.in_grid, "point": row.point}
        for row in seen.rows
    ]
    counts = {state.value: count for state, count in seen.counts().items()}
    return {"sweep": sweep_dir.name, "counts": counts, "runs": runs}

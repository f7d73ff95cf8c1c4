from __future__ import annotations

import codecs
import itertools
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.ui.cli.common import RESULTS, Json, Results, SweepName, print_json
from orchestrator.ui.terminal.output import ERASE_LINE

if TYPE_CHECKING:
    from orchestrator.rundir import IndexRow, SweepDir
    from orchestrator.status.survey import RunStatus

_PIECE = 1 << 16
# The beginning of a line break or of a colour at the end of a piece.
_CUT = re.compile(r"(?:\r|\x1b(?:\[[0-9;]*)?)\Z")


def logs(
    sweep: SweepName,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Id prefix, or algorithm=mappo,seed=0; without it the runs are listed.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing until the run ends.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", help="This attempt; by default the newest.")
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Print the log of a run, by default of its newest attempt, on any target.

    Without a run, list the sweep's runs with their states and attempts, with
    --json as JSON.

    [bold]Examples[/bold]

      orchestrate logs speed
      orchestrate logs speed algorithm=mappo,seed=0
      orchestrate logs speed 3fa9 -f
    """
    from orchestrator.control.fleet import log_from
    from orchestrator.core.errors import OrchestrateError
    from orchestrator.rundir import SweepDir
    from orchestrator.status.run_logs import log_pieces
    from orchestrator.status.select_runs import one_run

    sweep_dir = SweepDir.existing(results, sweep)
    if run is None:
        _list_runs(sweep_dir, follow or attempt is not None, as_json)
        return
    if as_json:
        raise OrchestrateError("--json lists the runs, and a log is text", hint=f"logs {sweep} --json")
    row = one_run(sweep_dir.read_index(), run, sweep_dir.name)
    with log_from(sweep_dir, row.run_id, attempt, follow) as pipe:
        if pipe is None:
            _print(log_pieces(sweep_dir, row.run_id, attempt, follow=follow))
        else:
            _print(iter(lambda: pipe.read1(_PIECE), b""))


def _list_runs(sweep_dir: SweepDir, one_is_meant: bool, as_json: bool) -> None:
    """Print the runs of the sweep, each with its id, and how to print a log."""
    from orchestrator.control.fleet import present
    from orchestrator.core.errors import NotFoundError
    from orchestrator.ui.cli.watch import sweep_table
    from orchestrator.ui.terminal.screen import STYLES, show
    from orchestrator.ui.terminal.table import KeyTable, ScreenColumn, cell
    from orchestrator.ui.terminal.working import working

    with working(f"{sweep_dir.name}: looking at its runs"):
        seen = present(sweep_dir)
    rows = [row for row in seen.rows if row.in_grid]
    if not rows:
        raise NotFoundError(f"the sweep {sweep_dir.name} has no runs")
    states = [seen.statuses[row.run_id] for row in rows]
    ill = [one for one in states if one.why and one.attempt] or [one for one in states if one.attempt]
    example = f"orchestrate logs {sweep_dir.name} {(ill or states)[0].run_id[:8]}"
    if one_is_meant:
        raise NotFoundError(f"no run of {sweep_dir.name} is named", hint=f"as in: {example}")
    if as_json:
        runs = [_as_json(row, status) for row, status in zip(rows, states, strict=True)]
        print_json({"sweep": sweep_dir.name, "runs": runs})
        return
    table = [
        ScreenColumn("run", [cell(row.run_id[:8], "dim") for row in rows], left=True),
        *sweep_table.run_keys(rows, rows),
        ScreenColumn("state", [cell(one.state.value, STYLES[one.state]) for one in states], left=True),
        ScreenColumn("attempts", [cell(status.attempt or "") for status in states]),
    ]
    show(KeyTable(table))
    typer.echo(f"next: {example}")


def _as_json(row: IndexRow, status: RunStatus) -> dict[str, object]:
    return {
        "run_id": row.run_id,
        "point": row.point,
        "state": status.state.value,
        "attempts": status.attempt or 0,
        "why": status.why or None,
    }


def _print(pieces: Iterable[bytes]) -> None:
    """Print pieces of bytes: as they are into a pipe or file, as text on a terminal.

    A character or a colour may be cut between two pieces. A line that was drawn anew is drawn anew here.
    """
    if not sys.stdout.isatty():
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
        return
    decoder, held = codecs.getincrementaldecoder("utf-8")(errors="replace"), ""
    for piece in itertools.chain(pieces, [b""]):
        text = (held + decoder.decode(piece, final=not piece)).replace("\r\n", "\n")
        cut = _CUT.search(text)
        held = cut[0] if cut and piece else ""
        sys.stdout.write(text.removesuffix(held).replace("\r", ERASE_LINE))
        sys.stdout.flush()

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from orchestrator.ui.cli.common import RESULTS, Results

_PIECE = 1 << 16


def logs(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP")],
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id prefix, or algorithm=mappo,seed=0.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing until the run ends.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", help="This attempt; by default the newest.")
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Print the log of a run, by default of its newest attempt, on any target.

    [bold]Examples[/bold]

      orchestrate logs speed algorithm=mappo,seed=0
      orchestrate logs speed 3fa9 -f
    """
    from orchestrator.control.fleet import log_from
    from orchestrator.rundir import SweepDir
    from orchestrator.status.run_logs import log_pieces
    from orchestrator.status.select_runs import one_run

    sweep_dir = SweepDir.existing(results, sweep)
    row = one_run(sweep_dir.read_index(), run)
    with log_from(sweep_dir, row.run_id, attempt, follow) as pipe:
        if pipe is None:
            _print(log_pieces(sweep_dir, row.run_id, attempt, follow=follow))
        else:
            _print(iter(lambda: pipe.read1(_PIECE), b""))


def _print(pieces: Iterable[bytes]) -> None:
    """Print pieces of bytes; a character may be cut between two of them."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in pieces:
        sys.stdout.write(decoder.decode(piece))
        sys.stdout.flush()
    sys.stdout.write(decoder.decode(b"", final=True))

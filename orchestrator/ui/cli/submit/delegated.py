"""Hidden commands that another results tree runs here over ssh, with its decision on stdin."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestrator.ui.cli.common import RESULTS, Results, SweepName, delegated_runs, print_json


def release(
    sweep: SweepName,
    moved: Annotated[bool, typer.Option("--moved", help="Also failed and cancelled runs.")] = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Also runs of queued jobs.")] = False,
    results: Results = RESULTS,
) -> None:
    """Give runs without a worker back to the tree that assigned them; print JSON."""
    from orchestrator.control.remote.delegated import Decision
    from orchestrator.control.remote.delegated import release as give_back
    from orchestrator.rundir import SweepDir

    decision = Decision.from_bytes(sys.stdin.buffer.read())
    print_json(give_back(decision, SweepDir(results, sweep), moved=moved, waiting=waiting))


def stop(sweep: SweepName, results: Results = RESULTS) -> None:
    """Have the sweep's workers here save and leave, and wait for it; print JSON."""
    from orchestrator.control import follow
    from orchestrator.rundir import SweepDir

    sweep_dir = SweepDir(results, sweep)
    _, check = delegated_runs(sweep_dir)
    check()
    print_json({"stopped": follow.stop(sweep_dir)})

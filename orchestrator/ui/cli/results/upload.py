"""Upload of offline W&B runs in a terminal: a bar, faults as they happen, and a last line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.core.errors import NotFoundError
from orchestrator.core.formatting import count, printable
from orchestrator.ui.cli.common import chosen

if TYPE_CHECKING:
    from orchestrator.rundir import SweepDir
    from orchestrator.sync.wandb import UploadPlan, UploadReport


def upload(
    results: Path, sweeps: Sequence[str] = (), runs: Sequence[str] = (), *, dry_run: bool = False
) -> bool:
    """Upload offline W&B logs that are not uploaded yet, by default of all sweeps and runs.

    ``runs`` are selectors as `--run` has them. Returns whether all possible uploads are
    done; raises :class:`UploadError` if nothing can be sent.
    """
    from orchestrator.sync.wandb import plan_uploads, send
    from orchestrator.ui.terminal.screen import with_bar

    sweep_dirs = chosen(results, sweeps)
    plan = plan_uploads(sweep_dirs, _meant(sweep_dirs, runs) if runs else None)
    if dry_run:
        typer.echo(f"W&B: {count(len(plan.todo), 'run')} would go up" + _beside(plan))
        return True
    up, faults = [], 0
    for sent in with_bar(send(plan.todo), len(plan.todo), title="W&B"):
        if sent.url:
            up.append(sent.url)
        else:
            faults += 1
            _tell(sent)
    for left in plan.left:
        if not left.waits:
            typer.echo(
                f"error: {_name(left.sweep, left.run_id)}: not uploaded: {printable(left.why)}", err=True
            )
    projects = sorted({printable(url.rpartition("/runs/")[0]) for url in up})
    where = f" to {', '.join(projects)}" if projects else ""
    typer.echo(f"W&B: {count(len(up), 'run')} uploaded{where}" + _beside(plan, faults))
    return not faults and all(left.waits for left in plan.left)


def _meant(sweeps: Iterable[SweepDir], selectors: Sequence[str]) -> set[str]:
    from orchestrator.status.select_runs import select_runs

    rows = [row for sweep in sweeps for row in sweep.read_index()]
    selected = {selector: select_runs(rows, selector) for selector in selectors}
    for selector, fitting in selected.items():
        if not fitting:
            raise NotFoundError(
                f"no run fits --run {selector!r}", hint="`orchestrate status SWEEP` lists ids and keys"
            )
    return {row.run_id for fitting in selected.values() for row in fitting}


def _tell(sent: UploadReport) -> None:
    name = _name(sent.upload.sweep.name, sent.upload.run_id)
    typer.echo(f"error: {name}: {printable(sent.error)}", err=True)
    if sent.hint:
        typer.echo(f"  {sent.hint}", err=True)


def _beside(plan: UploadPlan, faults: int = 0) -> str:
    counts = (
        (faults, "not"),
        (plan.already, "there already"),
        (sum(left.waits for left in plan.left), "left for later"),
        (sum(not left.waits for left in plan.left), "cannot be read"),
    )
    return "".join(f", {number} {what}" for number, what in counts if number)


def _name(sweep: str, run_id: str) -> str:
    return f"{sweep} {run_id[:8]}"

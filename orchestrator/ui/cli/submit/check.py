from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.core.formatting import count
from orchestrator.ui.cli.common import (
    RESULTS,
    Changes,
    Grid,
    GridOption,
    Json,
    Results,
    grid_file,
    print_json,
    print_problems,
    print_warnings,
    refuse_untrainable,
)

if TYPE_CHECKING:
    from orchestrator.config.check import CheckReport
    from orchestrator.control.submit import SubmissionPlan
    from orchestrator.core.types import Sweep


def check(
    grid: Grid = None,
    grid_option: GridOption = None,
    on: Annotated[str | None, typer.Option("--on", metavar="TARGET", help="Check for this target.")] = None,
    changes: Changes = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Check a grid: expand it and build every distinct configuration once.

    Trains nothing, writes nothing; lists what `sweep` would do.

    [bold]Examples[/bold]

      orchestrate check sweeps/speed.yaml
    """
    from orchestrator.config.code.snapshot import key_notes
    from orchestrator.config.sweep import load_sweep
    from orchestrator.ui.terminal.working import working

    file = grid_file(grid, grid_option, "check")
    with working(f"reading {file}"):
        planned, report, concerns = _look(load_sweep(file, results, changes or ()), on, results)
        keys = key_notes(Path.cwd())
    plan = planned.plan
    if as_json:
        print_json(
            {
                "sweep": plan.sweep.name,
                "points": report.points,
                "structures": report.structures,
                "seconds": round(report.seconds, 2),
                "to_do": list(plan.run_ids),
                "skipped": dict(plan.skipped),
                "warnings": [*concerns, *keys],
                "problems": [problem.to_json() for problem in report.problems],
            }
        )
    else:
        _say_what_was_found(report, planned, concerns)
        print_warnings(keys)
    if report.problems:
        raise typer.Exit(2)
    refuse_untrainable(len(plan.skipped), len(plan.sweep.runs), plan.target)


def _look(sweep: Sweep, on: str | None, results: Path) -> tuple[SubmissionPlan, CheckReport, list[str]]:
    """Return what would be submitted, what the check found, and warnings."""
    from orchestrator.backends.registry import target_of
    from orchestrator.config.check import check_sweep
    from orchestrator.control.audit.audit import audit_of_today
    from orchestrator.control.dry_run import plan_now
    from orchestrator.control.flow.leaving_runs import leaving_runs
    from orchestrator.control.submit import inspect_sweep
    from orchestrator.planning.plan import ReuseOption
    from orchestrator.rundir import SweepDir

    backend = target_of(sweep, on)
    sweep_dir = SweepDir(results, sweep.name)
    gone = leaving_runs(sweep, sweep_dir)
    planned, notes = plan_now(inspect_sweep(sweep, sweep_dir, ReuseOption.EXACT), backend)
    concerns = [*notes, *map(str, backend.concerns(planned.plan, ask=not notes))]
    report = check_sweep(replace(sweep, targets=(on,)) if on else sweep)
    leaving = [] if gone is None else [f"{gone}\n  {gone.hint}"]
    audit = audit_of_today(sweep, sweep_dir)
    audited = [audit.warning(sweep.name)] if audit is not None and audit.overstated else []
    return planned, report, [*leaving, *audited, *concerns, *map(str, report.warnings)]


def _say_what_was_found(report: CheckReport, planned: SubmissionPlan, concerns: Sequence[str]) -> None:
    plan = planned.plan
    counted = f"{count(report.points, 'run')} in {count(report.structures, 'structure')}"
    print_warnings(concerns)
    if not report.problems:
        good = "" if concerns or len(plan.skipped) == len(plan.sweep.runs) else "all good: "
        typer.echo(f"{good}{counted}, checked in {report.seconds:.1f} s")
        _say_what_is_to_do(planned)
        return
    print_problems(report.problems)
    rest = "; the rest is checked when this is mended" if report.early else ""
    told = f"{count(len(report.problems), 'problem')} in {counted}, found in {report.seconds:.1f} s{rest}"
    typer.echo(f"{told}. Nothing of this grid would be submitted", err=True)


def _say_what_is_to_do(planned: SubmissionPlan) -> None:
    from orchestrator.control.staleness import with_stale
    from orchestrator.core.types import RunState
    from orchestrator.ui.cli.watch.sweep_table import stale_step

    plan, seen = planned.plan, with_stale(planned.state.seen, planned.state.sweep_dir)
    statuses = seen.statuses
    planned_for = {*plan.run_ids, *plan.skipped, *planned.state.reuse.prefixes.waiting}
    states = Counter(statuses[run.run_id].state for run in plan.sweep.runs if run.run_id not in planned_for)
    others = "".join(f", {states[state]} {state.value}" for state in RunState if states[state])
    typer.echo(f"{len(plan.run_ids)} to do{others}")
    for line in filter(None, (*planned.reused, planned.forks)):
        typer.echo(line)
    if states[RunState.STALE]:
        typer.echo(stale_step(plan.sweep.name, seen))
    elsewhere = {run.run_id: run.target for run in plan.sweep.runs if run.target not in (None, plan.target)}
    for target, number in Counter(elsewhere.values()).items():
        typer.echo(f"{number} for target {target}")
    here = [why for run_id, why in plan.skipped.items() if run_id not in elsewhere]
    for why, number in Counter(here).items():
        typer.echo(f"{number} skipped: {why}")

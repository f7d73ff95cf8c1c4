from __future__ import annotations

import shlex
from collections.abc import Callable
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
    amount,
    grid_file,
    print_json,
    print_warnings,
    refuse_untrainable,
)

if TYPE_CHECKING:
    from orchestrator.core.types import Sweep
    from orchestrator.planning.estimate import Advice, Forecast, Range
    from orchestrator.ui.terminal.table import KeyTable

# Rows of a target's table.
_LISTED = 12


def estimate(
    grid: Grid = None,
    grid_option: GridOption = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="TARGET,…", help="Targets to compare; by default the grid's own."),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="To be done within: 6h, 90min, 2d.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0,
            metavar="USD",
            help="To cost no more than.",
            callback=amount("US dollars", "--budget 20; without it there is no limit"),
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, metavar="N", help="Runs at once in a job.")
    ] = None,
    changes: Changes = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Predict time and dollars of the unfinished runs of a grid.

    A range holds in four cases of five. Each prediction names its measured
    runs; without any, the output names the command that measures. Misspelt
    tasks, algorithms and keys are refused, as by `check`. Exit code 1: no
    target is known to meet the deadline and the budget.

    [bold]Examples[/bold]

      orchestrate estimate sweeps/speed.yaml --on local,cpu
      orchestrate estimate sweeps/speed.yaml --on cpu,l4 --deadline 6h --budget 20
    """
    from orchestrator.config.check import refuse_wrong_names
    from orchestrator.config.sweep import load_sweep
    from orchestrator.control.forecast import forecasts
    from orchestrator.control.submit import inspect_sweep
    from orchestrator.core.errors import OrchestrateError
    from orchestrator.core.progress import report_step
    from orchestrator.core.units import span
    from orchestrator.planning.estimate import recommend
    from orchestrator.planning.plan import ReuseOption, SubmitOptions
    from orchestrator.rundir import SweepDir
    from orchestrator.ui.terminal.working import working

    file = grid_file(grid, grid_option, "estimate")
    try:
        limit = None if deadline is None else span(deadline)
    except ValueError as error:
        raise OrchestrateError(f"--deadline: {error}") from None
    with working(f"reading {file}"):
        sweep = load_sweep(file, results, changes or ())
        names = list(dict.fromkeys(name.strip() for name in on.split(","))) if on else list(sweep.targets)
        refuse_wrong_names(sweep)
        report_step(f"predicting {count(len(sweep.runs), 'run')} on {', '.join(names)}")
        predicted = forecasts(
            inspect_sweep(sweep, SweepDir(results, sweep.name), ReuseOption.EXACT),
            names,
            SubmitOptions(slots),
        )
    _check_program(sweep, predicted)
    advice = recommend(predicted, limit, budget)
    if as_json:
        answer = {"targets": [forecast.to_json() for forecast in predicted], "recommended": advice.to_json()}
        print_json({"sweep": sweep.name, **answer})
    else:
        _print(
            sweep,
            predicted,
            advice if len(predicted) > 1 or limit is not None or budget is not None else None,
        )
    # With nothing left to do every deadline and budget is met.
    asked = limit is not None or budget is not None
    if asked and advice.target is None and any(forecast.runs or forecast.skipped for forecast in predicted):
        raise typer.Exit(1)
    untrainable = set.intersection(*({*forecast.skipped} for forecast in predicted))
    refuse_untrainable(len(untrainable), len(sweep.runs), ", ".join(one.where.name for one in predicted))


def _check_program(sweep: Sweep, forecasts: list[Forecast]) -> None:
    """Warn if a user's program cannot start. Checks of other trainers would take too long here."""
    from dataclasses import replace

    from orchestrator.config.check import check_sweep
    from orchestrator.config.trainers import get_trainer

    todo = {run.run_id for forecast in forecasts for run in forecast.runs}
    if not todo or not get_trainer(sweep.trainer).runs_program:
        return
    runs, targets = (run for run in sweep.runs if run.run_id in todo), (one.where.name for one in forecasts)
    report = check_sweep(replace(sweep, runs=tuple(runs), targets=tuple(targets)))
    # Time and money can be predicted before the program exists.
    print_warnings([*map(str, report.problems), *report.warnings])


def _print(sweep: Sweep, forecasts: list[Forecast], advice: Advice | None) -> None:
    from orchestrator.ui.terminal.screen import say, show

    todo = {run_id for one in forecasts for run_id in (*(run.run_id for run in one.runs), *one.skipped)}
    names = (None, *(forecast.where.name for forecast in forecasts))
    left = sum(run.target in names and run.run_id not in todo for run in sweep.runs)
    already = f", {left} done, running or failed" if left else ""
    say(f"{sweep.name}: {count(len(todo), 'run')} to do{already}")
    for forecast in forecasts:
        say("")
        for line in _about(sweep, forecast):
            say(line)
        if any(run.seconds is not None for run in forecast.runs):
            show(_runs(sweep, forecast))
            if len(forecast.runs) > _LISTED:
                say(f"… and {len(forecast.runs) - _LISTED} more; --json lists all")
    if advice is None:  # a single target without limits: nothing to choose
        return
    say("")
    say(f"recommended: {advice.lines[0]}")
    for line in advice.lines[1:]:
        say(f"  {line}")


def _about(sweep: Sweep, forecast: Forecast) -> list[str]:
    from orchestrator.config.backends import get_backend, has_queue
    from orchestrator.core.formatting import amount, dollars, duration

    where, options = forecast.where, shlex.join(sweep.grid_options)
    price = "no price" if where.price is None else f"${where.price.per_hour:g}/h, {where.price.words}"
    lines = [f"{where.name} ({where.kind}): {price}"]
    if forecast.runs:
        machine = get_backend(where.kind).machine
        crowd = (
            f"up to {forecast.at_once} at once in each"
            if forecast.at_once > 1
            else "one after the other in each"
        )
        lines.append(f"  {count(len(forecast.runs), 'run')} on {count(forecast.machines, machine)}, {crowd}")
    elif not forecast.skipped:
        lines.append("  nothing is left to do")
    if forecast.runs and forecast.wall is not None:
        waits = ", without waiting in its queue" if has_queue(where.kind) else ""
        lines.append(f"  time     {_shown(forecast.wall, duration)}{waits}")
    if forecast.runs and forecast.dollars is not None and forecast.overhead is not None:
        beside = f"{dollars(forecast.overhead.mid)} of it start and end of machines"
        lines.append(f"  dollars  {_shown(forecast.dollars, dollars)}, {beside}")
    elif forecast.runs and where.price is None:
        lines.append("  dollars  unknown: set price_per_hour in the profile")
    if (disk := forecast.disk) is not None:
        state = (
            f", {amount(disk.state)} of it whole states, for longer runs (keep: result)" if disk.state else ""
        )
        lines.append(f"  disk     {amount(disk.whole)}{state}")
    for words, runs in forecast.rests_on.items():
        lines.append(f"  rests on {words} ({count(runs, 'run')})")
    for why, run_ids in forecast.unknown.items():
        lines.append(f"  unknown  {count(len(run_ids), 'run')}: {why}")
        lines.append(f"           to find out: orchestrate sweep {options} --on {where.name} --canary")
    for why in dict.fromkeys(forecast.skipped.values()):
        number = list(forecast.skipped.values()).count(why)
        lines.append(f"  cannot   {count(number, 'run')}: {why}")
    return lines + [f"  note     {note}" for note in where.notes if forecast.runs]


def _shown(amounts: Range, show: Callable[[float], str]) -> str:
    if amounts.low == amounts.high:
        return show(amounts.mid)
    return f"{show(amounts.mid)} (80 %: {show(amounts.low)} to {show(amounts.high)})"


def _runs(sweep: Sweep, forecast: Forecast) -> KeyTable:
    """A table of the target's first runs."""
    from orchestrator.config.trainers import get_trainer
    from orchestrator.core.formatting import dollars, duration, number
    from orchestrator.core.labels import key_columns
    from orchestrator.ui.terminal.table import KeyTable, ScreenColumn, cell

    lengths = get_trainer(sweep.trainer).frames  # the column "frames" shows them
    points = {run.run_id: run.point for run in sweep.runs}
    keys = key_columns([points[run.run_id] for run in forecast.runs], without=lengths)
    runs = forecast.runs[:_LISTED]
    lines = ("unknown" if run.seconds is None else duration(run.seconds.mid) for run in runs)
    return KeyTable(
        [
            *(
                ScreenColumn(key.name, list(map(cell, key.values[: len(runs)])), left=True, key=True)
                for key in keys
            ),
            ScreenColumn("frames", [cell("" if run.frames is None else f"{run.frames:,}") for run in runs]),
            ScreenColumn(
                "end-to-end\nframes/s",
                [cell(number(run.basis.end_to_end_fps if run.basis else None)) for run in runs],
                rank=2,
            ),
            ScreenColumn("time", list(map(cell, lines)), rank=0),
            ScreenColumn(
                "dollars",
                [cell("" if run.dollars is None else dollars(run.dollars.mid)) for run in runs],
                rank=0,
            ),
        ]
    )

"""Options and printing that several commands share."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.core.errors import NotFoundError, OrchestrateError

if TYPE_CHECKING:  # `--help` loads none of these
    from orchestrator.rundir import IndexRow, SweepDir

Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Where results are kept.", show_default=True)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
# A decision of another tree arrives on stdin (control.remote.delegated).
Delegated = Annotated[bool, typer.Option("--delegated", hidden=True)]
Final = Annotated[
    str,
    typer.Option(
        "--final",
        metavar="MEASURE",
        help="What counts as a run's final return: last (evaluation), mean:K (of the last K evaluations) or "
        "area (under the curve).",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        "--return",
        metavar="NAME[:min|:max]",
        help="Any recorded metric in the place of the return: to draw, compare and rank by; with :min, and "
        "for a loss or error, lower values are better.",
    ),
]
SweepName = Annotated[str, typer.Argument(metavar="SWEEP")]
Sweeps = Annotated[list[str] | None, typer.Argument(metavar="SWEEP", help="All sweeps if left away.")]
Others = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="FOLDER",
        help="Past runs of BenchMARL or TensorBoard there stand beside the sweep, as NAME with NAME=FOLDER. "
        "May be given several times.",
    ),
]
RESULTS = Path("results")
FINAL = "mean:5"
Grid = Annotated[
    str | None, typer.Argument(metavar="GRID", help="The grid file; also --grid GRID.", show_default=False)
]
GridOption = Annotated[
    str | None, typer.Option("--grid", metavar="GRID", help="The grid file.", show_default=False)
]

Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the grid: one value, or several as in seed=range(3). May be repeated.",
        show_default=False,
    ),
]


def amount(unit: str, example: str, *, unlimited: bool = False) -> Any:
    """Option callback that refuses a number that is not finite; ``min`` refuses what is too small.

    ``unlimited``: infinity is allowed.
    """

    def checked(param: typer.CallbackParam, value: float | None) -> float | None:
        if value is None or math.isfinite(value) or (unlimited and value == math.inf):
            return value
        hint = f"for example: {example}"
        raise OrchestrateError(f"{param.opts[0]}: found {value}, expected {unit}", hint=hint)

    return checked


def grid_file(argument: str | None, option: str | None, command: str) -> Path:
    """Return the grid file, which is given as an argument or as the option ``--grid``."""
    if argument is not None and option is not None:
        raise OrchestrateError(f"found two grids, {option} and {argument}, expected one")
    if (given := option or argument) is None:
        raise OrchestrateError("no grid is given", hint=f"as in: orchestrate {command} sweeps/speed.yaml")
    return Path(given)


def print_json(value: Any) -> None:
    """Print strict JSON; NaN, as the return before the first episode ends, and infinity become null."""
    ascii_only = "utf" not in (sys.stdout.encoding or "utf").lower()
    typer.echo(json.dumps(_finite(value), indent=1, ensure_ascii=ascii_only, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def print_warnings(warnings: Iterable[object]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def print_problems(problems: Iterable[object]) -> None:
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)


def print_error(error: OrchestrateError) -> None:
    """Print an error and the next command."""
    print_problems([error])
    if error.hint:
        typer.echo(f"  {error.hint}", err=True)


def refuse_untrainable(skipped: int, runs: int, target: str) -> None:
    """Raise an error, as for bad input, if the target can train none of the runs."""
    if runs and skipped == runs:
        raise OrchestrateError(
            f"{target} can train no run of this grid",
            hint="name a target that can, with --on TARGET: `orchestrate profiles` lists them",
        )


def print_problems_there(problems: Iterable[OrchestrateError]) -> None:
    """Print the trees that a decision did not reach, and exit with their code if there are any."""
    worst = 0
    for problem in problems:
        worst = max(worst, problem.exit_code)
        print_error(problem)
    if worst:
        raise typer.Exit(worst)


def print_kept(kept: Mapping[str, str]) -> None:
    """Print why another tree keeps runs."""
    by_reason: dict[str, list[str]] = {}
    for run_id, why in kept.items():
        by_reason.setdefault(why, []).append(run_id)
    for why, run_ids in by_reason.items():
        stays = f"{run_ids[0][:8]} stays" if len(run_ids) == 1 else f"{len(run_ids)} runs stay"
        typer.echo(f"{stays}: {why}", err=True)


def chosen(results: Path, names: Iterable[str]) -> list[SweepDir]:
    """The named sweeps, by default all of the results tree."""
    from orchestrator.rundir import SweepDir, sweeps

    return [SweepDir.existing(results, name) for name in names] or sweeps(results)


def required_sweeps(results: Path, names: list[str] | None) -> list[SweepDir]:
    """Return the named sweeps, by default all; without any it is an error."""
    sweep_dirs = chosen(results, names or [])
    if not sweep_dirs:
        raise NotFoundError(f"no sweep in {results}/ yet", hint="begin with: orchestrate sweep --grid GRID")
    return sweep_dirs


def delegated_runs(sweep_dir: SweepDir) -> tuple[Sequence[str], Callable[[], None]]:
    """The runs of the decision on stdin, and its check, to be called under the sweep's lock.

    The check raises :class:`OrchestrateError` if a later decision came first. The sweep need not be here yet.
    """
    from orchestrator.control.remote.delegated import Decision, require_home

    decision = Decision.from_bytes(sys.stdin.buffer.read())
    sweep_dir.create()
    return decision.run_ids, partial(require_home, decision, sweep_dir)


def chosen_runs(sweep_dir: SweepDir, selectors: Iterable[str]) -> list[IndexRow]:
    """The runs that match a selector, by default all of the latest grid."""
    from orchestrator.status.select_runs import one_run, select_runs

    rows = sweep_dir.read_index()
    selected: dict[str, IndexRow] = {}
    for selector in selectors:
        # An id selects one run; keys can select several.
        fitting = select_runs(rows, selector) if "=" in selector else []
        for row in fitting or [one_run(rows, selector, sweep_dir.name)]:
            selected[row.run_id] = row
    return list(selected.values()) if selected else [row for row in rows if row.in_grid]

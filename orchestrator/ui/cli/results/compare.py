from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.cli.common import (
    FINAL,
    RESULTS,
    Final,
    Json,
    Metric,
    Others,
    Results,
    print_json,
    required_sweeps,
)
from orchestrator.ui.cli.results.reading import read_results

if TYPE_CHECKING:
    from orchestrator.analysis.collect import Collected
    from orchestrator.analysis.compare import KeyComparison
    from orchestrator.rundir import SweepDir

# Combinations and notes that are printed at most.
_MOST_SECTIONS, _MOST_NOTES = 30, 12


def compare(
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP…", help="One sweep, or several.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="KEY", help="A key of the grid, in full or short: n_envs.")
    ] = None,
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
    final: Final = FINAL,
    metric: Metric = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Compare the values of one key.

    Runs that differ only in that key and their seed are compared:
    speed-up and efficiency, returns at equal frames and at equal time,
    memory. A table here and as CSV, a picture as PNG. Besides the grid's keys:
    threads, actors, target, device, environments, hardware, sweep.

    [bold]Examples[/bold]

      orchestrate compare speed --by threads
      orchestrate compare speed --by train_device --baseline cuda
      orchestrate compare old new --by sweep
      orchestrate compare speed --by algorithm --metric loss:min
      orchestrate compare speed --with their_runs --by sweep
    """
    from orchestrator.core.progress import report_step
    from orchestrator.ui.terminal.working import working

    with working("reading results"):
        from orchestrator.analysis.compare import compare_by, prices, table
        from orchestrator.analysis.report.comparison import write_comparison
        from orchestrator.rundir.sweep import comparison_dir

        sweep_dirs = required_sweeps(results, sweeps)
        if by is None:
            raise _without_key(sweep_dirs)
        collected = read_results(sweep_dirs, others, final, metric)
        compared = compare_by(collected, by, baseline=baseline, prices=prices(sweep_dirs))
        # A comparison of several sweeps belongs to none of their folders.
        home = sweep_dirs[0].path if len(sweep_dirs) == 1 else results
        folder = output or comparison_dir(home, compared.short)
        report_step(f"drawing the comparison by {compared.short}")
        written = write_comparison(compared, folder, collected.in_words)
    if as_json:
        print_json(
            {**table.as_json(compared), "final": collected.final, "files": [str(path) for path in written]}
        )
        return
    print_comparison(compared, collected.in_words)
    _print_written(collected, written)


def _print_written(collected: Collected, written: Sequence[Path]) -> None:
    """Print the last lines; problems on the error stream."""
    from orchestrator.ui.terminal.screen import say

    say(f"{collected.in_words('final return')}: {collected.final}")
    for problem in collected.problems:
        say(f"problem: {problem}", errors=True)
    say(f"wrote {', '.join(str(path) for path in written if not path.stem.endswith('-dark'))}")


def _without_key(sweep_dirs: Sequence[SweepDir]) -> OrchestrateError:
    """Return the error of a comparison without a key; it names those that differ."""
    from orchestrator.core.labels import short_keys, varying_keys

    points = [row.point for sweep in sweep_dirs for row in sweep.read_index() if row.in_grid]
    keys = varying_keys(points, without=("seed",))
    names = [short_keys(keys)[key] for key in keys] + (["sweep"] if len(sweep_dirs) > 1 else [])
    told = f"these differ: {', '.join(names)}" if names else "all runs have the same ones"
    return OrchestrateError(
        f"compare: a key to compare by is missing; {told}", hint=f"--by {names[0] if names else 'KEY'}"
    )


def print_comparison(compared: KeyComparison, words: Callable[[str], str]) -> None:
    """Print the table, notes and verdict of a comparison; ``words`` name the metric."""
    from orchestrator.analysis.cells import MISSING
    from orchestrator.analysis.compare.table import RANKS, columns, sections
    from orchestrator.analysis.compare.wording import notes, verdict
    from orchestrator.ui.terminal.screen import say, show
    from orchestrator.ui.terminal.table import KeyTable, ScreenColumn, cell

    told = sections(compared)
    shown = told if len(told) <= _MOST_SECTIONS else [*told[: _MOST_SECTIONS - 1], told[-1]]
    parts = _named_keys(compared)
    rows = [(parts.get(label, (label,)), row) for label, own in shown for row in own]
    cells = zip(*([cell.text for cell in row] for _, row in rows), strict=True)
    table = [
        ScreenColumn(words(head), [*map(cell, own)], left=not number, key=not number, rank=RANKS.get(head, 2))
        for number, (head, own) in enumerate(zip(columns(compared), cells, strict=True))
        if number == 0 or {*own} - {"", MISSING}
    ]
    show(KeyTable(table, [heads for heads, _ in rows]))
    if len(shown) < len(told):
        say(f"… {len(told) - len(shown)} more combinations: the CSV file has all", style="dim")
    for note in notes(compared)[:_MOST_NOTES]:
        say(words(note), "note")
    say(words(verdict(compared)))


def _named_keys(compared: KeyComparison) -> dict[str, list[str]]:
    """Return for the label of each combination its keys that differ, each with its value."""
    from orchestrator.core.formatting import printable
    from orchestrator.core.labels import key_columns

    combinations = compared.combinations
    keys = key_columns([combination.point for combination in combinations]) if len(combinations) > 1 else []
    named = (
        [f"{key.name}={printable(key.values[at])}" for key in keys if key.values[at]]
        for at in range(len(combinations))
    )
    return {combination.label: parts for combination, parts in zip(combinations, named, strict=True) if parts}

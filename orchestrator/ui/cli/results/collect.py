from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.core.formatting import count, listed
from orchestrator.ui.cli.common import (
    FINAL,
    RESULTS,
    Final,
    Json,
    Metric,
    Others,
    Results,
    Sweeps,
    print_json,
    required_sweeps,
)
from orchestrator.ui.cli.results.compare import print_comparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.analysis.collect import Collected
    from orchestrator.analysis.verdict.fastest import FastestAnswer
    from orchestrator.analysis.verdict.leaders import TaskAnswer
    from orchestrator.rundir import SweepDir
    from orchestrator.ui.terminal.table import ScreenColumn

# Missing runs named per reason.
_NAMED = 6
_MOST_ANSWERS = 12


def collect(
    sweeps: Sweeps = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the content of every file against its checksum.")
    ] = False,
    others: Others = None,
    final: Final = FINAL,
    metric: Metric = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Merge run folders into tables in the sweep's folder.

    Of results that are here: `orchestrate sync` first fetches those of cloud
    instances and of clusters behind ssh.
    results.parquet and results.csv have a row per run, metrics.parquet every
    metric of every run; marl_eval.json is for marl-eval, with each variant
    under its own name.

    [bold]Examples[/bold]

      orchestrate collect speed
      orchestrate collect --verify
      orchestrate collect speed --with their_runs
      orchestrate collect speed --return charts/episodic_return
    """
    from orchestrator.ui.terminal.working import working

    with working("reading results"):
        from orchestrator.analysis import marl_eval_export
        from orchestrator.analysis.chosen_metric import ChosenMetric
        from orchestrator.analysis.collect import collect as read
        from orchestrator.analysis.collect import read_others, write
        from orchestrator.analysis.compare import table, target_comparisons
        from orchestrator.analysis.groups.grouping import final_returns, groups
        from orchestrator.analysis.groups.limits import lacking_returns, provisional, single_values, unranked
        from orchestrator.analysis.groups.summary import summary_json, summary_table
        from orchestrator.analysis.statistics.significance import ONE_LOOK
        from orchestrator.analysis.verdict.fairness import SPEED, audit
        from orchestrator.analysis.verdict.fastest import fastest
        from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
        from orchestrator.analysis.verdict.leaders import answers, no_overall
        from orchestrator.control.fleet import present
        from orchestrator.planning.throughput.record import take_up

        measure, chosen = FinalMeasure.parse(final), ChosenMetric.parse(metric)
        sweep_dirs = required_sweeps(results, sweeps)
        foreign = read_others(others or [], sweep_dirs)
    for sweep_dir in sweep_dirs:
        with working(f"{sweep_dir.name}: reading runs"):
            collected = measured_by(
                read([sweep_dir], present, checksums=verify, others=foreign, chosen=chosen), measure
            )
            write(collected, sweep_dir)
            exported = marl_eval_export.write(collected, sweep_dir)
            take_up(sweep_dir)
            columns, rows = summary_table(collected)
            compared = target_comparisons([sweep_dir], collected, intervals=False).values()
            compared_groups = groups(collected)
            finals = final_returns(compared_groups, intervals=False)
            found_answers, settings = answers(finals), fastest(compared_groups)
            limits = [
                *unranked(finals),
                *lacking_returns(collected, compared_groups),
                *single_values(compared_groups),
                *collected.warnings,
            ]
            limits += [f"* {line}" for line in provisional(compared_groups)]
            limits += filter(None, [no_overall(finals)])
            limits += [ONE_LOOK] * any(answer.compared for answer in found_answers)
            checks = [check for check in audit(compared_groups, finals) if check.name in SPEED]
            limits += [f"red flag, {check.name}: {flag}" for check in checks for flag in check.flags]
            limits = [collected.in_words(limit) for limit in limits]
        if as_json:
            print_json(
                {
                    "sweep": sweep_dir.name,
                    "groups": summary_json(collected),
                    "targets": [table.as_json(comparison) for comparison in compared],
                    "missing": [
                        {"sweep": item.sweep, "run_id": item.run_id, "point": item.point, "why": item.why}
                        for item in collected.missing
                    ],
                    "problems": list(collected.problems),
                    "notes": limits,
                    "final": collected.final,
                    "answers": [answer.as_dict() for answer in found_answers],
                    "fastest": [answer.as_dict() for answer in settings],
                    "marl_eval": {
                        "runs": exported.runs,
                        "absolute_metrics": exported.measured,
                        "notes": list(exported.notes),
                    },
                    "files": [str(path) for path in _files(sweep_dir)],
                }
            )
        else:
            _print(sweep_dir, collected, [group.point for group in compared_groups], columns, rows, limits)
            _print_written(sweep_dir, exported.notes, collected.problems)
            for comparison in compared:
                print_comparison(comparison, collected.in_words)
            _print_answers([*settings, *found_answers], collected)


def _print(
    sweep_dir: SweepDir,
    collected: Collected,
    points: Sequence[Mapping[str, Any]],
    columns: list[str],
    rows: list[list[str]],
    limits: Iterable[str],
) -> None:
    from orchestrator.ui.terminal.screen import say, show
    from orchestrator.ui.terminal.table import KeyTable, ScreenColumn, cell

    names, *figures = zip(*rows, strict=True) if rows else [()] * len(columns)
    table = [
        *_group_columns(points, names),
        *(
            ScreenColumn(_head(head), [cell(value) for value in values], rank=0 if "final" in head else 1)
            for head, values in zip(columns[1:], figures, strict=True)
        ),
    ]
    show(KeyTable(table))
    for why, who in _by_reason(sweep_dir, collected).items():
        say(f"{count(len(who), 'run')}, {why}", "missing")
        say(f"  {listed(who, _NAMED)}", style="dim")
    for warning in limits:
        say(warning, "note")
    for problem in collected.problems:
        say(problem, "problem")


def _group_columns(points: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[ScreenColumn]:
    """Return a column for each key that differs between groups, or one of their labels if none does."""
    from orchestrator.core.labels import key_columns
    from orchestrator.ui.terminal.table import ScreenColumn, cell

    keys = key_columns(points) if len(points) > 1 else []
    told = [(key.name, key.values) for key in keys] or [("group", tuple(labels))]
    return [
        ScreenColumn(name, [cell(value) for value in values], left=True, key=True) for name, values in told
    ]


def _print_written(sweep_dir: SweepDir, notes: Iterable[str], problems: Iterable[str]) -> None:
    from orchestrator.ui.terminal.screen import say

    for note in notes:
        say(note, "note")
    first, *others = _files(sweep_dir)
    written = ", ".join([str(first), *(path.name for path in others)])
    damaged = {problem.partition(":")[0] for problem in problems if problem.startswith(f"{sweep_dir.name}/")}
    say(f"wrote {written}" + (f", without {count(len(damaged), 'damaged run')}" if damaged else ""))


def _print_answers(answers: Sequence[FastestAnswer | TaskAnswer], collected: Collected) -> None:
    from orchestrator.ui.terminal.screen import say

    if answers:
        say(f"{collected.in_words('final return')} of a run: {collected.final}", style="dim")
    for answer in answers[:_MOST_ANSWERS]:
        say(collected.in_words(str(answer)), "answer")
    if (more := len(answers) - _MOST_ANSWERS) > 0:
        say(f"… {more} more answers are in the report", style="dim")


def _files(sweep_dir: SweepDir) -> list[Path]:
    return [sweep_dir.table_parquet, sweep_dir.table_csv, sweep_dir.metrics_parquet, sweep_dir.marl_eval]


def _head(column: str) -> str:
    """Format a column's name as a heading, on two lines if it is long."""
    return column.replace(" frames/s", "\nframes/s").replace(" (IQM)", "\n(IQM)")


def _by_reason(sweep_dir: SweepDir, collected: Collected) -> dict[str, list[str]]:
    """Group missing runs by reason; name each by the keys that differ in the grid."""
    from orchestrator.core.labels import labeller

    label = labeller([row.point for row in sweep_dir.read_index() if row.in_grid])
    reasons: dict[str, list[str]] = {}
    for item in collected.missing:
        reasons.setdefault(item.why, []).append(f"{item.run_id[:8]} {label(item.point)}")
    return reasons

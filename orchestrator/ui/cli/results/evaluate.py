from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.core.errors import NotFoundError, OrchestrateError, StorageError
from orchestrator.core.formatting import count
from orchestrator.ui.cli.common import (
    RESULTS,
    Json,
    Results,
    SweepName,
    chosen_runs,
    print_json,
    print_problems_there,
)
from orchestrator.ui.cli.results.evaluation_matrix import print_matrices

if TYPE_CHECKING:
    from orchestrator.analysis.evaluations.evaluate import EvaluatedPolicy, FailedPolicy, Summary
    from orchestrator.analysis.evaluations.matrix import Matrix
    from orchestrator.analysis.evaluations.played_tasks import PlayedTask
    from orchestrator.rundir import Evaluation, SweepDir


def evaluate(
    sweep: SweepName,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN", help="Id prefixes, or algorithm=mappo,seed=0; all finished runs if none."
        ),
    ] = None,
    checkpoint: Annotated[
        int | None, typer.Option("--checkpoint", metavar="N", min=0, help="Of N frames; else the newest.")
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The best policy that training found, in ten times the episodes.")
    ] = False,
    episodes: Annotated[
        int | None, typer.Option("--episodes", metavar="N", min=1, help="Else as many as in training.")
    ] = None,
    deterministic: Annotated[
        bool | None,
        typer.Option(
            "--deterministic/--no-deterministic",
            help="Else as in training's evaluations.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Decides every episode.")] = 0,
    on_task: Annotated[
        list[str] | None,
        typer.Option(
            "--on-task",
            metavar="TASK",
            help="Another task of the same spaces: TASK,key=value,…; several times.",
        ),
    ] = None,
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="Each policy on the tasks of all runs; a table of training × test."),
    ] = False,
    render: Annotated[
        Path | None, typer.Option("--render", metavar="FILE", help="Film the first episode: .mp4 or .gif.")
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Evaluate trained policies from any checkpoint, also on another task.

    Prints the returns and stores them with the sweep. The same seed gives the
    same returns.

    [bold]Examples[/bold]

      orchestrate evaluate speed algorithm=mappo,seed=0 --episodes 100
      orchestrate evaluate speed 3fa9 --render 3fa9.mp4
      orchestrate evaluate speed --best
      orchestrate evaluate brigade --on-task 'bucket_brigade/*'
    """
    from orchestrator.analysis.evaluations.evaluate import (
        EvaluationOptions,
        finished_runs,
        require_film,
        require_policies,
    )
    from orchestrator.analysis.evaluations.evaluate import evaluate as play
    from orchestrator.rundir import SweepDir
    from orchestrator.ui.terminal.screen import with_bar
    from orchestrator.ui.terminal.working import working

    sweep_dir = SweepDir.existing(results, sweep)
    if not runs:
        require_policies(sweep_dir)
    run_ids = _chosen(sweep_dir, runs) if runs else finished_runs(sweep_dir)
    if not run_ids:
        hint = f"name one that has a checkpoint; `orchestrate status {sweep}` lists them"
        raise NotFoundError(f"no run of {sweep} is finished", hint=hint)
    tasks = _tasks(sweep_dir, run_ids, on_task or [], matrix=matrix)
    if render is not None:
        require_film(render)
        if len(run_ids) > 1 or len(tasks) > 1:
            meant = f"{len(run_ids)} runs" if len(run_ids) > 1 else f"{len(tasks)} tasks"
            raise OrchestrateError(f"--render: one file, but {meant} are meant", hint="name one")
    options = EvaluationOptions(checkpoint, best, episodes, deterministic, seed, film=render)
    played = play(sweep_dir, run_ids, options, tasks, again=bool(runs))
    if (total := len(run_ids) * len(tasks)) == 1:
        with working("playing the policy"):
            ended = list(played)
    else:
        ended = list(with_bar(played, total))
    _tell(sweep_dir, ended, render, as_json=as_json, as_matrix=matrix or len(tasks) > 1)


def _chosen(sweep_dir: SweepDir, selectors: Sequence[str]) -> list[str]:
    """Return the runs that are meant; of several that keys select, those that have begun."""
    chosen = [row.run_id for row in chosen_runs(sweep_dir, selectors)]
    if len(chosen) == 1 or not any("=" in selector for selector in selectors):
        return chosen
    begun = [run_id for run_id in chosen if sweep_dir.run_to_read(run_id).attempts()]
    if begun and len(begun) < len(chosen):
        typer.echo(f"left out: {count(len(chosen) - len(begun), 'run')} not begun", err=True)
    return begun or chosen


def _tasks(
    sweep_dir: SweepDir, run_ids: Sequence[str], named: Sequence[str], *, matrix: bool
) -> Sequence[PlayedTask]:
    from orchestrator.analysis.evaluations.evaluate import task_names
    from orchestrator.analysis.evaluations.played_tasks import OWN_TASK, expanded, parse_task, trained_on

    tasks = [parse_task(text) for text in named]
    if matrix and not tasks:
        tasks = trained_on(row.point for row in sweep_dir.read_index() if row.run_id in set(run_ids))
    tasks = tasks or [OWN_TASK]
    if any(task.is_pattern for task in tasks):
        tasks = expanded(tasks, task_names(sweep_dir, run_ids[0]))
    return tasks


def _tell(
    sweep_dir: SweepDir,
    ended: Sequence[EvaluatedPolicy | FailedPolicy],
    film: Path | None,
    *,
    as_json: bool,
    as_matrix: bool,
) -> None:
    from orchestrator.analysis.evaluations.evaluate import FailedPolicy, summaries
    from orchestrator.analysis.evaluations.matrix import as_rows, matrices

    done = [policy for policy in ended if not isinstance(policy, FailedPolicy)]
    failed = [policy for policy in ended if isinstance(policy, FailedPolicy)]
    averages = summaries([policy.evaluation for policy in done])
    points = {row.run_id: row.point for row in sweep_dir.read_index()}
    by_test = matrices([policy.evaluation for policy in done], points) if as_matrix else []
    files = _write_matrices(sweep_dir, by_test)
    if as_json:
        evaluations = [_as_json(policy, summary) for policy, summary in zip(done, averages, strict=True)]
        more = {"matrix": as_rows(by_test)} if as_matrix else {}
        print_json({"sweep": sweep_dir.name, "evaluations": evaluations, **more})
    elif done:
        if as_matrix:
            print_matrices(by_test)
        else:
            _print_table(sweep_dir, done, averages)
        known = sum(policy.known for policy in done)
        if not all(policy.unkept for policy in done):
            already = f"; {known} there already" if known else ""
            typer.echo(f"kept in {sweep_dir.evaluations.path}/{already}")
        for path in files:
            typer.echo(f"{'table' if path.suffix == '.csv' else 'heatmap'}: {path}")
        if film is not None:
            typer.echo(f"first episode: {film}")
    unkept = [policy.unkept for policy in done if policy.unkept is not None]
    print_problems_there([*_problems(failed), *unkept[:1]])


def _write_matrices(sweep_dir: SweepDir, matrices: Sequence[Matrix]) -> list[Path]:
    """Write the matrices beside the evaluations; the results tree may be another user's."""
    from orchestrator.analysis.report import write_matrices

    if not matrices:
        return []
    try:
        return write_matrices(matrices, sweep_dir.evaluations.path)
    except StorageError as error:
        typer.echo(f"warning: no heatmap: {error}", err=True)
        return []


def _problems(failed: Sequence[FailedPolicy]) -> Iterator[OrchestrateError]:
    """Yield an error for each cause on a task: the first run that it befell, and the number of others."""
    alike: dict[tuple[str, str], list[FailedPolicy]] = {}
    for policy in failed:
        cause = str(policy.error).replace(policy.run_id, "").replace(policy.run_id[:8], "")
        alike.setdefault((policy.task, cause), []).append(policy)
    for first, *others in alike.values():
        if others:
            first.error.args = (f"{first.error} (and {len(others)} more)",)
        yield first.error


def _print_table(sweep_dir: SweepDir, done: Sequence[EvaluatedPolicy], summaries: Sequence[Summary]) -> None:
    from rich.text import Text

    from orchestrator.core.formatting import number
    from orchestrator.core.labels import labeller
    from orchestrator.ui.terminal.screen import say, show, table

    points = {row.run_id: row.point for row in sweep_dir.read_index()}
    label = labeller(list(points.values()))
    rows = table("run", "", right=("frames", "return", "IQM", "95 %", "steps"))
    rows.columns[0].no_wrap = True
    for policy, summary in zip(done, summaries, strict=True):
        certain = summary.low is None or summary.low == summary.high
        rows.add_row(
            Text(policy.evaluation.run_id[:8], style="dim"),
            Text(label(points.get(policy.evaluation.run_id, {}))),
            f"{policy.evaluation.frames:,}",
            number(summary.mean),
            number(summary.iqm),
            "" if certain else f"{number(summary.low)} … {number(summary.high)}",
            number(summary.length),
        )
    say(_title([policy.evaluation for policy in done]))
    show(rows)


def _title(evaluations: Sequence[Evaluation]) -> str:
    """A table title: what all rows share, and how they were evaluated."""
    from orchestrator.analysis.evaluations.matrix import setting_of

    policy = "the best policy of each training" if evaluations[0].best else "policies"
    tasks = ", ".join(dict.fromkeys(evaluation.task for evaluation in evaluations))
    return f"{policy} on {tasks}: {setting_of(evaluations)}"


def _as_json(policy: EvaluatedPolicy, summary: Summary) -> dict[str, Any]:
    return {**asdict(policy.evaluation), **asdict(summary), "seconds": policy.seconds, "known": policy.known}

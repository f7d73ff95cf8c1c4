"""Matrices of evaluations: a row for what policies were trained on, a column for what they were tested on."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.evaluations.played_tasks import read_task, without_family
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.statistics.bootstrap import Estimate, estimate_of
from orchestrator.core.labels import Point, run_labels
from orchestrator.rundir import Evaluation, SweepDir

RETURN = "return"
_SEED = "seed"
# Figures of this group describe play. Too many to show in matrices, they are in the files.
BEHAVIOUR = "behaviour/"


@dataclass(frozen=True)
class MatrixRow:
    """Runs that differ in their seed alone, or scripted players: a cell for each column.

    ``trained``: numbers of the columns that are the runs' own task.
    """

    label: str
    cells: tuple[Estimate | None, ...]
    trained: frozenset[int] = frozenset()
    scripted: bool = False


@dataclass(frozen=True)
class Matrix:
    """One figure of evaluations, such as the return, by training and test; ``setting``: what all share."""

    metric: str
    setting: str
    columns: tuple[str, ...]
    rows: tuple[MatrixRow, ...]


def matrices(evaluations: Sequence[Evaluation], points: Mapping[str, Point]) -> list[Matrix]:
    """Return a matrix of the returns, and one of each further figure, of the tasks that have it.

    ``points``: the runs' points by id, in the order of rows; of a run's evaluations on a task the last
    counts. Scripted players have rows where the evaluations hold them.
    """
    latest = {(one.run_id, one.task): one for one in evaluations if one.run_id in points}
    if not latest:
        return []
    tasks = list(dict.fromkeys(one.task for one in evaluations if (one.run_id, one.task) in latest))
    names = dict(zip(tasks, _labels([read_task(task) for task in tasks]), strict=True))
    evaluated = {run_id for run_id, _ in latest}
    groups = _groups([run_id for run_id in points if run_id in evaluated], points)
    metrics = [RETURN, *sorted({name for evaluation in latest.values() for name in evaluation.figures})]
    labels, setting = _labels([point for point, _ in groups]), setting_of(list(latest.values()))
    by_metric = []
    for metric in metrics:
        known = [task for task in tasks if metric == RETURN or _has(latest.values(), task, metric)]
        rows = [
            MatrixRow(
                label,
                tuple(_estimate([latest.get((one, task)) for one in run_ids], metric) for task in known),
                frozenset(number for number, task in enumerate(known) if is_own(point, read_task(task))),
            )
            for label, (point, run_ids) in zip(labels, groups, strict=True)
        ]
        scripted = _scripted_rows(list(latest.values()), known, metric)
        by_metric.append(Matrix(metric, setting, tuple(names[task] for task in known), (*rows, *scripted)))
    return by_metric


def _has(evaluations: Iterable[Evaluation], task: str, metric: str) -> bool:
    """Return whether an evaluation on the task has the figure, of policies or of scripted players."""
    return any(
        metric in figures
        for evaluation in evaluations
        if evaluation.task == task
        for figures in (evaluation.figures, *evaluation.baselines.values())
    )


def latest_matrices(sweep_dir: SweepDir) -> list[Matrix]:
    """Return the matrices of the newest evaluations on record that share their setting.

    Empty unless they are of two tasks or more.
    """
    points = {row.run_id: row.point for row in sweep_dir.read_index() if row.in_grid}
    alike = gathered(
        ((evaluation.best, evaluation.episodes, evaluation.seed, evaluation.deterministic), evaluation)
        for evaluation in sweep_dir.evaluations.read()
        if evaluation.run_id in points
    )
    several = [group for group in alike.values() if len({evaluation.task for evaluation in group}) > 1]
    return matrices(max(several, key=lambda group: group[-1].time), points) if several else []


def shown(every: Sequence[Matrix]) -> list[Matrix]:
    """Return the matrices that are printed and drawn; files hold all."""
    return [matrix for matrix in every if not matrix.metric.startswith(BEHAVIOUR)]


def setting_of(evaluations: Sequence[Evaluation]) -> str:
    """Describe how policies were evaluated."""
    numbers = dict.fromkeys(f"{evaluation.episodes:,}" for evaluation in evaluations)
    episodes = f"{' or '.join(numbers)} {'episode' if list(numbers) == ['1'] else 'episodes'}"
    kinds = " or ".join(
        dict.fromkeys("deterministic" if evaluation.deterministic else "random" for evaluation in evaluations)
    )
    best = ", best policies of training" if evaluations[0].best else ""
    return f"{episodes}, {kinds} actions, seed {evaluations[0].seed}{best}"


def as_rows(every: Sequence[Matrix]) -> list[dict[str, Any]]:
    """Return all known cells, a row of plain values each."""
    return [
        {
            "metric": matrix.metric,
            "trained_on": row.label,
            "tested_on": column,
            "scripted": row.scripted,
            "value": cell.value,
            "low": cell.low,
            "high": cell.high,
            "seeds": None if row.scripted else cell.n,
        }
        for matrix in every
        for row in matrix.rows
        for column, cell in zip(matrix.columns, row.cells, strict=True)
        if cell is not None
    ]


def as_csv(every: Sequence[Matrix]) -> str:
    """Return :func:`as_rows` as CSV."""
    rows = as_rows(every)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _groups(run_ids: Sequence[str], points: Mapping[str, Point]) -> list[tuple[dict[str, Any], list[str]]]:
    """Group runs that differ in their seed alone: the point without it, and the runs."""
    without = {one: {key: value for key, value in points[one].items() if key != _SEED} for one in run_ids}
    alike = gathered((json.dumps(point, sort_keys=True), run_id) for run_id, point in without.items())
    return [(without[members[0]], members) for members in alike.values()]


def _labels(points: Sequence[Point]) -> list[str]:
    """Label points by the keys that vary; without a family of tasks that all share."""
    tasks = [str(point.get("task", "")) for point in points]
    if (inside := without_family(tasks)) != tasks:
        points = [{**point, "task": task} for point, task in zip(points, inside, strict=True)]
        tasks = inside
    labels = run_labels(points) if len(points) > 1 else [""]
    return [label or task or "policies" for label, task in zip(labels, tasks, strict=True)]


def is_own(point: Point, column: Point) -> bool:
    """Return whether a policy of this point was trained on the task of this column."""
    return all(key in point and point[key] == value for key, value in column.items())


def _estimate(own: Sequence[Evaluation | None], metric: str) -> Estimate | None:
    """Estimate a figure over runs, each of which is a seed."""
    values = [figure_of(evaluation, metric) for evaluation in own if evaluation is not None]
    return estimate_of([value for value in values if value is not None and math.isfinite(value)])


def figure_of(evaluation: Evaluation, metric: str) -> float | None:
    """Return a figure of an evaluation, or its mean return."""
    return (
        sum(evaluation.returns) / len(evaluation.returns)
        if metric == RETURN
        else evaluation.figures.get(metric)
    )


def _scripted_rows(evaluations: Sequence[Evaluation], tasks: Sequence[str], metric: str) -> list[MatrixRow]:
    """Return a row per player; a cell is empty where runs with other opponents found other values."""
    found = gathered(
        ((player, evaluation.task), figures[metric])
        for evaluation in evaluations
        for player, figures in evaluation.baselines.items()
        if metric in figures
    )
    return [
        MatrixRow(player, tuple(_only(found.get((player, task), [])) for task in tasks), scripted=True)
        for player in sorted({player for player, _ in found})
    ]


def _only(values: Sequence[float]) -> Estimate | None:
    return Estimate(values[0], None, None, 1) if len(set(values)) == 1 else None

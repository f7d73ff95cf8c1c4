"""Policies beside scripted baselines: figures, the best baseline, the gap closed, frames to thresholds.

From evaluations on record that hold baselines, of any trainer. Figures named ``behaviour/…`` describe play,
and ``…gap_closed`` is a scale from random play (0) to a reference (1); of any other figure more is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from statistics import fmean

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.evaluations.evaluate import final_checkpoint
from orchestrator.analysis.evaluations.matrix import BEHAVIOUR, RETURN, figure_of, is_own, setting_of
from orchestrator.analysis.evaluations.played_tasks import read_task
from orchestrator.analysis.groups.curves import FramesToThreshold, Series, first_reached, series_of
from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.statistics.bootstrap import Estimate, estimate_of
from orchestrator.analysis.statistics.significance import FEW_SEEDS, LEVEL, holm, mean_with_chance
from orchestrator.config.returns import EVALUATIONS, is_evaluation
from orchestrator.config.trainers import returns_of
from orchestrator.core.labels import Point
from orchestrator.rundir import Evaluation, SweepDir

HALF = 0.5
_GAP = "gap_closed"
_ROUNDING = 1e-6


class BaselineVerdict(StrEnum):
    """Where the mean over seeds lies, relative to the best baseline, if significantly so."""

    ABOVE = "above"
    ALIKE = "not told apart"
    BELOW = "below"
    FEW = "too few seeds"


@dataclass(frozen=True)
class EvaluatedGroup:
    """A group and the evaluations of its runs on their own task, one per seed.

    ``baselines``: figures of scripted players in that task, by player.
    """

    group: SeedGroup
    evaluations: tuple[Evaluation, ...]
    baselines: Mapping[str, Mapping[str, float]]

    def values(self, figure: str) -> list[float]:
        """Return a figure's finite values, one per seed."""
        values = [figure_of(evaluation, figure) for evaluation in self.evaluations]
        return [value for value in values if value is not None and math.isfinite(value)]

    def players(self, figure: str) -> dict[str, float]:
        """Return a figure's finite values by scripted player."""
        by_player = {name: figures.get(figure, math.nan) for name, figures in sorted(self.baselines.items())}
        return {name: value for name, value in by_player.items() if math.isfinite(value)}

    def best(self, figure: str) -> tuple[float, tuple[str, ...]] | None:
        """Return the highest value of all scripted players, and the players that reach it."""
        players = self.players(figure)
        if not players:
            return None
        highest = max(players.values())
        return highest, tuple(name for name, value in players.items() if not _above(highest, value))


@dataclass(frozen=True)
class EvaluatedSweep:
    """Groups of a sweep with evaluations of one ``setting``.

    ``missing``: finished runs without any; ``command``: the one that evaluates them alike.
    """

    name: str
    setting: str
    groups: tuple[EvaluatedGroup, ...]
    missing: int
    command: str

    @property
    def figures(self) -> list[str]:
        """Figures that policies and scripted players have in common; returns last."""
        names = {
            name
            for group in self.groups
            for name in (RETURN, *(name for several in group.evaluations for name in several.figures))
            if group.values(name) and group.players(name)
        }
        return sorted(names, key=lambda name: (name == RETURN, name))

    @property
    def ranked(self) -> list[str]:
        """Those of which more is better."""
        return [name for name in self.figures if not name.startswith(BEHAVIOUR) and not name.endswith(_GAP)]

    @property
    def behaviour(self) -> list[str]:
        """Those that describe play."""
        return [name for name in self.figures if name.startswith(BEHAVIOUR)]


@dataclass(frozen=True)
class Ranking:
    """A figure of a group beside its best baseline; ``gap``: the gap closed, where the trainer has it.

    ``chance``: p-value of a mean so far from the baseline, corrected for all groups and figures of the sweep;
    ``None`` below five seeds.
    """

    of: EvaluatedGroup
    figure: str
    estimate: Estimate
    best: float
    best_players: tuple[str, ...]
    gap: Estimate | None
    chance: float | None = None

    @property
    def verdict(self) -> BaselineVerdict:
        """Where the mean lies; none below five seeds."""
        if self.chance is None:
            return BaselineVerdict.FEW
        if self.chance > LEVEL:
            return BaselineVerdict.ALIKE
        return (
            BaselineVerdict.ABOVE
            if fmean(_away(self.of.values(self.figure), self.best)) > 0
            else BaselineVerdict.BELOW
        )


def _above(value: float, other: float) -> bool:
    """Return whether a value is higher by more than rounding: trainers add up single-precision numbers."""
    return value > other and not math.isclose(value, other, rel_tol=_ROUNDING)


def gap_of(figure: str) -> str:
    """Return the name of the gap closed in a figure: ``team/gap_closed`` of ``team/score``."""
    folder, slash, _ = figure.rpartition("/")
    return f"{folder}{slash}{_GAP}"


def evaluated_sweep(
    sweep_dir: SweepDir, collected: Collected, groups: Sequence[SeedGroup]
) -> EvaluatedSweep | None:
    """Return the sweep's evaluations that hold baselines; ``None`` without any.

    Of final checkpoints on the runs' own task. Of several settings the one with the most runs counts, then
    the newest.
    """
    own = [group for group in groups if group.sweep == sweep_dir.name]
    counted = [(group, [row["run_id"] for row in group.counted()[0]]) for group in own]
    points = {
        run_id: collected.points[sweep_dir.name, run_id] for _, run_ids in counted for run_id in run_ids
    }
    settings: dict[tuple[object, ...], dict[str, Evaluation]] = {}
    for evaluation in _final_evaluations(sweep_dir, points):
        alike = settings.setdefault(
            (evaluation.best, evaluation.episodes, evaluation.seed, evaluation.deterministic), {}
        )
        alike.pop(evaluation.run_id, None)
        alike[evaluation.run_id] = evaluation
    if not settings:
        return None
    chosen = max(settings.values(), key=lambda alike: (len(alike), max(one.time for one in alike.values())))
    evaluated = []
    for group, run_ids in counted:
        several = tuple(chosen[run_id] for run_id in run_ids if run_id in chosen)
        if several:
            newest = max(several, key=lambda evaluation: evaluation.time)
            evaluated.append(EvaluatedGroup(group, several, newest.baselines))
    counting = list(chosen.values())
    missing = len(points) - len(counting)
    command = _command(sweep_dir.name, counting[0])
    return EvaluatedSweep(sweep_dir.name, setting_of(counting), tuple(evaluated), missing, command)


def _command(sweep: str, like: Evaluation) -> str:
    """Return the command that evaluates a sweep's runs as another evaluation did."""
    actions = "--deterministic" if like.deterministic else "--no-deterministic"
    best = " --best" if like.best else ""
    seed = f" --seed {like.seed}" if like.seed else ""
    return f"orchestrate evaluate {sweep} --episodes {like.episodes}{seed}{best} {actions}"


def _final_evaluations(sweep_dir: SweepDir, points: Mapping[str, Point]) -> Iterator[Evaluation]:
    """Yield the runs' evaluations with baselines, of their final checkpoint on their own task, oldest first.

    Evaluations of another checkpoint are of an earlier training, or were made before its end.
    """
    final = cache(lambda run_id: final_checkpoint(sweep_dir.run_to_read(run_id)))
    for evaluation in sweep_dir.evaluations.read():
        if evaluation.run_id not in points or not evaluation.baselines:
            continue
        column = read_task(evaluation.task)
        point = {"task": column["task"], **points[evaluation.run_id]}
        if evaluation.checkpoint == final(evaluation.run_id) and is_own(point, column):
            yield evaluation


def rankings(evaluated: EvaluatedSweep, figure: str) -> list[Ranking]:
    """Set each group's figure beside its best baseline, in order.

    Student's t test of the distances of seeds from the baseline, corrected by Holm's method for all groups
    and all figures of which more is better.
    """
    every = [
        ranking
        for name in dict.fromkeys([*evaluated.ranked, figure])
        for ranking in _untested(evaluated, name)
    ]
    chances = {at: chance for at, ranking in enumerate(every) if (chance := _chance(ranking)) is not None}
    corrected = dict(zip(chances, holm(list(chances.values()), len(chances)), strict=True))
    return [replace(one, chance=corrected.get(at)) for at, one in enumerate(every) if one.figure == figure]


def _untested(evaluated: EvaluatedSweep, figure: str) -> Iterator[Ranking]:
    for group in evaluated.groups:
        estimate, best = estimate_of(group.values(figure)), group.best(figure)
        if estimate is not None and best is not None:
            gap = estimate_of(group.values(gap_of(figure)))
            yield Ranking(group, figure, estimate, *best, gap)


def _chance(ranking: Ranking) -> float | None:
    """Return the p-value of the mean's distance from the baseline; ``None`` below five seeds."""
    tested = mean_with_chance(_away(ranking.of.values(ranking.figure), ranking.best))
    return None if tested is None or ranking.estimate.n < FEW_SEEDS else tested[2]


def _away(values: Sequence[float], best: float) -> list[float]:
    """Return how far values are from another one, 0 where that is rounding."""
    return [value - best if _above(value, best) or _above(best, value) else 0.0 for value in values]


def frames_to_best(ranked: Sequence[Ranking], collected: Collected) -> list[FramesToThreshold | None]:
    """Return when each group reached its best baseline in training; ``None`` without a curve."""
    series = _curves(ranked, collected, [ranking.figure for ranking in ranked])
    return [first_reached(own, ranking.best) for own, ranking in zip(series, ranked, strict=True)]


def frames_to_half(ranked: Sequence[Ranking], collected: Collected) -> list[FramesToThreshold | None]:
    """Return when each group had closed half of the gap in training; ``None`` without a curve."""
    return [
        first_reached(own, HALF) for own in _curves(ranked, collected, [gap_of(one.figure) for one in ranked])
    ]


def _curves(ranked: Sequence[Ranking], collected: Collected, figures: Sequence[str]) -> list[list[Series]]:
    """Return the curves of a figure in training, one per seed that has it, for each group."""
    of_rows = [ranking.of.group.counted()[0] for ranking in ranked]
    metrics = [_metrics(figure, rows[0]["trainer"]) for figure, rows in zip(figures, of_rows, strict=True)]
    every = [row for rows in of_rows for row in rows]
    series = series_of(collected, every, {name for names in metrics for name in names})
    return [
        [
            series[key]
            for row in rows
            for name in names
            if (key := (row["sweep"], row["run_id"], name)) in series
        ]
        for rows, names in zip(of_rows, metrics, strict=True)
    ]


def _metrics(figure: str, trainer: str) -> list[str]:
    """Return the metric of evaluations in training that holds a figure, if there may be one."""
    if figure == RETURN:
        return [name for name in returns_of(trainer) if is_evaluation(name)][:1]
    return [f"{EVALUATIONS}{figure}"]

"""Predict the length of runs from those measured so far, and order them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from statistics import fmean

from orchestrator.core.types import Run, RunState
from orchestrator.planning.interleave import interleaved
from orchestrator.status.survey import Survey

# Runs expected to take more than this many times the mean begin before all others.
_LONG = 2.0


def in_turns(runs: Sequence[Run], known: Iterable[Run], survey: Survey, lanes: int = 1) -> list[Run]:
    """Return the runs in the order to begin them: seed by seed, with interleaved configurations.

    An hour in which the machine is busy then slows all configurations alike. Only runs that take far longer
    than the mean come first, so that none of them runs alone at the end. The expected time of a run is the
    mean of those ``known`` that differ only in the seed; without any, the mean of all. ``lanes``: the number
    of jobs or slots to which the runs are assigned in turn.
    """
    long = _long(runs, known, survey)
    first, others = ([run for run in runs if (run.run_id in long) is sort] for sort in (True, False))
    orders = ((some, interleaved([run.point for run in some], lanes)) for some in (first, others))
    return [some[number] for some, order in orders for number in order]


def _long(runs: Sequence[Run], known: Iterable[Run], survey: Survey) -> frozenset[str]:
    """Return the runs that are expected to take far longer than the mean configuration."""
    measured: dict[str, list[float]] = {}
    for run in known:
        if seconds := _measured(run, survey):
            measured.setdefault(_configuration(run), []).append(seconds)
    if not measured:
        return frozenset()
    means = {configuration: fmean(seconds) for configuration, seconds in measured.items()}
    usual = fmean(means.values())
    return frozenset(run.run_id for run in runs if means.get(_configuration(run), usual) > _LONG * usual)


def canaries(todo: Iterable[Run], known: Iterable[Run], survey: Survey) -> tuple[list[Run], list[Run]]:
    """Return the runs to begin with, and those to hold back until a run of their configuration has trained.

    The first are all runs of configurations that one of ``known`` has trained, and the first run of each
    other configuration, unless one of them is active or has failed.
    """
    statuses, trained, tried = survey.statuses, set[str](), set[str]()
    for run in known:
        status = statuses[run.run_id]
        if status.state is RunState.DONE or (status.attempt and status.frames):
            trained.add(_configuration(run))
        elif status.state in (RunState.QUEUED, RunState.RUNNING, RunState.STALLED, RunState.FAILED):
            tried.add(_configuration(run))
    first: list[Run] = []
    held_back: list[Run] = []
    for run in todo:
        configuration = _configuration(run)
        if configuration in trained or configuration not in tried:
            first.append(run)
            tried.add(configuration)
        else:
            held_back.append(run)
    return first, held_back


def _measured(run: Run, survey: Survey) -> float | None:
    status = survey.statuses.get(run.run_id)
    if status is None or not status.end_to_end_fps or not (status.total or status.frames):
        return None
    return (status.total or status.frames or 0) / status.end_to_end_fps


def _configuration(run: Run) -> str:
    return json.dumps([run.trainer, dict(run.overrides), run.threads, run.target], sort_keys=True)


def sweep_eta(seen: Survey) -> float | None:
    """Return the seconds until the latest grid is done, at the present speed of all running runs.

    ``None`` while nothing runs or no run has reported its length; runs that have not begun count with the
    mean length.
    """
    statuses = [seen.statuses[row.run_id] for row in seen.rows if row.in_grid]
    speed = sum(status.end_to_end_fps or 0.0 for status in statuses if status.state is RunState.RUNNING)
    totals = [status.total for status in statuses if status.total]
    if not speed or not totals:
        return None
    usual = sum(totals) / len(totals)
    left = sum(
        max(0.0, (status.total or usual) - (status.frames or 0))
        for status in statuses
        if not status.state.final
    )
    return left / speed

"""Describe finished runs that have no return: the metrics that were expected, and those that were logged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.config.trainers import returns_of
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.formatting import count, listed
from orchestrator.core.types import RunState
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.status.survey import RunStatus

_MOST_NAMED = 8
# Metrics of every trainer, which say nothing about a return.
_NO_RESULTS = ("timers/", "speed/", "system/")


def without_return(number: int, trainer: str | None, logged: Iterable[str]) -> str:
    """Return a sentence about so many finished runs without a return; ``logged``: their metrics."""
    *others, last = returns_of(trainer)
    expected = f"{', '.join(others)} or {last}" if others else last
    found = sorted(name for name in set(logged) if not name.startswith(_NO_RESULTS))
    return (
        f"{count(number, 'finished run')} logged no return: expected the metric {expected}, "
        f"found {listed(found, _MOST_NAMED) if found else 'no metric'}"
    )


def of_survey(sweep_dir: SweepDir, statuses: Mapping[str, RunStatus]) -> str:
    """Return the sentence for the finished runs of a survey, empty if all have a return.

    The metrics are those of the first of these runs; the folders of the others are not read.
    """
    lacking = [one for one in statuses.values() if one.state is RunState.DONE and one.value is None]
    runs = [sweep_dir.run(one.run_id) for one in lacking]
    told = next((found for run in runs[:1] if (found := _told(run)) is not None), None)
    return "" if told is None else without_return(len(lacking), *told)


def _told(run: RunDir) -> tuple[str, set[str]] | None:
    """Return a run's trainer and the metrics that it logged; ``None`` if its folder is not here."""
    try:
        history = run.history()
        description = run.description()
    except (DamagedFileError, OSError, ValueError):
        return None
    if description is None or not history:
        return None
    names = {name for row in history for name in row.metrics}
    return None if names & set(returns_of(description.trainer)) else (description.trainer, names)

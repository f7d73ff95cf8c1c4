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
# Reading all metrics of a run takes time.
_MOST_READ = 50
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

    Runs that diverged have one, and runs without a folder here are not counted. Only the first of very
    many are read.
    """
    lacking = [one for one in statuses.values() if one.state is RunState.DONE and one.value is None]
    found = [
        told for one in lacking[:_MOST_READ] if (told := _told(sweep_dir.run_to_read(one.run_id))) is not None
    ]
    if not found:
        return ""
    logged = {name for _, names in found for name in names}
    more = "at least " if len(lacking) > _MOST_READ else ""
    return more + without_return(len(found), found[0][0], logged)


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

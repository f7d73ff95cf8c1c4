"""Predict time and cost of a sweep's unfinished runs on several targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from orchestrator.backends.registry import list_price, make_backend
from orchestrator.config.profiles import find_profile
from orchestrator.control.submit import SweepState, plan_sweep
from orchestrator.core.errors import OrchestrateError
from orchestrator.planning.budget import forecast
from orchestrator.planning.estimate import Forecast, where_of
from orchestrator.planning.plan import SubmitOptions
from orchestrator.planning.throughput.table import load_table


def forecasts(state: SweepState, names: Iterable[str], options: SubmitOptions) -> list[Forecast]:
    """A forecast per target, as if it trained all unfinished runs.

    Raises :class:`OrchestrateError` for a name that is no target.
    """
    table = load_table(state.sweep_dir.results)
    found = []
    for name in names:
        profile = find_profile(name)
        prospect = plan_sweep(state, make_backend(profile).capacity(ask=False), options)
        found.append(
            forecast(prospect.plan, prospect.state.seen, where_of(profile, table, list_price), table)
        )
    return found


def mean_seconds(state: SweepState, names: Sequence[str], options: SubmitOptions) -> dict[str, float]:
    """Return the predicted mean time of an unfinished run by target, where that of all its runs is known."""
    try:
        found = forecasts(state, names, options)
    except OrchestrateError:
        return {}
    times = {
        name: [run.seconds and run.seconds.mid for run in one.runs]
        for name, one in zip(names, found, strict=True)
    }
    known = {name: [time for time in every if time] for name, every in times.items()}
    return {name: fmean(some) for name, some in known.items() if some and len(some) == len(times[name])}

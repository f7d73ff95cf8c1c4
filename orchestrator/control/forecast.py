"""Predict time and cost of a sweep's unfinished runs on several targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from orchestrator.backends.registry import list_price, make_backend
from orchestrator.config.profiles import find_profile
from orchestrator.control import submit
from orchestrator.control.submit import SubmitOptions
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Sweep
from orchestrator.planning.auto_retry import second_chances
from orchestrator.planning.budget import forecast
from orchestrator.planning.estimate import Forecast, where_of
from orchestrator.planning.plan import make_plan
from orchestrator.planning.throughput.table import load_table
from orchestrator.rundir import SweepDir
from orchestrator.status.survey import Survey, retried


def forecasts(
    sweep: Sweep,
    sweep_dir: SweepDir,
    names: Iterable[str],
    options: SubmitOptions = submit.AS_USUAL,
    seen: Survey | None = None,
) -> list[Forecast]:
    """A forecast per target, as if it trained all unfinished runs; ``seen``: the sweep's state, if known.

    Raises :class:`OrchestrateError` for a name that is no target.
    """
    seen = submit.inspect_sweep(sweep, sweep_dir).seen if seen is None else seen
    table = load_table(sweep_dir.results)
    found = []
    for name in names:
        profile = find_profile(name)
        capacity = make_backend(profile).capacity(ask=False)
        again = retried(seen, second_chances(sweep, seen, capacity))
        plan = make_plan(sweep, again, capacity, submission=1, slots=options.slots, canary=options.canary)
        found.append(forecast(plan, again, where_of(profile, table, list_price), table))
    return found


def mean_seconds(
    sweep: Sweep, sweep_dir: SweepDir, names: Sequence[str], options: SubmitOptions, seen: Survey
) -> dict[str, float]:
    """Return the predicted mean time of an unfinished run by target, where that of all its runs is known."""
    try:
        found = forecasts(sweep, sweep_dir, names, options, seen)
    except OrchestrateError:
        return {}
    times = {
        name: [run.seconds and run.seconds.mid for run in one.runs]
        for name, one in zip(names, found, strict=True)
    }
    known = {name: [time for time in every if time] for name, every in times.items()}
    return {name: fmean(some) for name, some in known.items() if some and len(some) == len(times[name])}

"""The money of a submission: what it is predicted to cost, what a budget leaves for it, each job's share.

A budget is of a sweep, from its first job on. It holds until another is named, for every way of submitting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.config.profiles import find_profile
from orchestrator.core.errors import BudgetError, OrchestrateError, ProfileError
from orchestrator.core.formatting import dollars, duration
from orchestrator.core.types import Job, Plan, Price
from orchestrator.planning.estimate import Catalog, Forecast, Range, TargetCost, foresee, where_of
from orchestrator.planning.plan import to_do
from orchestrator.planning.throughput import SpeedTable, load_table
from orchestrator.rundir import LedgerEntry, SweepDir, WorkerLog
from orchestrator.rundir.journal import STARTED
from orchestrator.status.cost import worked
from orchestrator.status.ledger import jobs_of
from orchestrator.status.survey import Survey

_HOUR_S = 3600.0
# What a job is given at least: with less it would leave before it has begun.
_LEAST_S = 1.0
BUDGET_USED = "the budget is used up"
# Of a budget, what is worth another submission when jobs have left with their shares used up.
_WORTH_IT = 0.1


@dataclass(frozen=True)
class Spending:
    """US dollars. ``spent`` by jobs with a price; ``promised`` is what those at work may still use. ``open``:
    jobs at work that have a price and no allowance, and so no end that money sets.
    """

    spent: float
    promised: float
    open: int


@dataclass(frozen=True)
class BudgetedPlan:
    """A plan with its jobs' allowances, what its ledger entry says of money, and what a person is to know."""

    plan: Plan
    entry: Mapping[str, Any]
    notes: tuple[str, ...]


def reckon(
    plan: Plan,
    seen: Survey,
    sweep_dir: SweepDir,
    address: str,
    catalog: Catalog,
    asked: float | None,
    *,
    launch: bool,
) -> BudgetedPlan:
    """What the plan is predicted to take, and its jobs' shares of the budget that holds.

    ``address`` is the target's, as the ledger has it; ``catalog`` has the prices of machines of a cloud.
    ``asked`` replaces the budget that holds so far (US dollars; infinite is none), ``None`` leaves it. A
    ``launch`` that is predicted to cost more than is left raises :class:`BudgetError`; what goes on with one,
    as when a worker is replaced, is only given what is left. Of an unknown cost the shares alone hold.
    """
    if not plan.jobs:
        unheard = asked is not None and bool(seen.live)
        return BudgetedPlan(
            plan, {}, ("jobs at work keep to the budget of their submission",) if unheard else ()
        )
    ledger = sweep_dir.read_ledger()
    budget = remembered(ledger) if asked is None else asked
    found = _forecast(plan, seen, sweep_dir, address, catalog)
    price = found.where.price if found is not None else None
    notes = _predicted(found) if found is not None and launch else ()
    if budget is not None and math.isfinite(budget):
        if found is None or price is None:
            raise _unpriced(plan.target, budget)
        spending = spent_on(sweep_dir, seen, ledger)
        left = budget - spending.spent - spending.promised
        if launch:
            _require(found, budget, left, spending)
            notes += _cautions(found, budget, left, spending)
        plan = _with_shares(plan, found, price, left * _part(plan, seen), budget)
    kept = None if budget is None or math.isinf(budget) else budget
    entry = {
        "budget": kept,
        "price_per_hour": price and price.per_hour,
        "prediction": _told(found),
        "machine": found and found.where.place.machine,
    }
    return BudgetedPlan(plan, entry, notes)


def remembered(ledger: Iterable[LedgerEntry]) -> float | None:
    """The budget that holds for the sweep, in US dollars."""
    said = [entry.data["budget"] for entry in ledger if entry.kind == "submission" and "budget" in entry.data]
    if not said or said[-1] is None:
        return None
    budget = float(said[-1])
    if not budget >= 0:
        hint = "name one: --budget 20, or --budget inf for no limit"
        raise OrchestrateError(f"the ledger has a budget of {budget}, which is no amount of money", hint=hint)
    return budget


def worth_going_on(sweep_dir: SweepDir, seen: Survey, asked: float | None) -> bool:
    """Whether enough of the budget is left, by jobs that did not need all, for another submission."""
    ledger = sweep_dir.read_ledger()
    budget = remembered(ledger) if asked is None else asked
    if budget is None or math.isinf(budget):
        return True
    spending = spent_on(sweep_dir, seen, ledger)
    return budget - spending.spent - spending.promised > _WORTH_IT * budget


def spent_on(sweep_dir: SweepDir, seen: Survey, ledger: Sequence[LedgerEntry]) -> Spending:
    """What the sweep's jobs have cost up to now, at the prices that they were submitted at."""
    now, logs = time.time(), {log.token: log for log in sweep_dir.read_journals()}
    times = worked(seen, logs.values(), now)
    spent = promised = 0.0
    unlimited = 0
    for entry, job in jobs_of(ledger):
        price, token = entry.data.get("price_per_hour"), str(job["token"])
        if price is None:
            continue
        seconds = times.get(token, 0.0)
        spent += (seconds + started_after(entry, logs.get(token))) * price / _HOUR_S
        if token in seen.live:
            allowance = job.get("allowance")
            unlimited += allowance is None
            promised += max(0.0, (allowance or 0.0) - seconds) * price / _HOUR_S
    return Spending(spent, promised, unlimited)


def started_after(entry: LedgerEntry, log: WorkerLog | None) -> float:
    """Seconds for which an instance was there, and paid for, before its worker began."""
    if entry.data.get("backend") != "skypilot" or log is None:
        return 0.0
    started = next((event.time for event in log.events if event.kind == STARTED), None)
    return 0.0 if started is None else max(0.0, started - float(entry.data["time"]))


def forecast(plan: Plan, seen: Survey, where: TargetCost, table: SpeedTable) -> Forecast:
    """As :func:`foresee`; runs that the grid gives to other targets are not called skipped."""
    targets = {run.run_id: run.target for run in plan.sweep.runs}
    own = {run_id: why for run_id, why in plan.skipped.items() if targets[run_id] in (None, plan.target)}
    return foresee(replace(plan, skipped=own), seen, where, table)


def _forecast(
    plan: Plan, seen: Survey, sweep_dir: SweepDir, address: str, catalog: Catalog
) -> Forecast | None:
    try:
        profile = find_profile(address)
    except (ProfileError, OSError):
        return None  # a target without a file, or whose file is gone
    table = load_table(sweep_dir.results)
    return forecast(plan, seen, where_of(profile, table, catalog), table)


def _require(found: Forecast, budget: float, left: float, spending: Spending) -> None:
    """Raise :class:`BudgetError` if the prediction is above what is left, or nothing is left."""
    of_it = _already(spending)
    if found.dollars is not None and found.dollars.mid > left:
        raise BudgetError(
            f"predicted to cost {_range(found.dollars)} on {found.where.name}, "
            f"above the budget of {dollars(budget)}{of_it}",
            hint=f"a larger --budget, fewer runs, or another target: orchestrate estimate GRID --on A,B "
            f"--budget {budget:g}",
        )
    if left <= 0:
        raise BudgetError(
            f"{BUDGET_USED}: {dollars(budget)}{of_it}", hint="the same command with a larger --budget goes on"
        )


def _already(spending: Spending) -> str:
    parts = [f"{dollars(spending.spent)} is spent"] if spending.spent > 0 else []
    if spending.promised > 0:
        parts.append(f"{dollars(spending.promised)} is promised to jobs at work")
    return f", of which {' and '.join(parts)}" if parts else ""


def _cautions(found: Forecast, budget: float, left: float, spending: Spending) -> tuple[str, ...]:
    """What a person is to know who launches within a budget."""
    stops = f"at {dollars(budget)} its jobs save and leave by themselves"
    notes = []
    if found.dollars is None:
        why = "; ".join(found.unknown) or "its time is not known"
        notes.append(f"no prediction ({why}), so nothing says that {dollars(left)} will do: {stops}")
    elif found.dollars.high > left:
        notes.append(f"it may cost more than the {dollars(left)} that are left: {stops}")
    if spending.open:
        notes.append(f"{spending.open} jobs at work were submitted without a budget, and keep to none")
    return tuple(notes)


def _unpriced(target: str, budget: float) -> OrchestrateError:
    return OrchestrateError(
        f"a budget of {dollars(budget)} cannot be kept on {target}: nobody knows what it costs",
        hint="give its profile a price_per_hour (backend: local may have one too), or --budget inf for none",
    )


def _part(plan: Plan, seen: Survey) -> float:
    """The part of what is still to do that this plan submits: later ones need theirs of the money too."""
    todo = sum(run.run_id not in plan.skipped for run in to_do(plan.sweep, seen))
    return min(1.0, len(plan.run_ids) / todo) if todo else 1.0


def _with_shares(plan: Plan, found: Forecast, price: Price, left: float, budget: float) -> Plan:
    """The plan with what each job may work for its share of ``left``, by how long its runs are expected."""
    where, times = found.where, {run.run_id: run.seconds for run in found.runs}
    known = found.wall is not None

    def weight(job: Job) -> float:
        expected = (times.get(run_id) for run_id in job.run_ids)
        return sum(one.mid for one in expected if one is not None) if known else float(len(job.run_ids))

    whole = sum(weight(job) for job in plan.jobs) or 1.0
    # An instance costs while it starts and while it waits to be taken down.
    beside = where.begin.mid + where.end.mid if where.kind == "skypilot" else 0.0

    def paid(job: Job) -> Job:
        seconds = (
            left * weight(job) / whole / price.per_hour * _HOUR_S - beside if price.per_hour else math.inf
        )
        if seconds < _LEAST_S:
            raise BudgetError(
                f"{BUDGET_USED}: {dollars(budget)} leaves nothing that a job on {where.name} could do with",
                hint="the same command with a larger --budget goes on",
            )
        return replace(job, allowance=None if math.isinf(seconds) else seconds)

    arrays = tuple(replace(one, jobs=tuple(paid(job) for job in one.jobs)) for one in plan.arrays)
    return replace(plan, arrays=arrays)


def _predicted(found: Forecast) -> tuple[str, ...]:
    if found.wall is None:
        return ()
    cost = f", {_range(found.dollars)}" if found.dollars is not None else ""
    low, mid, high = (duration(one) for one in (found.wall.low, found.wall.mid, found.wall.high))
    return (f"predicted: {mid} (80 %: {low} to {high}){cost}; resting on {_basis(found)}",)


def _basis(found: Forecast) -> str:
    words = list(found.rests_on)
    return words[0] if len(words) == 1 else f"{words[0]}, and {len(words) - 1} more"


def _range(usd: Range) -> str:
    return f"{dollars(usd.mid)} (80 %: {dollars(usd.low)} to {dollars(usd.high)})"


def _told(found: Forecast | None) -> dict[str, Any] | None:
    """The prediction as the ledger keeps it."""
    if found is None:
        return None
    told = found.to_json()
    return {name: told[name] for name in ("seconds", "dollars", "machines", "rests_on", "unknown")}

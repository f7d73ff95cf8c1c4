"""Predict the cost of a submission, check it against the sweep's budget and give each job its share.

A budget counts from the sweep's first job. It holds for every later submission until another is set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.config.backends import is_rented
from orchestrator.core.errors import BudgetError, OrchestrateError
from orchestrator.core.formatting import dollars, duration
from orchestrator.core.types import Job, Plan, Price
from orchestrator.planning.accounts import accounts
from orchestrator.planning.estimate import Forecast, Range, TargetCost, forecast_plan
from orchestrator.planning.plan import to_do
from orchestrator.planning.throughput.lookup import SpeedTable
from orchestrator.planning.throughput.table import load_table
from orchestrator.rundir import LedgerEntry, SweepDir
from orchestrator.rundir.copies.parcel import unpacked
from orchestrator.rundir.records.ledger_entries import submissions
from orchestrator.rundir.records.submitted import SubmissionCost
from orchestrator.status.survey import Survey

_HOUR_S = 3600.0
# The smallest allowance of a job: with less it would stop before its first run.
_LEAST_S = 1.0
BUDGET_USED = "the budget is used up"
# The fraction of a budget that must be left for another submission after jobs used up their shares.
_WORTH_IT = 0.1


@dataclass(frozen=True)
class Spending:
    """US dollars of the jobs that have a price. ``spent``: so far. ``promised``: what active jobs may still
    use. ``open``: how many active jobs have a price but no allowance, and so no limit in money.
    """

    spent: float
    promised: float
    open: int


@dataclass(frozen=True)
class BudgetedPlan:
    """A plan with its jobs' allowances, its cost for the ledger, and notes for the user."""

    plan: Plan
    cost: SubmissionCost
    notes: tuple[str, ...]


def reckon(
    plan: Plan,
    seen: Survey,
    sweep_dir: SweepDir,
    where: Callable[[SpeedTable], TargetCost | None],
    asked: float | None,
    *,
    launch: bool,
) -> BudgetedPlan:
    """Predict a plan's cost, and share the budget that holds among its jobs.

    ``where``: the target's costs, as of :func:`where_at`. ``asked`` replaces the budget that holds (US
    dollars; infinite: none); ``None`` keeps it. A ``launch`` with a predicted cost above the remaining budget
    raises :class:`BudgetError`. Other submissions, such as the replacement of a worker, only get what is
    left. With an unknown cost only the shares limit the jobs.
    """
    if not plan.jobs:
        unheard = asked is not None and bool(seen.live)
        return BudgetedPlan(
            plan,
            SubmissionCost(),
            ("running jobs keep the budget of their own submission",) if unheard else (),
        )
    ledger = sweep_dir.read_ledger()
    budget = budget_on_record(ledger) if asked is None else asked
    table = load_table(sweep_dir.results)
    place = where(table)
    found = None if place is None else forecast(plan, seen, place, table)
    price = found.where.price if found is not None else None
    cost = SubmissionCost(
        "inf" if budget is None or math.isinf(budget) else budget,
        None if price is None else price.per_hour,
        _prediction_entry(found),
        None if found is None else found.where.place.machine,
        None if found is None else found.where.hold,
        None if found is None else found.where.idle,
    )
    notes = _prediction_notes(found) if found is not None and launch else ()
    if budget is not None and math.isfinite(budget):
        if found is None or price is None:
            raise _unpriced(plan.target, budget)
        spending = spending_of(sweep_dir, seen, ledger)
        left = budget - spending.spent - spending.promised
        if launch:
            _require_budget(found, budget, left, spending)
            notes += _budget_warnings(found, budget, left, spending)
        plan = _with_shares(plan, found, price, cost, left * _planned_fraction(plan, seen), budget)
    return BudgetedPlan(plan, cost, notes)


def budget_on_record(ledger: Iterable[LedgerEntry]) -> float | None:
    """Return the budget that holds for the sweep, in US dollars; ``None`` for no budget."""
    said = [one.cost.budget for one in submissions(ledger) if one.cost.budget is not None]
    if not said or (budget := said[-1]) == "inf":
        return None
    if not budget >= 0:
        hint = "set one: --budget 20, or --budget inf for no limit"
        raise OrchestrateError(f"found a budget of {budget} in the ledger, expected US dollars", hint=hint)
    return budget


def worth_going_on(sweep_dir: SweepDir, seen: Survey, asked: float | None) -> bool:
    """Return whether unused shares of ended jobs leave enough of the budget for another submission."""
    ledger = sweep_dir.read_ledger()
    budget = budget_on_record(ledger) if asked is None else asked
    if budget is None or math.isinf(budget):
        return True
    spending = spending_of(sweep_dir, seen, ledger)
    return budget - spending.spent - spending.promised > _WORTH_IT * budget


def spending_of(sweep_dir: SweepDir, seen: Survey, ledger: Sequence[LedgerEntry]) -> Spending:
    """Return what the sweep's jobs have cost so far, and what active ones may still cost."""
    logs, rented = sweep_dir.read_journals(), unpacked(sweep_dir)
    found = [
        one for one in accounts(ledger, logs, rented, time.time(), seen).values() if one.price is not None
    ]
    return Spending(
        sum(one.cost.dollars for one in found),
        sum(one.promised for one in found),
        sum(one.open and one.most is None for one in found),
    )


def forecast(plan: Plan, seen: Survey, where: TargetCost, table: SpeedTable) -> Forecast:
    """Forecast a plan as :func:`forecast_plan` does, without listing runs of other targets as skipped."""
    targets = {run.run_id: run.target for run in plan.sweep.runs}
    own = {run_id: why for run_id, why in plan.skipped.items() if targets[run_id] in (None, plan.target)}
    return forecast_plan(replace(plan, skipped=own), seen, where, table)


def _require_budget(found: Forecast, budget: float, left: float, spending: Spending) -> None:
    """Raise :class:`BudgetError` if the prediction exceeds what is left, or nothing is left."""
    of_it = _used_so_far(spending)
    if found.dollars is not None and found.dollars.mid > left:
        raise BudgetError(
            f"predicted to cost {_range(found.dollars)} on {found.where.name}, "
            f"above the budget of {dollars(budget)}{of_it}",
            hint=f"use a larger --budget, fewer runs or another target: orchestrate estimate GRID --on A,B "
            f"--budget {budget:g}",
        )
    if left <= 0:
        raise BudgetError(
            f"{BUDGET_USED}: {dollars(budget)}{of_it}",
            hint="continue with the same command and a larger --budget",
        )


def _used_so_far(spending: Spending) -> str:
    parts = [f"{dollars(spending.spent)} is spent"] if spending.spent > 0 else []
    if spending.promised > 0:
        parts.append(f"{dollars(spending.promised)} is reserved for running jobs")
    return f", of which {' and '.join(parts)}" if parts else ""


def _budget_warnings(found: Forecast, budget: float, left: float, spending: Spending) -> tuple[str, ...]:
    """Return warnings about a launch within a budget."""
    stops = f"at {dollars(budget)} its jobs save and stop"
    notes = []
    if found.dollars is None:
        why = "; ".join(found.unknown) or "its time is unknown"
        notes.append(f"no prediction ({why}): {dollars(left)} may not be enough; {stops}")
    elif found.dollars.high > left:
        notes.append(f"it may cost more than the remaining {dollars(left)}: {stops}")
    if spending.open:
        notes.append(f"{spending.open} running jobs were submitted without a budget and have no limit")
    return tuple(notes)


def _unpriced(target: str, budget: float) -> OrchestrateError:
    return OrchestrateError(
        f"a budget of {dollars(budget)} cannot be enforced on {target}: cost unknown",
        hint="set `price_per_hour` in its profile (also for backend: local), or --budget inf for none",
    )


def _planned_fraction(plan: Plan, seen: Survey) -> float:
    """Return the fraction of the unfinished runs in this plan: later plans need their part of the budget."""
    todo = sum(run.run_id not in plan.skipped for run in to_do(plan.sweep, seen))
    return min(1.0, len(plan.run_ids) / todo) if todo else 1.0


def _with_shares(
    plan: Plan, found: Forecast, price: Price, cost: SubmissionCost, left: float, budget: float
) -> Plan:
    """Give each job a working time for its share of ``left``, weighted by the expected time of its runs.

    That of a rented machine begins with its request, and leaves time for its results and its end.
    """
    where, times = found.where, {run.run_id: run.seconds for run in found.runs}
    known = found.wall is not None

    def weight(job: Job) -> float:
        expected = (times.get(run_id) for run_id in job.run_ids)
        return sum(one.mid for one in expected if one is not None) if known else float(len(job.run_ids))

    whole = sum(weight(job) for job in plan.jobs) or 1.0
    start_up = where.begin.mid if is_rented(where.kind) else 0.0

    def paid(job: Job) -> Job:
        seconds = left * weight(job) / whole / price.per_hour * _HOUR_S if price.per_hour else math.inf
        if is_rented(where.kind) and math.isfinite(seconds):
            seconds = cost.allowance(seconds)
        if seconds - start_up < _LEAST_S:
            raise BudgetError(
                f"{BUDGET_USED}: {dollars(budget)} leaves too little for a job on {where.name}",
                hint="continue with the same command and a larger --budget",
            )
        return replace(job, allowance=None if math.isinf(seconds) else seconds)

    arrays = tuple(replace(one, jobs=tuple(paid(job) for job in one.jobs)) for one in plan.arrays)
    return replace(plan, arrays=arrays)


def _prediction_notes(found: Forecast) -> tuple[str, ...]:
    if found.wall is None:
        return ()
    cost = f", {_range(found.dollars)}" if found.dollars is not None else ""
    low, mid, high = (duration(one) for one in (found.wall.low, found.wall.mid, found.wall.high))
    return (f"predicted: {mid} (80 %: {low} to {high}){cost}; based on {_basis(found)}",)


def _basis(found: Forecast) -> str:
    words = list(found.rests_on)
    return words[0] if len(words) == 1 else f"{words[0]}, and {len(words) - 1} more"


def _range(usd: Range) -> str:
    return f"{dollars(usd.mid)} (80 %: {dollars(usd.low)} to {dollars(usd.high)})"


def _prediction_entry(found: Forecast | None) -> dict[str, Any] | None:
    """Return the prediction as stored in the ledger."""
    if found is None:
        return None
    told = found.to_json()
    return {name: told[name] for name in ("seconds", "dollars", "machines", "rests_on", "unknown")}

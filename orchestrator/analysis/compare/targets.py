"""Compare the targets of sweeps, and the price of an hour of each run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import polars as pl

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.compare.model import KeyComparison
from orchestrator.analysis.compare.pairing import compare_by
from orchestrator.analysis.groups.keys import SWEEP, TARGET
from orchestrator.analysis.verdict.run_cost import Prices
from orchestrator.config.profiles import find_profile
from orchestrator.core.errors import ProfileError
from orchestrator.core.types import RunState
from orchestrator.planning.accounts import price_of
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.journal import CLAIMED
from orchestrator.rundir.records.ledger_entries import jobs_of, obtained_prices
from orchestrator.status.ownership import assigned


def target_comparisons(
    sweep_dirs: Iterable[SweepDir],
    collected: Collected,
    known: Prices | None = None,
    *,
    intervals: bool = True,
) -> dict[str, KeyComparison]:
    """Compare the targets of each sweep with finished runs on several of them, by the sweep's name.

    ``known``: the runs' :func:`prices`, if they have been read already.
    """
    done = pl.col("in_grid") & (pl.col("state") == RunState.DONE.value) & ~pl.col(TARGET).str.contains(",")
    comparisons = {}
    for sweep_dir in sweep_dirs:
        runs = collected.runs.filter(pl.col(SWEEP) == sweep_dir.name)
        if runs.filter(done)[TARGET].n_unique() > 1:
            own = replace(collected, runs=runs)
            of_runs = prices([sweep_dir]) if known is None else known
            comparisons[sweep_dir.name] = compare_by(own, TARGET, prices=of_runs, intervals=intervals)
    return comparisons


def prices(sweep_dirs: Iterable[SweepDir]) -> dict[tuple[str, str], float]:
    """Return (sweep, run id) → US dollars for an hour: its job's price, by the part of it that it takes."""
    return {(one.name, run_id): price for one in sweep_dirs for run_id, price in _prices(one)}


def _prices(sweep_dir: SweepDir) -> Iterator[tuple[str, float]]:
    ledger = sweep_dir.read_ledger()
    obtained = obtained_prices(ledger)
    jobs = {
        submitted.token: (price, submitted)
        for entry, submitted in jobs_of(ledger)
        if (price := price_of(entry, obtained.get(submitted.token))) is not None
    }
    for log in sweep_dir.read_journals():
        for event in log.events if log.token in jobs else ():
            if event.kind == CLAIMED and event.run_id:
                price, job = jobs[log.token]
                yield event.run_id, price * job.share(event.run_id)
    for share in assigned(ledger):
        if (price := _remote_price(share.place.address)) is not None:
            yield from ((run_id, price) for run_id in share.run_ids)


def _remote_price(address: str) -> float | None:
    """Return the price per run of a profile behind ssh; ``None`` without ``pack``: its jobs are unknown."""
    try:
        profile = find_profile(address)
    except ProfileError:
        return None
    if profile.price_per_hour is None or profile.pack is None:
        return None
    return profile.price_per_hour / profile.pack

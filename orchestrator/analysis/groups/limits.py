"""Limits of what groups show: few seeds, provisional speeds, runs without a return, no ranking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import polars as pl

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.comparability import UNRANKED, differences, mixed_code
from orchestrator.analysis.groups.grouping import Final, Members, SeedGroup, by_task
from orchestrator.analysis.groups.speeds import is_provisional
from orchestrator.analysis.run_table import FINAL_MEASURE, FINAL_VALUES, LAST, diverged
from orchestrator.analysis.statistics.significance import FEW_SEEDS, INTERVAL_SEEDS, NOMINAL_SEEDS
from orchestrator.config.returns import is_evaluation
from orchestrator.core.formatting import count, listed
from orchestrator.planning.throughput.measure import PROVISIONAL
from orchestrator.planning.without_return import without_return

SINGLE = "the final return rests on a single evaluation, as runs have so few"
SINGLE_IN_TRAINING = "the final return rests on a single return of training, as runs have so few"
_MOST_NAMED = 8
# What fewer seeds than these do not allow.
_COVERAGE = "the 95 % intervals cover less than 95 %"
_NO_VERDICT = f"fewer than {FEW_SEEDS} seeds, so there is no verdict"
_LIMITS = {
    INTERVAL_SEEDS: f"{_NO_VERDICT}, nor an interval below {INTERVAL_SEEDS}",
    FEW_SEEDS: f"{_NO_VERDICT}, and {_COVERAGE}",
    NOMINAL_SEEDS: f"fewer than {NOMINAL_SEEDS} seeds, so {_COVERAGE}",
}


def warnings(finals: Sequence[Final]) -> list[str]:
    """Return the limits of the intervals, one line per kind, with the groups concerned."""
    limited = [
        (limit, f"{final.group.label} (n={n})")
        for final in finals
        if (n := len(final.values))
        and (limit := next((limit for fewer, limit in _LIMITS.items() if n < fewer), None))
    ]
    noted = [(final.note, final.group.label) for final in finals if final.note]
    return [*unranked(finals), *about([*limited, *noted]), *provisional([final.group for final in finals])]


def about(named: Iterable[tuple[str, str]], most: int = _MOST_NAMED) -> list[str]:
    """Return a line for each sentence, with the names that it is about."""
    return [f"{what}: {listed(names, most)}" for what, names in gathered(named).items()]


def provisional(groups: Sequence[SeedGroup]) -> list[str]:
    """Return a line that names the groups with provisional end-to-end throughput, if there are any."""
    return about((PROVISIONAL, group.label) for group in groups if is_provisional(group.counted()[0]))


def single_values(groups: Sequence[SeedGroup]) -> list[str]:
    """Return lines that name the groups with final returns of one value, unless that was chosen."""
    return about((limit, group.label) for group in groups if (limit := single_value(group)))


def single_value(members: Members) -> str:
    """Return the limit if a final return of these runs is one value, empty if none is or that was chosen."""
    single = [
        row["return_metric"] or ""
        for row in members.counted()[0]
        if row.get(FINAL_VALUES) == 1 and row[FINAL_MEASURE] != LAST
    ]
    if not single:
        return ""
    return SINGLE if any(map(is_evaluation, single)) else SINGLE_IN_TRAINING


def lacking_returns(collected: Collected, groups: Sequence[SeedGroup]) -> list[str]:
    """Return a line for each trainer with finished runs without a return, and one for runs that diverged."""
    counted = [(group, group.counted()[0]) for group in groups]
    every = [row for _, rows in counted for row in rows]
    lacking = gathered(
        (row["trainer"], (row["sweep"], row["run_id"])) for row in every if row["return_metric"] is None
    )
    ended = (
        (f"the last value of {metric} is not finite, so these runs diverged", f"{number} of {group.label}")
        for group, rows in counted
        for metric, number in Counter(row["return_metric"] for row in rows if diverged(row)).items()
    )
    return [
        *(_lacking(collected, trainer, runs) for trainer, runs in lacking.items()),
        *about(ended),
    ]


def _lacking(collected: Collected, trainer: str, runs: Sequence[tuple[str, str]]) -> str:
    if collected.chosen is not None:
        return f"{count(len(runs), 'finished run')} recorded no {collected.chosen.name}"
    told = without_return(len(runs), trainer, _logged(collected, runs))
    return told if told.endswith("no metric") else f"{told}; --return NAME chooses one"


def _logged(collected: Collected, runs: Sequence[tuple[str, str]]) -> list[str]:
    own = pl.DataFrame(runs, schema={"sweep": pl.String, "run_id": pl.String}, orient="row")
    logged = collected.metrics.join(own, on=["sweep", "run_id"], how="semi")
    return list(logged["name"].unique())


def unranked(finals: Sequence[Final]) -> list[str]:
    """Return task by task why final returns are not ranked.

    First come the groups that average results of different code.
    """
    returning = by_task(final for final in finals if final.estimate is not None)
    panels = {task: [(final.group.label, final.terms) for final in own] for task, own in returning.items()}
    return [
        *mixed_code([named for panel in panels.values() for named in panel]),
        *(
            f"{UNRANKED}, {task or 'all runs'}: {text}"
            for task, panel in panels.items()
            for text in differences(panel)
        ),
    ]

"""Finished runs with simulated returns, without their folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.groups.comparability import ReturnTerms
from orchestrator.analysis.groups.grouping import Final, SeedGroup
from orchestrator.analysis.run_table import RunReading, metrics_table, runs_table
from orchestrator.analysis.statistics.bootstrap import estimate_of
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row

EVAL = "eval/reward/episode_reward_mean"


def simulated(
    value: Callable[[str, str], float],
    algorithms: Sequence[str],
    seeds: int,
    tasks: Sequence[str] = ("t1",),
    **facts: Any,
) -> Collected:
    """Runs with these returns; ``value``: a run's, by algorithm and task; ``facts``: further columns."""
    readings = []
    for number, (task, algorithm, seed) in enumerate(product(tasks, algorithms, range(seeds))):
        final = value(algorithm, task)
        point = {"task": task, "algorithm": algorithm, "seed": seed}
        own = {"final_return": final, "frames": 6000, "threads": 1, "end_to_end_fps": 1000.0, **facts}
        history = [Row(0, 6000, 6.0, {EVAL: final})]
        readings.append(
            RunReading("s", IndexRow(f"{number:016x}", True, point), RunState.DONE, "", own, history)
        )
    return of_readings(readings)


def of_readings(readings: Sequence[RunReading], trainer: str = "benchmarl") -> Collected:
    """The tables of these readings."""
    runs, keys = runs_table(readings, {reading.sweep: trainer for reading in readings})
    return Collected(runs, metrics_table(readings), keys, (), (), ())


def finals_of(returns: Mapping[str, Sequence[Sequence[float]]]) -> list[Final]:
    """Final returns of variants that can be ranked, without tables: one per seed, by task and variant."""
    terms = ReturnTerms(EVAL, 6000.0, "10")
    found = []
    for task, variants in returns.items():
        for number, values in enumerate(variants):
            own, variant = tuple(map(float, values)), {"algorithm": f"a{number}"}
            point = {"task": task, **variant}
            group = SeedGroup((), "s", number, 0, f"{task} a{number}", point, variant)
            found.append(Final(group, own, estimate_of(own, intervals=False), "", terms))
    return found

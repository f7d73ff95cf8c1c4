"""Find runs with identical metrics, figures of time and machines apart.

Where a key or the seed never reaches the program, metrics are equal to the last bit.
"""

from __future__ import annotations

import hashlib
import marshal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.analysis.run_table import METRICS_HASH, RunReading
from orchestrator.core.types import RunState
from orchestrator.rundir.attempts.metrics import is_of_machine

# Columns in which identical runs are equal.
_FIGURES = ("frames", "iterations", "initial_return", "final_return", "best_return")


def with_hashes(readings: Sequence[RunReading]) -> list[RunReading]:
    """Return the readings; add a hash of the metrics to finished runs that may have identical ones.

    Metrics that never change over several rows do not count: a policy that fails in every episode has the
    same ones with any seed.
    """
    ended = [one for one in readings if one.state in (RunState.DONE, RunState.STALE) and one.history]
    alike = Counter(map(_figures, ended))
    hashes = {id(one): _hash(one) for one in ended if alike[_figures(one)] > 1}
    return [
        replace(one, facts={**one.facts, METRICS_HASH: hashes[id(one)]}) if id(one) in hashes else one
        for one in readings
    ]


def _figures(reading: RunReading) -> tuple[str, ...]:
    return reading.sweep, *(repr(reading.facts.get(name)) for name in _FIGURES)


def _hash(reading: RunReading) -> str | None:
    """Return the hash of all metrics; ``None`` without any, and if none changes over several rows."""
    metrics = [
        sorted(one for one in row.metrics.items() if not is_of_machine(one[0])) for row in reading.history
    ]
    if not any(metrics) or (len(metrics) > 1 and all(one == metrics[0] for one in metrics)):
        return None
    places = [(row.iteration, row.frames) for row in reading.history]
    content = marshal.dumps((_figures(reading), places, metrics), 2)
    return hashlib.blake2b(content, digest_size=8).hexdigest()

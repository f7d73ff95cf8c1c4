"""An audit's verdict in words."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.formatting import count
from orchestrator.rundir.records.audits import EXACT, NOT_DETERMINISTIC, Audit, LeftOut, MetricDifference

_MOST_METRICS = 5


def lines(found: Audit) -> Iterator[str]:
    """Yield the verdict, what it rests on, and what to do."""
    kills = " and ".join(f"{frames:,}" for frames in found.kills)
    if found.verdict == EXACT:
        yield f"exact: killed at {kills} of {found.frames:,} frames and resumed, all metrics are equal"
        if found.declared != EXACT:
            yield '  the program may declare it: exactness="exact" (docs/run-protocol.md)'
    elif found.verdict == NOT_DETERMINISTIC:
        yield "not deterministic: two uninterrupted runs differ"
        yield from _metrics(found, "again")
        yield "  seed all random generators; on GPUs and with several threads results may differ in bits"
    else:
        yield f"not exact: killed at {kills} of {found.frames:,} frames and resumed, metrics differ"
        yield from _metrics(found, "resumed")
        yield from _parts(found)
    yield f"  {found.seconds:.0f} s" + (
        f"; not compared: {', '.join(found.ignored)}" if found.ignored else ""
    )


def _metrics(found: Audit, other: str) -> Iterator[str]:
    for one in found.differences[:_MOST_METRICS]:
        yield f"  {one.metric} from {one.frames:,} frames on: {_pair(one, other)}"
    if (more := len(found.differences) - _MOST_METRICS) > 0:
        yield f"  and {count(more, 'more metric')}"


def _pair(one: MetricDifference, other: str) -> str:
    return f"straight {one.straight}, {other} {one.other} (largest difference {one.largest:.3g})"


def _parts(found: Audit) -> Iterator[str]:
    if not found.left_out:
        yield "  what was left out is unknown: save all that the next step reads, random states included"
        return
    yield "  not restored:"
    yield from (f"    {_part(one)}" for one in found.left_out)


def _part(one: LeftOut) -> str:
    values = f": {one.was} became {one.became}" if (one.was or one.became) and one.was != one.became else ""
    return f"{one.kind} {one.name}{values}"

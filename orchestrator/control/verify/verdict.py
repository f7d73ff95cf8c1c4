"""Judge a run that was trained again: equal to its record, or where they part."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.control.verify.compare import TENSORS, first_difference, rows_of, tensors_of, unrepeatable
from orchestrator.control.verify.segments import Segment
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.machine.hardware import cpu_capability, cpu_model
from orchestrator.rundir import Result, Row, RunDir, sha256
from orchestrator.rundir.records.verifications import Difference, Verification


def is_doubtful(segment: Segment, trained: RunDir) -> bool:
    """Return whether a training here differs from the record."""
    return first_difference(*_compared(segment, trained)) is not None


def judged(segment: Segment, trained: RunDir, again: RunDir | None) -> Verification | str:
    """Return the verdict on a run ``trained`` here, or why there is none.

    ``again``: a second training of a doubtful run. Metrics that differ between the two are not compared, as
    times that a program measures itself.
    """
    recorded, rows = _compared(segment, trained)
    result, without = trained.result(), frozenset[str]()
    if again is not None:
        other = rows_of(again, again.result())
        repeated = unrepeatable(rows[: len(other)], other[: len(rows)])
        if repeated is None:
            return "two trainings here differ, so its bits are not repeatable"
        without = repeated
    found = first_difference(recorded, rows, without) or _of_files(segment, recorded[-1])
    return Verification(
        run_id=segment.run.run_id,
        result=sha256(segment.run.result_path),
        time=time.time(),
        host=socket.gethostname(),
        start=segment.start,
        frames=rows[-1].frames,
        cpu_model=cpu_model(),
        cpu_capability=cpu_capability(),
        versions=_versions(result),
        checkpoint=result is not None and TENSORS not in without and _is_last_equal(segment.run, trained),
        not_compared=tuple(sorted(without)),
        difference=found,
        note=_other_bits(segment.result, result) if found and result else "",
    )


def _compared(segment: Segment, trained: RunDir) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the rows on record, as far as the run was trained again, and those of that training."""
    result = trained.result()
    recorded, rows = rows_of(segment.run, segment.result), rows_of(trained, result)
    if result is None:
        recorded = [row for row in recorded[:-1] if row.frames <= rows[-1].frames]
    elif TENSORS not in recorded[-1].metrics:  # the checkpoint is not in this tree
        rows = [*rows[:-1], replace(rows[-1], metrics=_without(TENSORS, rows[-1].metrics))]
    return recorded, rows


def _without(name: str, metrics: Mapping[str, float]) -> Mapping[str, float]:
    return {key: value for key, value in metrics.items() if key != name}


def _of_files(segment: Segment, last: Row) -> Difference | None:
    """Return which file of the result is not as it was published."""
    try:
        segment.run.verify(segment.result, checksums=True)
    except DamagedFileError as error:
        return Difference(last.iteration, last.frames, error.path, "as published", str(error))
    return None


def _is_last_equal(one: RunDir, other: RunDir) -> bool:
    """Return whether the last checkpoints have equal tensors, or wholly equal content."""
    tensors, last = tensors_of(one), [run.checkpoints()[:1] for run in (one, other)]
    if tensors is not None:
        return tensors == tensors_of(other)
    return bool(last[0] and last[1]) and last[0][0].digest == last[1][0].digest


def _versions(result: Result | None) -> Mapping[str, str]:
    known = result.fields.get("versions") if result is not None else None
    return known or {}


def _other_bits(recorded: Result, trained: Result) -> str:
    """Return what differs here from what trained the run, and may change the bits."""
    was, now = (
        {**_versions(one), "CPU capability": one.host.cpu_capability or "unknown"}
        for one in (recorded, trained)
    )
    names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
    told = (f"{name} {was.get(name, 'none')} there, {now.get(name, 'none')} here" for name in names)
    return f"bits may differ: {'; '.join(told)}" if names else ""

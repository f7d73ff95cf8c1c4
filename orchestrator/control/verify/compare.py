"""Compare a run's metrics on record with those of its training here, row by row and bit for bit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath
from zipfile import ZipFile, is_zipfile
from zlib import crc32

from orchestrator.rundir import Result, Row, RunDir, depends_on_time
from orchestrator.rundir.records.verifications import Difference

# Figures of a result that follow from its metrics, and their name in a comparison.
_FIGURES = ("frames", "iterations", "initial_return", "final_return", "best_return")
_RESULT, _ROW = "result.json: ", "the row of metrics"
_ABSENT = "missing"
TENSORS = "the checksum of the last checkpoint's tensors"


def rows_of(run: RunDir, result: Result | None) -> list[Row]:
    """Return a run's rows of metrics, and its result's figures and the tensors that it learned as one more.

    Without a result the last row is left out: it may lack metrics.
    """
    if result is None:
        return run.history()[:-1]
    rows = run.history(result.attempt)
    figures = {_RESULT + key: result.fields.get(key) for key in _FIGURES}
    figures[TENSORS] = tensors_of(run)
    told = {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}
    return [*rows, Row(rows[-1].iteration, rows[-1].frames, metrics=told)]


def tensors_of(run: RunDir) -> int | None:
    """Return the CRC-32 of the tensors in a run's last checkpoint; ``None`` if it is no file of PyTorch's.

    Numbers that are no tensors, such as the seconds of training, are not in it.
    """
    checkpoints = run.checkpoints()
    if not checkpoints or not is_zipfile(checkpoints[0].path):
        return None
    checksum = 0
    with ZipFile(checkpoints[0].path) as file:
        for name in sorted(file.namelist()):
            if PurePosixPath(name).parent.name == "data":
                checksum = crc32(file.read(name), crc32(name.partition("/")[2].encode(), checksum))
    return checksum


def differences(recorded: Sequence[Row], trained: Sequence[Row]) -> Iterator[Difference]:
    """Yield where the rows differ, less metrics that depend on time. Other rows end the comparison."""
    for was, now in zip_longest(recorded, trained):
        row = now if was is None else was
        if was is None or now is None or (was.iteration, was.frames) != (now.iteration, now.frames):
            yield Difference(row.iteration, row.frames, _ROW, _place(was), _place(now))
            return
        for name in sorted({*was.metrics, *now.metrics}):
            values = [repr(one.metrics[name]) if name in one.metrics else _ABSENT for one in (was, now)]
            if values[0] != values[1] and not depends_on_time(name):
                yield Difference(row.iteration, row.frames, name, *values)


def unrepeatable(one: Sequence[Row], other: Sequence[Row]) -> frozenset[str] | None:
    """Return the metrics that differ between two trainings here; ``None`` if nothing is repeatable."""
    names = frozenset(found.metric for found in differences(one, other))
    own = {name for row in one for name in row.metrics if not name.startswith(_RESULT) and name != TENSORS}
    every = {name for name in own if not depends_on_time(name)}
    return None if _ROW in names or every <= names else names


def first_difference(
    recorded: Sequence[Row], trained: Sequence[Row], without: Collection[str] = ()
) -> Difference | None:
    """Return the first difference in other metrics than those."""
    return next((one for one in differences(recorded, trained) if one.metric not in without), None)


def _place(row: Row | None) -> str:
    return _ABSENT if row is None else f"that of iteration {row.iteration}, {row.frames} frames"

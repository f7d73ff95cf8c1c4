"""What a worker takes from its runs' pipes."""

from __future__ import annotations

import json
import os
import time
from itertools import pairwise

from jobs.worker.capacity.slots import Slot
from jobs.worker.runs.run_handle import RunHandle


def test_progress_thins_out_as_a_run_grows_old() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    child = RunHandle(1, "0" * 16, Slot(0, (0,)), reading)
    began, told = time.monotonic(), []
    for second in range(0, 86_400, 2):
        os.write(writing, json.dumps({"frames": second}).encode() + b"\n")
        child.read()
        if child.take_progress(began + second + 1.5) is not None:
            told.append(second)
    gaps = [after - before for before, after in pairwise(told)]
    assert gaps[:20] == [2] * 20
    assert max(gaps) <= 32
    assert len(told) < 4000
    assert child.frames == 86_398
    os.close(reading)
    os.close(writing)


def test_a_line_in_pieces_is_one_message() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    child = RunHandle(1, "0" * 16, Slot(0, (0,)), reading)
    for piece in (
        b'{"atte',
        b'mpt": 3}',
        b'\n{"end": {"outcome": "failed", "reason": "code error", "message": "m"}}\n',
    ):
        os.write(writing, piece)
        child.read()
    assert child.attempt == 3
    assert child.end is not None
    assert child.end.message == "m"
    os.close(writing)
    child.read()
    assert child.silent
    os.close(reading)

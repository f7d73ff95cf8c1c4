"""The record of what went up, and which part of each attempt's log is the run's history."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import Executed, ResumePoint, Row, Uploaded, UploadLog, standing
from orchestrator.rundir.attempts.metrics import merge


def uploaded(run_id: str) -> Uploaded:
    return Uploaded(run_id, "digest", "http://here", "http://here/runs/x", 1.5)


def test_uploads_are_read_back_and_a_line_that_was_cut_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "uploads.jsonl"
    log = UploadLog(path)
    assert log.read() == []
    with log.writing():
        log.add(uploaded("a"))
        log.add(uploaded("b"))
        whole = path.read_bytes()
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            names = [record.run_id for record in log.read()]
            assert names == ["a", "b"][: whole[:size].count(b"\n")]
            log.add(uploaded("c"))
            assert log.read()[-1] == uploaded("c")


def test_lines_of_another_kind_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "uploads.jsonl"
    path.write_bytes(b'{"run_id": "a"}\n[1]\n\xff\xfe\n\n')
    assert UploadLog(path).read() == []


def test_two_processes_never_upload_the_same_sweep_at_once(tmp_path: Path) -> None:
    path = tmp_path / "uploads.jsonl"
    code = (
        "import sys; from pathlib import Path; from orchestrator.rundir import UploadLog\n"
        "with UploadLog(Path(sys.argv[1])).writing(): print('in', flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with (
            pytest.raises(OrchestrateError, match="another upload"),
            UploadLog(path).writing(),
        ):
            pass
    finally:
        other.kill()
        other.communicate()
    with UploadLog(path).writing():
        pass


@st.composite
def chains(draw: st.DrawFn) -> list[Executed]:
    """Attempts that each go on from a checkpoint of the one before, and what they executed."""
    chain: list[Executed] = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        done = len(merge(chain))
        kept = draw(st.integers(len(merge(chain)) - len(chain[-1].rows), done)) if chain else 0
        point = ResumePoint(number - 1, kept * 10) if chain else None
        rows = range(kept, kept + draw(st.integers(0, 5)))
        chain.append(Executed(number, point, [Row(row, (row + 1) * 10, 0.0, {"by": number}) for row in rows]))
    return chain


@given(chain=chains(), saved=st.none() | st.integers(0, 20), x_axis=st.sampled_from(["frames", "iteration"]))
def test_the_newest_log_of_each_iteration_that_stands_is_the_history(
    chain: list[Executed], saved: int | None, x_axis: str
) -> None:
    """However much of what it builds on an attempt logged again before it was killed."""
    stands = standing(chain, x_axis) if saved is None else standing(chain, x_axis, saved * 10)
    whole = {row.iteration: row for row in merge(chain) if saved is None or row.frames <= saved * 10}
    for again in range(2):  # each logs again all that it builds on, or the newest nothing of it
        found: dict[int, Row] = {}
        for place, piece in enumerate(chain):
            before = merge([*chain[:place], Executed(piece.attempt, piece.resumed_from, [])])
            logged = [*([] if again and piece is chain[-1] else before), *piece.rows]
            until = stands[piece.attempt]
            stood = [row for row in logged if until is None or getattr(row, x_axis) <= until]
            found |= {row.iteration: row for row in stood}
        assert found == whole

"""Metrics: what is written comes back, and several attempts merge to one history."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import Executed, MetricsWriter, ResumePoint, Row, add_row, read_metrics
from orchestrator.rundir.attempts.metrics import merge, resume_chain

Attempts = dict[int, tuple[ResumePoint | None, list[Row]]]

numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**53), 2**53)
names = st.text(min_size=1, max_size=20)
rows = st.builds(
    Row,
    st.integers(0, 10**6),
    st.integers(0, 10**12),
    st.floats(0, 1e9),
    st.dictionaries(names, numbers, max_size=4),
)


def same(first: Row, second: Row) -> bool:
    def bits(row: Row) -> object:
        return [(name, "nan" if math.isnan(value) else value) for name, value in sorted(row.metrics.items())]

    head = (first.iteration, first.frames, first.wall_time)
    return head == (second.iteration, second.frames, second.wall_time) and bits(first) == bits(second)


@given(
    st.lists(rows, max_size=5, unique_by=lambda row: (row.frames, row.iteration)),
    st.none() | st.builds(ResumePoint, st.integers(1, 9), st.integers(0, 10**9)),
)
def test_rows_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, written: list[Row], point: ResumePoint
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    writer = MetricsWriter(path, point)
    for row in written:
        writer.append(row)
    writer.sync()
    writer.close()
    resumed_from, found = read_metrics(path)
    assert resumed_from == point
    assert all(same(*pair) for pair in zip(written, found, strict=True))


def test_lines_of_one_step_are_one_row_also_across_attempts() -> None:
    steps = [Row(1, 10, 1.0, {"a": 1}), Row(1, 10, 2.0, {"a": 2, "b": 3}), Row(2, 20, 3.0)]
    found: list[Row] = []
    for row in steps:
        add_row(found, row)
    assert found == [Row(1, 10, 2.0, {"a": 2, "b": 3}), steps[2]]
    later = Executed(2, ResumePoint(1, 10), [Row(1, 10, 2.5, {"b": 4}), Row(2, 20, 4.0)])
    assert merge([Executed(1, None, found), later]) == [Row(1, 10, 2.5, {"a": 2, "b": 4}), Row(2, 20, 4.0)]


@given(st.data())
def test_a_file_cut_anywhere_loses_only_its_last_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    writer = MetricsWriter(path, ResumePoint(1, 5))
    for step in range(6, 12):
        writer.append(Row(step, step, 0.0, {"ü": step / 3}))
    writer.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    point, found = read_metrics(path)
    complete = whole[:cut].count(b"\n")
    assert point == (ResumePoint(1, 5) if complete else None)
    assert [row.frames for row in found] == list(range(6, 6 + max(0, complete - 1)))


def merged_by(attempts: Attempts, last: int) -> list[Row]:
    return merge(resume_chain(last, attempts.__getitem__))


@given(st.data())
def test_any_story_of_interruptions_merges_to_the_uninterrupted_history(data: st.DataObject) -> None:
    """Attempts stop anywhere and go on from any checkpoint of any earlier one."""
    length = data.draw(st.integers(1, 12))
    attempts: Attempts = {}
    checkpoints: list[ResumePoint] = []
    number, finished = 1, False
    while not finished:
        point = data.draw(st.none() | st.sampled_from(checkpoints)) if checkpoints else None
        start = point.frames if point else 0
        stop = data.draw(st.integers(start, length)) if number < 6 else length
        done = [Row(step, step, 0.0, {"x": step * 0.1, "by": number}) for step in range(start + 1, stop + 1)]
        attempts[number] = (point, done)
        checkpoints += [ResumePoint(number, row.frames) for row in done if data.draw(st.booleans())]
        finished, number = stop == length, number + 1
    merged = merged_by(attempts, number - 1)
    assert [row.frames for row in merged] == list(range(1, length + 1))
    assert [row.metrics["x"] for row in merged] == [step * 0.1 for step in range(1, length + 1)]


def test_what_a_later_attempt_did_again_counts_once() -> None:
    def of(attempt: int, *frames: int) -> list[Row]:
        return [Row(frame, frame, 0.0, {"by": attempt}) for frame in frames]

    attempts = {
        1: (None, of(1, 1, 2, 3, 4)),
        2: (ResumePoint(1, 3), of(2, 4, 5, 6)),
        3: (ResumePoint(1, 2), of(3, 3)),  # what 2 had saved was damaged
        4: (ResumePoint(3, 3), of(4, 4, 5)),
    }
    assert [(row.frames, row.metrics["by"]) for row in merged_by(attempts, 4)] == [
        (1, 1),
        (2, 1),
        (3, 3),
        (4, 4),
        (5, 4),
    ]
    assert [row.metrics["by"] for row in merged_by(attempts, 2)] == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("line", ["garbage", "[]", '{"frames": 1}', '{"iteration": "x", "frames": 1}'])
def test_a_damaged_line_is_named_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"resumed_from": null}}\n{line}\n{{"iteration": 2, "frames": 2}}\n')
    with pytest.raises(DamagedFileError, match="line 2"):
        read_metrics(path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.ETIMEDOUT])
def test_rows_that_a_file_server_lost_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """An error of fsync says that something written before is lost; a second fsync does not say so again."""
    path, taken = tmp_path / "metrics.jsonl", [Row(index, index, 0.0, {}) for index in range(1, 5)]
    writer = MetricsWriter(path, None)
    writer.append(taken[0])
    writer.sync()
    writer.append(*taken[1:3])
    failures = [number]

    def lose(_: int) -> None:
        if failures:
            path.write_bytes(path.read_bytes()[:-20])
            raise OSError(failures.pop(), "lost")

    monkeypatch.setattr(os, "fsync", lose)
    writer.sync()
    writer.append(taken[3])
    writer.close()
    assert read_metrics(path) == (None, taken)


def test_no_file_is_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "none") == (None, [])

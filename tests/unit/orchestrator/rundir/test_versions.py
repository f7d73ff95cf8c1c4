"""Which version of a run counts, of this tree's and of its copies."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.synthetic import end_attempt, write_attempt
from orchestrator.rundir import RunDir
from orchestrator.rundir.versions import counting_run


@dataclass(frozen=True)
class Version:
    """``attempt``: the newest; ``frames``: of its checkpoint."""

    done: bool
    attempt: int = 0
    frames: int = 0


BEGUN = st.builds(Version, st.just(False), st.integers(1, 4), st.integers(0, 3))
DONE = st.builds(Version, st.just(True), st.integers(1, 4), st.integers(0, 3))
VERSIONS = BEGUN | DONE | st.just(Version(False))
OTHERS = st.lists(VERSIONS, max_size=4)


def counting(own: Version, others: Sequence[Version], retried: int = 0, *, held: bool = False) -> int:
    """Return the number of the version that counts of runs with these files; 0 for ``own``."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [RunDir(Path(folder) / f"{number:016x}") for number in range(len(others) + 1)]
        for run, version in zip(runs, [own, *others], strict=True):
            _write(run, version, ended=not held)
        if retried:
            runs[0].path.mkdir(exist_ok=True)
            (runs[0].path / f"retired-{retried}.json").write_text("{}")
        return runs.index(counting_run(runs[0], runs[1:], is_copy=False))


def _write(run: RunDir, version: Version, *, ended: bool) -> None:
    if version.attempt:
        attempt = run.attempt(version.attempt)
        write_attempt(attempt, [])
        attempt.checkpoints.mkdir()
        if version.frames:
            attempt.checkpoint_name(version.frames, "a" * 16).touch()
        if ended:
            end_attempt(attempt, "interrupted")
    if version.done:
        run.result_path.touch()


@given(VERSIONS, OTHERS, st.integers(0, 4), st.booleans())
def test_a_result_beats_none_and_the_first_of_two_stays(
    own: Version, others: list[Version], retried: int, held: bool
) -> None:
    number = counting(own, others, retried, held=held)
    versions = [own, *others]
    assert number == 0 or versions[number].attempt > retried
    if (held and own.attempt) or own.done:
        assert number == 0
        return
    valid = [one for one, found in enumerate(versions) if one == 0 or found.attempt > retried]
    done = [one for one in valid if versions[one].done]
    if done:
        assert number == done[0]
    elif own.attempt > retried or not own.attempt:
        assert versions[number].frames == max(versions[one].frames for one in valid)


@given(VERSIONS, OTHERS, VERSIONS)
def test_a_further_source_never_replaces_a_result(
    own: Version, others: list[Version], later: Version
) -> None:
    before = counting(own, others)
    if [own, *others][before].done:
        assert counting(own, [*others, later]) == before


def test_equal_versions_are_read_in_the_sweep_s_folder() -> None:
    assert counting(Version(False, 1, 5), [Version(False, 1, 5)]) == 0


def test_a_tree_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = RunDir(tmp_path / "own"), RunDir(tmp_path / "other")
    for run in (own, other):
        write_attempt(run.attempt(1), [])
    os.utime(own.attempt(1).claim_path, (time.time() - 9999,) * 2)

    def touch(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "touch", touch)
    assert counting_run(own, [other], is_copy=False) is own  # nothing is asked: no other version would win
    other.result_path.write_text("{}")
    assert counting_run(own, [other], is_copy=False) is own  # no proof that its worker is gone

"""Checkpoint files: whole or not there, checked before use, pruned to what the last two need."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.training.checkpoints import CheckpointStore, Segment
from orchestrator.core.errors import StorageError
from orchestrator.core.types import RunState
from orchestrator.rundir import AttemptDir, CheckpointFile, Claim, End, RunDir


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "0123456789abcdef")
    (run_dir.path / "attempts").mkdir(parents=True)
    return run_dir


def begin(run_dir: RunDir) -> tuple[AttemptDir, CheckpointStore]:
    """The next attempt; the one before it is ended first."""
    if attempts := run_dir.attempts():
        attempts[-1].write_end(End(RunState.INTERRUPTED))
    attempt = run_dir.take(Claim.fresh("test"))
    assert attempt is not None
    return attempt, CheckpointStore(run_dir, attempt)


def payload(number: int) -> dict[str, Any]:
    return {"weights": torch.full((10,), float(number)), "names": ["a", None, 1.5], "step": number}


def files(run_dir: RunDir) -> set[str]:
    return {f"{path.parent.parent.name}/{path.name}" for path in run_dir.path.rglob("checkpoints/*")}


def newest(run_dir: RunDir, store: CheckpointStore) -> int | None:
    loaded = store.newest(run_dir.checkpoints())
    return None if loaded is None else loaded.payload["step"]


def test_what_is_saved_comes_back(run_dir: RunDir) -> None:
    _, store = begin(run_dir)
    store.save(100, payload(1))
    loaded = store.newest(run_dir.checkpoints())
    assert loaded is not None
    assert torch.equal(loaded.payload["weights"], torch.full((10,), 1.0))
    assert loaded.payload["names"] == ["a", None, 1.5]
    assert loaded.file.frames == 100


def test_the_last_two_are_kept(run_dir: RunDir) -> None:
    _, store = begin(run_dir)
    saved = [store.save(100 * number, payload(number)) for number in range(1, 5)]
    assert files(run_dir) == {f"1/{file.path.name}" for file in saved[-2:]}


def test_the_one_resumed_from_is_kept_until_there_are_two_newer(run_dir: RunDir) -> None:
    _, store = begin(run_dir)
    first = [store.save(100 * number, payload(number)) for number in (1, 2)]
    _, store = begin(run_dir)
    assert newest(run_dir, store) == 2
    third = store.save(300, payload(3))
    assert files(run_dir) == {f"1/{first[1].path.name}", f"2/{third.path.name}"}
    fourth = store.save(400, payload(4))
    assert files(run_dir) == {f"2/{third.path.name}", f"2/{fourth.path.name}"}


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "segment missing", "segment flipped"])
def test_a_damaged_one_is_named_and_passed_over(
    run_dir: RunDir, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, store = begin(run_dir)
    store.save(100, payload(1))
    segment = store.add_segment(0, 0, 5, {"items": torch.arange(5)})
    last = store.save(200, payload(2), [segment])
    victim = last.path
    if damage.startswith("segment"):
        victim = next(path for path in last.path.parent.iterdir() if path.name.startswith("segment"))
    content = victim.read_bytes()
    if damage == "segment missing":
        victim.unlink()
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        victim.write_bytes(
            {"truncated": content[:-7], "empty": b""}.get(damage, flipped),
        )

    _, store = begin(run_dir)
    assert newest(run_dir, store) == 1
    assert f"warning: checkpoint passed over: {victim}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        torch.arange(3),
        {},
        {"payload": [1], "segments": []},
        {"payload": {}, "segments": [{"attempt": 1}]},
        {"payload": {}, "segments": 3},
        {"payload": {}},
    ],
)
def test_one_of_another_making_is_passed_over(
    run_dir: RunDir, content: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name and its checksum are right."""
    attempt, store = begin(run_dir)
    store.save(100, payload(1))
    torch.save(content, run_dir.path / "other.pt")
    attempt.adopt_checkpoint(run_dir.path / "other.pt", 200)
    _, store = begin(run_dir)
    assert newest(run_dir, store) == 1
    assert "warning: checkpoint passed over:" in capsys.readouterr().err


def test_a_damaged_one_is_removed_once_a_new_one_stands(run_dir: RunDir) -> None:
    _, store = begin(run_dir)
    good, bad = store.save(100, payload(1)), store.save(200, payload(2))
    bad.path.write_bytes(b"")
    _, store = begin(run_dir)
    assert newest(run_dir, store) == 1
    new = store.save(150, payload(3))
    assert files(run_dir) == {f"1/{good.path.name}", f"2/{new.path.name}"}


def test_without_a_whole_one_there_is_none(run_dir: RunDir) -> None:
    _, store = begin(run_dir)
    assert newest(run_dir, store) is None
    store.save(100, payload(1)).path.write_bytes(b"not a checkpoint")
    assert newest(run_dir, store) is None


def test_code_in_a_checkpoint_is_not_run(run_dir: RunDir, tmp_path: Path) -> None:
    attempt, store = begin(run_dir)
    evil = tmp_path / "evil"
    torch.save({"payload": _Evil(evil), "segments": []}, tmp_path / "file")
    import hashlib

    digest = hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()[:16]
    attempt.checkpoints.mkdir()
    (tmp_path / "file").rename(attempt.checkpoint_name(100, digest))
    assert store.newest(run_dir.checkpoints()) is None
    assert not evil.exists()


class _Evil:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_one_before(
    run_dir: RunDir, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = begin(run_dir)
    first = store.save(100, payload(1))

    def full(*_args: Any, **_kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = torch if step == "write" else os
    monkeypatch.setattr(owner, "save" if step == "write" else step, full)
    with pytest.raises(StorageError, match="the disk is full"):
        store.save(200, payload(2))
    monkeypatch.undo()
    assert files(run_dir) == {f"1/{first.path.name}"}
    assert newest(run_dir, store) == 1


def test_torn_writes_of_an_ended_attempt_are_cleared(run_dir: RunDir) -> None:
    attempt, store = begin(run_dir)
    store.save(100, payload(1))
    (attempt.checkpoints / ".checkpoint.abc.tmp").write_bytes(b"half")
    _, store = begin(run_dir)
    assert newest(run_dir, store) == 1
    store.save(200, payload(2))
    assert not any("tmp" in name for name in files(run_dir))


def test_segments_live_as_long_as_a_kept_checkpoint_refers_to_them(run_dir: RunDir) -> None:
    _, store = begin(run_dir)
    segments = [store.add_segment(0, 10 * n, 10, {"items": torch.arange(10) + n}) for n in range(2)]
    store.save(100, payload(1), segments)
    segments.append(store.add_segment(0, 20, 10, {"items": torch.arange(10) + 2}))
    store.save(200, payload(2), segments[1:3])
    _, store = begin(run_dir)
    loaded = store.newest(run_dir.checkpoints())
    assert loaded is not None
    assert loaded.segments == tuple(segments[1:3])
    assert torch.equal(store.read_segment(segments[1])["items"], torch.arange(10) + 1)

    later = store.add_segment(0, 30, 10, {"items": torch.arange(10)})
    third = store.save(300, payload(3), [segments[2], later])
    assert _starts(run_dir) == {10, 20, 30}  # 10 for the checkpoint resumed from
    store.save(400, payload(4), [later])
    assert _starts(run_dir) == {20, 30}
    assert third.path.exists()
    assert isinstance(later, Segment)
    assert later.attempt == 2


def test_a_newer_attempts_files_are_left_alone(run_dir: RunDir) -> None:
    _, slow = begin(run_dir)
    slow.save(100, payload(1))
    _, store = begin(run_dir)
    kept = store.save(200, payload(2))
    slow.save(150, payload(9))
    assert kept.path.exists()


def test_names_carry_frames_and_checksum(run_dir: RunDir) -> None:
    attempt, store = begin(run_dir)
    file = store.save(12_000, payload(1))
    assert isinstance(file, CheckpointFile)
    assert file.path == attempt.checkpoint_name(12_000, file.digest)
    assert run_dir.checkpoints() == [file]


def _starts(run_dir: RunDir) -> set[int]:
    return {int(name.split("-")[2]) for name in files(run_dir) if "segment" in name}


def test_the_folder_of_an_attempt_that_was_removed_does_not_come_back(run_dir: RunDir) -> None:
    attempt, store = begin(run_dir)
    shutil.rmtree(attempt.path)
    with pytest.raises(FileNotFoundError):
        store.save(100, payload(1))
    assert not attempt.path.exists()

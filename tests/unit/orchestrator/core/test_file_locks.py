"""Locks of files, and file systems that have none."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from orchestrator.core.machine import file_locks


def test_a_lock_is_held_until_its_file_is_closed(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as first, open(tmp_path / "lock", "w") as second:
        assert file_locks.lock(first)
        assert not file_locks.lock(second, wait=False)
        first.close()
        assert file_locks.lock(second, wait=False)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_without_locks_there_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(fcntl, "flock", refuse)
    file_locks._warn.cache_clear()
    with open(tmp_path / "lock", "w") as file:
        with pytest.warns(RuntimeWarning, match="has no locks"):
            assert file_locks.lock(file)
        assert file_locks.lock(file, wait=False)


def test_another_error_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(fcntl, "flock", fail)
    with open(tmp_path / "lock", "w") as file, pytest.raises(OSError, match="no"):
        file_locks.lock(file)

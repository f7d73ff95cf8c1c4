"""A mirror on a file system without locks."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from orchestrator.core.errors import StorageError
from orchestrator.core.s3 import Address
from orchestrator.sync.bucket_mirror import Mirror, MirrorOptions


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", none)
    mirror = Mirror(Address("b", ""), tmp_path)
    with pytest.raises(StorageError, match=r"cannot lock .*not implemented"):
        mirror._open("source", dry=MirrorOptions().dry)
    assert len(list((tmp_path / ".buckets" / "source").iterdir())) == 1

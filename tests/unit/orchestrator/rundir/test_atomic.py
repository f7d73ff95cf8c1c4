"""Writes that are there whole or not at all, and refusals of the disk that name the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from orchestrator.core.errors import StorageError
from orchestrator.rundir.files.atomic import check_writable, write_atomic, write_exclusive


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is found full when the bytes are to reach it."""

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)


def test_replacing_leaves_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in (b"old", b"new"):
        write_atomic(path, text)
        assert path.read_bytes() == text
    assert os.listdir(tmp_path) == ["file"]


def test_creating_happens_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert write_exclusive(path, b"mine")
    assert not write_exclusive(path, b"theirs")
    assert write_exclusive(path, b"mine"), "the reply was lost, the file is mine all the same"
    assert path.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.usefixtures("refuse")
def test_a_full_disk_changes_nothing_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    for write in (write_atomic, write_exclusive):
        with pytest.raises(StorageError, match=f"{path}: the disk is full") as caught:
            write(path, b"new")
        assert caught.value.hint
    with pytest.raises(StorageError):
        check_writable(tmp_path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "absent" / "file", b"")

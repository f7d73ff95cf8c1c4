"""Small file systems of a test's own: as root, or under `unshare --user --map-root-user --mount`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: str = "4m", files: int = 0) -> Iterator[Path]:
    """A file system of so much, 4 MiB unless told, at this folder, which is made; 0 files: as many as fit."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={files}", "none", str(folder)]
    answer = subprocess.run(mount, capture_output=True, text=True)
    if answer.returncode:
        pytest.fail(
            f"this test needs a small disk, and mounting one fails: {answer.stderr.strip()}. Run it as root, "
            "or all tests under `unshare --user --map-root-user --mount`"
        )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Use up the disk but for ``leave`` bytes."""
    file = folder / "filler"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    file.write_bytes(bytes(max(0, free - leave)))
    return file


def make_writable(folder: Path, writable: bool) -> None:
    """Mount it anew, for reading only or not."""
    subprocess.run(["mount", "-o", f"remount,{'rw' if writable else 'ro'}", folder], check=True)

"""A folder as a shared file system shows it to one node: names cached for seconds, and faults of its server.

Needs /dev/fuse and Debian's packages fuse and libfuse2. Each view is a process of its own; two views of one
folder are two nodes.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT, wait_for

# What of a stat result the kernel asks a file system for.
_ATTRIBUTES = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")
_TIMES = {"st_atime": "st_atime_ns", "st_mtime": "st_mtime_ns", "st_ctime": "st_ctime_ns"}
_SPACE = (
    "f_bavail",
    "f_bfree",
    "f_blocks",
    "f_bsize",
    "f_favail",
    "f_ffree",
    "f_files",
    "f_frsize",
    "f_namemax",
)


class View:
    """A mounted view. ``path``: where it is mounted."""

    def __init__(self, path: Path, faults: Path) -> None:
        self.path, self._faults = path, faults
        self._rules: list[dict[str, Any]] = []

    def fail(self, operation: str, match: str, error: int, count: int = 1) -> None:
        """Have the next ``count`` operations fail (-1: all) whose path in the view matches the pattern.

        ``operation``: one of FUSE's, such as open, link, write; "*" for any.
        """
        self._rules.append({"operation": operation, "match": match, "errno": error, "left": count})
        temporary = self._faults.with_suffix(".new")
        temporary.write_text(json.dumps(self._rules))
        temporary.replace(self._faults)

    def struck(self) -> list[str]:
        """Return the operations that failed so far, each with its path."""
        log = self._faults.with_suffix(".log")
        return log.read_text().splitlines() if log.exists() else []


@contextmanager
def view_of(folder: Path, at: Path, lag: float = 0.0) -> Iterator[View]:
    """Mount a view of ``folder`` whose names and attributes are cached for ``lag`` seconds."""
    at.mkdir()
    view = View(at, at.with_name(f"{at.name}-faults.json"))
    argv = [sys.executable, "-m", "tests.lagfs", str(folder), str(at), str(lag), str(view._faults)]
    server = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: os.path.ismount(at) or server.poll() is not None, what="the mount")
        if server.poll() is not None:
            assert server.stdout is not None
            pytest.fail(f"this test mounts a file system through FUSE, which fails: {server.stdout.read()}")
        yield view
    finally:
        subprocess.run(["fusermount", "-u", "-z", at], check=False)
        server.kill()
        server.communicate()


class Server:
    """Answers the kernel's requests about a view."""

    use_ns = True

    def __init__(self, folder: str, faults: str) -> None:
        self._folder, self._faults = folder, Path(faults)
        self._rules: list[dict[str, Any]] = []
        self._read: tuple[int, int] | None = None

    def __call__(self, operation: str, path: str, *arguments: Any) -> Any:
        if operation not in ("init", "destroy"):
            self._strike(operation, path)
        return getattr(self, operation)(path, *arguments)

    def _strike(self, operation: str, path: str) -> None:
        try:
            about = self._faults.stat()
        except FileNotFoundError:
            return
        if self._read != (version := (about.st_ino, about.st_mtime_ns)):
            self._read, known = version, len(self._rules)
            self._rules += json.loads(self._faults.read_text())[known:]
        for rule in self._rules:
            if rule["operation"] in ("*", operation) and rule["left"] and re.search(rule["match"], path):
                rule["left"] -= 1
                with self._faults.with_suffix(".log").open("a") as log:
                    log.write(f"{operation} {path}\n")
                raise OSError(rule["errno"], path)

    def access(self, path: str, mode: int) -> None:
        if not os.access(self._folder + path, mode):
            raise PermissionError(errno.EACCES, path)

    def init(self, _: str) -> None:
        pass

    def destroy(self, _: str) -> None:
        pass

    def getattr(self, path: str, _: Any = None) -> dict[str, Any]:
        about = os.lstat(self._folder + path)
        found = {name: getattr(about, name) for name in _ATTRIBUTES}
        return found | {name: getattr(about, source) for name, source in _TIMES.items()}

    def readdir(self, path: str, _: int) -> list[str]:
        return [".", "..", *os.listdir(self._folder + path)]

    def statfs(self, path: str) -> dict[str, int]:
        about = os.statvfs(self._folder + path)
        return {name: getattr(about, name) for name in _SPACE}

    def readlink(self, path: str) -> str:
        return os.readlink(self._folder + path)

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self._folder + path, mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self._folder + path)

    def unlink(self, path: str) -> None:
        os.unlink(self._folder + path)

    def symlink(self, path: str, target: str) -> None:
        os.symlink(target, self._folder + path)

    def link(self, path: str, source: str) -> None:
        os.link(self._folder + source, self._folder + path)

    def rename(self, path: str, target: str) -> None:
        os.rename(self._folder + path, self._folder + target)

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self._folder + path, mode)

    def chown(self, path: str, user: int, group: int) -> None:
        os.chown(self._folder + path, user, group)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        os.utime(self._folder + path, ns=times or (time.time_ns(),) * 2)

    def truncate(self, path: str, length: int, _: Any = None) -> None:
        os.truncate(self._folder + path, length)

    def open(self, path: str, flags: int) -> int:
        return os.open(self._folder + path, flags)

    def create(self, path: str, mode: int, _: Any = None) -> int:
        return os.open(self._folder + path, os.O_RDWR | os.O_CREAT, mode)

    def read(self, _: str, size: int, offset: int, descriptor: int) -> bytes:
        return os.pread(descriptor, size, offset)

    def write(self, _: str, data: bytes, offset: int, descriptor: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def fsync(self, _: str, __: int, descriptor: int) -> None:
        os.fsync(descriptor)

    def release(self, _: str, descriptor: int) -> None:
        os.close(descriptor)


def serve(folder: str, at: str, lag: float, faults: str) -> None:
    """Serve a view until it is unmounted."""
    import fuse

    cached = dict.fromkeys(("entry_timeout", "negative_timeout", "attr_timeout"), lag)
    fuse.FUSE(Server(folder, faults), at, foreground=True, default_permissions=True, fsname="lagfs", **cached)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])

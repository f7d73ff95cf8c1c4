"""Match local files with objects of a bucket, by listed checksum or by an earlier match on record.

The record has one line per matched or downloaded object, so that unchanged files are not read again. Any
number of processes may append to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.rundir.atomic import write_atomic

_MD5 = re.compile(r"[0-9a-f]{32}")
# The checksum of a multipart upload: of its parts' checksums, with the number of parts.
_IN_PARTS = re.compile(r"(?P<digest>[0-9a-f]{32})-(?P<parts>\d{1,5})")
_MB = 1 << 20
# Common part sizes of clients, the most common first.
_PART_SIZES = (8 * _MB, 16 * _MB, 5 * _MB, 64 * _MB, 32 * _MB, 100 * _MB, 128 * _MB)
_GUESSES = 3
# The record is compacted when it has this many times more lines than objects.
_WORN = 4


@dataclass(frozen=True)
class S3Object:
    """An object. ``name``: its path in the results tree. ``time``: upload time, in epoch seconds."""

    name: str
    size: int
    digest: str
    time: float


class Etags:
    """The record in the file ``path``, which may be missing.

    With ``trusting`` off every file is read; with ``dry`` nothing is written.
    """

    def __init__(self, path: Path, *, trusting: bool = True, dry: bool = False) -> None:
        self._path, self._trusting, self._dry = path, trusting, dry
        self._known: dict[str, tuple[str, int, int]] = {}
        self._lines = 0
        for name, entry in _entries(path):
            self._known[name] = entry
            self._lines += 1

    def is_same(self, path: Path, item: S3Object) -> bool:
        """Return whether a file here has the object's content."""
        try:
            if path.is_symlink() or not path.is_file():
                return False
            stat = path.stat()
            if stat.st_size != item.size:
                return False
            if self._trusting and self._known.get(item.name) == (item.digest, stat.st_size, stat.st_mtime_ns):
                return True
            same = matches(path, item.digest)
        except OSError:
            return False
        if same:
            self.add(item.name, item.digest, path)
        return bool(same)

    def add(self, name: str, digest: str, path: Path) -> None:
        """Record that the file has the content of the object with that name and checksum."""
        stat = path.stat()
        entry = (digest, stat.st_size, stat.st_mtime_ns)
        if self._known.get(name) == entry:
            return
        self._known[name] = entry
        self._lines += 1
        if self._dry:
            return
        line = json.dumps([name, *entry]) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # One write per line, so that lines of several processes do not mix.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def compact(self) -> None:
        """Rewrite the record if it has many outdated lines."""
        if self._lines > _WORN * len(self._known):
            lines = (json.dumps([name, *entry]) + "\n" for name, entry in self._known.items())
            write_atomic(self._path, "".join(lines).encode(), durable=False)
            self._lines = len(self._known)


def matches(path: Path, digest: str) -> bool | None:
    """Return whether a file's content has the checksum listed by a bucket; ``None`` if that cannot be
    decided.
    """
    if _MD5.fullmatch(digest):
        with open(path, "rb") as file:
            return hashlib.file_digest(file, _md5).hexdigest() == digest
    match = _IN_PARTS.fullmatch(digest)
    parts, size = int(match["parts"]) if match else 0, path.stat().st_size
    if match is None or not parts:
        return None
    sizes = [*_PART_SIZES, -(-size // parts // _MB) * _MB]
    fitting = [part for part in dict.fromkeys(sizes) if part and -(-size // part) == parts]
    return True if any(_of_parts(path, part) == match["digest"] for part in fitting[:_GUESSES]) else None


def _of_parts(path: Path, part: int) -> str:
    whole = _md5()
    with open(path, "rb") as file:
        while data := file.read(part):
            whole.update(_md5(data).digest())
    return whole.hexdigest()


_md5 = partial(hashlib.md5, usedforsecurity=False)


def _entries(path: Path) -> Iterator[tuple[str, tuple[str, int, int]]]:
    """Yield the readable lines of a record that may be damaged or cut off."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            name, digest, size, time = json.loads(line)
            yield str(name), (str(digest), int(size), int(time))
        except (ValueError, TypeError):
            continue

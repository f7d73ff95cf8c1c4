"""What a run's folder held when it was left: by one stat a file it shows whether that is still so.

A fingerprint is text: a hash of sizes and times, then the files' paths in the run's folder, a line each.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence


def fingerprint(folder: str) -> str:
    """Of all files in the folder as they are now, but for names that no text can hold."""
    names = sorted(_files(folder, ""))
    return "\n".join((_hash(folder, names), *names))


def is_unchanged(folder: str, known: str) -> bool:
    """Whether every file of a fingerprint is in the folder, of its size and time; others may be there."""
    digest, *names = known.split("\n")
    return bool(digest) and _hash(folder, names) == digest


def _hash(folder: str, names: Sequence[str]) -> str:
    """Empty if one of these files is not there."""
    found = []
    try:
        for name in names:
            # As text: a path object for each of some 100,000 files would take the most of the time.
            stat = os.lstat(f"{folder}/{name}")
            found.append((stat.st_mode, stat.st_size, stat.st_mtime_ns))
    except OSError:
        return ""
    return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()


def _files(folder: str, above: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{above}{entry.name}/")
            elif _is_listable(above + entry.name):
                yield above + entry.name


def _is_listable(name: str) -> bool:
    """Whether a file may be in a fingerprint, which is kept as JSON. No result lists one that may not."""
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no text
        return False
    return "\n" not in name

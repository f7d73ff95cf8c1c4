"""Detect changes in a run's folder by one stat for each file.

A fingerprint is text: a hash of sizes and times, then the files' paths in the run's folder, a line each.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence


def fingerprint(folder: str) -> str:
    """Return the fingerprint of all files now in the folder, except names that are not text."""
    names = sorted(_files(folder, ""))
    return "\n".join((_hash(folder, names), *names))


def is_unchanged(folder: str, known: str) -> bool:
    """Return whether every fingerprinted file has its size and time; further files may exist."""
    digest, *names = known.split("\n")
    return bool(digest) and _hash(folder, names) == digest


def _hash(folder: str, names: Sequence[str]) -> str:
    """Hash the files' modes, sizes and times; empty if a file is missing."""
    found = []
    try:
        for name in names:
            # Strings, not paths: an object for each of some 100,000 files would dominate the time.
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
    """Return whether a fingerprint, kept as JSON, may hold the name. No result lists another one."""
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are not text
        return False
    return "\n" not in name

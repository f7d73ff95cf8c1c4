"""Open files of a results tree: plain files only.

A tree can come from another machine. Opening a FIFO waits for ever, opening a device can have any effect, and
a sparse file can be larger than the memory. Every reader and writer of a tree's files opens them here.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir.files.file_server import persist

# Far beyond any real file of its kind, in bytes: JSON records, and files of lines.
LARGEST_JSON, LARGEST = 1 << 28, 1 << 31

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class HasPath(Protocol):
    """A folder."""

    path: Path


class PathWithin:
    """The path of an entry of a folder, made when it is read: a command looks into ten thousand folders."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: HasPath, _type: type) -> Path:
        return folder.path / self._name


def open_plain(path: Path) -> BufferedReader:
    """Open a file to read bytes. Raises ``FileNotFoundError``; :class:`DamagedFileError` if not plain."""
    return open(path, "rb", opener=open_descriptor)


def open_to_write(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open as :func:`open`. Raises :class:`DamagedFileError` if the path exists and is no plain file."""
    return open(path, mode, opener=open_descriptor, **options)


def read_plain(path: Path, largest: int = LARGEST) -> bytes:
    """Read a plain file. Raises as :func:`open_plain`, and for a file larger than ``largest``."""

    def read() -> bytes:
        with open_plain(path) as file:
            return read_rest(file, path, largest)

    return persist(read)


def read_rest(file: BufferedReader, path: Path, largest: int = LARGEST) -> bytes:
    """Read the rest of the open file ``path``. Raises as :func:`read_plain`."""
    size = os.fstat(file.fileno()).st_size - file.tell()
    if size > largest:
        raise DamagedFileError(path, f"holds {size:,} bytes, expected at most {largest:,}")
    return file.read()


class Version(NamedTuple):
    """Identifies one version of a file's content."""

    inode: int
    size: int
    changed_ns: int


def version_of(about: os.stat_result) -> Version:
    """Return the version of a file from its stat result."""
    return Version(about.st_ino, about.st_size, about.st_mtime_ns)


def current_version(path: Path) -> Version:
    """Return the version of a plain file. Raises as :func:`read_plain`.

    Opens it: a network file system's client answers a stat for some seconds from a cache, an opening never.
    """

    def read() -> Version:
        with open_plain(path) as file:
            return version_of(os.fstat(file.fileno()))

    return persist(read)


def same_content(one: Path, other: Path) -> bool:
    """Return whether two plain files hold the same bytes. Raises as :func:`read_plain`."""
    return read_plain(one) == read_plain(other)


def require_plain(path: str | Path) -> None:
    """Raise as :func:`open_plain` would, without opening the file."""
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        raise DamagedFileError(Path(path), f"is {_KINDS.get(kind, 'something else')}, expected a plain file")


def is_listed(path: Path, levels: int = 1) -> bool:
    """Return whether a name is in its folder's listing, and have the kernel look it up anew if it is.

    A network file system's client answers for some seconds from a cache that a name is absent, or present. A
    listing is not cached beyond the opening of its folder. ``levels``: how many of the path's last names to
    look up so.
    """
    for one in reversed((path, *path.parents)[:levels]):
        try:
            if one.name not in persist(partial(os.listdir, one.parent)):
                return False
        except (FileNotFoundError, NotADirectoryError):
            return False
        # The target of a new link is looked up past the cache. No folder can be linked, so none is made.
        with suppress(OSError):
            os.link(one.parent, one)
    return True


def open_descriptor(name: str | Path, flags: int) -> int:
    """Open as :func:`os.open`, for a plain file only. Raises as :func:`open_to_write`."""
    try:
        require_plain(name)
    except FileNotFoundError:
        if os.path.islink(name):
            why = "is a link that leads nowhere, expected a plain file"
            raise DamagedFileError(Path(name), why) from None
        if not flags & os.O_CREAT:
            is_listed(Path(name))
    # The kind may have changed since: open without waiting, and check again.
    descriptor = os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            require_plain(name)
            raise DamagedFileError(Path(name), "is no plain file")
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_text(path: Path, hint: str | None = None, errors: str = "strict") -> str:
    """Return the text of a plain file. Raises :class:`DamagedFileError` with this hint."""
    try:
        return read_plain(path).decode(errors=errors)
    except UnicodeDecodeError as error:
        raise DamagedFileError(path, f"is not text ({error})", hint=hint) from error
    except DamagedFileError as error:
        error.hint = hint
        raise

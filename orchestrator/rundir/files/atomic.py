"""Write files that survive a kill, a full disk and a network file system."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import orjson

from orchestrator.core.errors import DamagedFileError, FileServerError, StorageError
from orchestrator.core.machine.permissions import denial
from orchestrator.core.records import parse
from orchestrator.rundir.files.file_server import SERVER_ERRNOS, persist
from orchestrator.rundir.files.plain_files import LARGEST_JSON, read_plain

_Record = TypeVar("_Record")

_STORAGE_ERRNOS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
}
_FREE_SPACE = "free space or choose another folder with --results DIR, then run the same command again"
_COPY = "copy the tree with cp -r to a folder that can be written, and name it with --results DIR"
_HINTS = dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _COPY)

# Answers to a link on FAT, on SMB, and on some file systems in user space.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def link(source: Path, path: Path) -> None:
    """Give a file a second name. Raises ``FileExistsError``, and ``StorageError`` without hard links."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise StorageError(
            f"cannot write {path}: its file system has no hard links, of which claims and results are made",
            hint="choose a folder on another file system with --results DIR; `orchestrate doctor` tries it",
        ) from error


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn write errors of the operating system into :class:`StorageError`, naming ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno in SERVER_ERRNOS:
            raise FileServerError(
                f"cannot write {path}: {error.strerror} (its file server failed)",
                hint="run the same command again; if it fails again, ask those who run the file server",
            ) from error
        reason = _STORAGE_ERRNOS.get(error.errno or 0)
        if reason is None:
            raise
        hint = _HINTS.get(error.errno or 0, _FREE_SPACE)
        if isinstance(error, PermissionError) and (denied := denial(path)):
            reason, hint = f"{reason}: {denied.reason}", denied.hint
        raise StorageError(f"cannot write {path}: {reason}", hint=hint) from error


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace ``path``: a reader sees the old bytes or the new, if durable also after a power cut."""

    def write() -> None:
        temporary = _write_temporary(path, data, durable)
        try:
            os.replace(temporary, path)
        except BaseException:
            _remove(temporary)
            raise
        if durable:
            fsync_folder(path.parent)

    with storage_errors(path):
        persist(write)


def write_exclusive(path: Path, data: bytes, guard: Callable[[], None] = lambda: None) -> bool:
    """Create ``path`` with ``data`` in one step; return False if it exists already.

    ``guard`` is called when the data is on disk without its name, and can stop the creation by raising.

    Uses a hard link: unlike ``O_EXCL`` it never shows an empty file, and it is atomic on NFS. There a reply
    can be lost after success, so a failure is judged by the file's content.
    """

    def write() -> bool:
        temporary = _write_temporary(path, data)
        try:
            guard()
            link(temporary, path)
        except FileExistsError:
            return _holds(path, data)
        finally:
            _remove(temporary)
        fsync_folder(path.parent)
        return True

    with storage_errors(path):
        return persist(write)


def _remove(temporary: Path) -> None:
    """Remove a temporary file; one that stays is removed with those of killed writers."""
    with suppress(OSError):
        temporary.unlink()


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read_plain(path, LARGEST_JSON) == data
    except FileNotFoundError:  # removed a moment ago
        return False


def check_writable(folder: Path, size: int = 1 << 20) -> None:
    """Raise :class:`StorageError` unless ``size`` bytes can be written in ``folder``."""
    with storage_errors(folder):
        _remove(persist(lambda: _write_temporary(folder / "probe", bytes(size))))


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside ``path`` that no reader takes for a finished file."""
    return path.parent / f".{path.name[:100]}.{secrets.token_hex(6)}.tmp"


def fsync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """Serialise a value as JSON with sorted keys and a final newline."""
    return (json.dumps(value, sort_keys=True, indent=indent, ensure_ascii=False) + "\n").encode()


def parse_json(data: bytes) -> Any:
    """Parse JSON quickly. Raises ``ValueError``.

    Integers beyond 64 bits become floats: not for values that decide a run's identity.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return parse_exactly(data)


def parse_exactly(data: bytes | str) -> Any:
    """Parse JSON with integers of any size. Raises ``ValueError``.

    Halves of characters, which JSON can escape and no file can hold, become question marks.
    """
    try:
        found = json.loads(data)
        if (b"\\ud" if isinstance(data, bytes) else "\\ud") in data.lower():  # type: ignore[operator]
            found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
        return found
    except RecursionError:
        raise ValueError("nested too deeply") from None


def line_parser(kind: type[_Record], *, strict: bool = True) -> Callable[[bytes], _Record]:
    """Return a function that parses a line of JSON as a typed record. It raises ``ValueError``.

    ``strict``: accept no texts as numbers. NaN and infinities, which Python writes and JSON lacks, are taken.
    """
    decode = msgspec.json.Decoder(kind, strict=strict).decode

    def parse_line(line: bytes) -> _Record:
        try:
            return decode(line)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.convert(parse_exactly(line), kind, strict=strict)

    return parse_line


def read_json(path: Path, loads: Callable[[bytes], Any] = parse_exactly) -> Any:
    """Read a JSON file. Raises ``FileNotFoundError`` and :class:`DamagedFileError`."""
    try:
        return loads(read_plain(path, LARGEST_JSON))
    except ValueError as error:
        raise DamagedFileError(path, f"is not valid JSON ({error})") from error


def read_record(kind: type[_Record], path: Path, name: str) -> _Record | None:
    """Read a typed record; None if the file does not exist. Raises :class:`DamagedFileError`.

    ``name``: the record's, with its article, for users.
    """
    try:
        return parse(kind, read_json(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DamagedFileError(path, f"is not {name} ({error})") from error


def _write_temporary(path: Path, data: bytes, durable: bool = True) -> Path:
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except BaseException:
        _remove(temporary)
        raise
    return temporary

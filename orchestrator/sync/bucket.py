"""A bucket's results tree, brought to a folder of this machine, from where a sync goes on as from any."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.buckets import AT_ONCE, Address, connect, is_gone, refusal
from orchestrator.errors import BackendUnavailableError, NotFoundError, StorageError, UnreachableError
from orchestrator.rundir.atomic import storage_errors
from orchestrator.rundir.synced import RESULT, RUNS, SOURCES
from orchestrator.rundir.tree import SWEEP_NAME
from orchestrator.sync.names import is_plain

# Bytes of a path that S3 can name, and of a name in it that file systems can.
_LONGEST_PATH, _LONGEST_NAME = 1024, 255
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Item:
    """An object. ``name`` is its path in the results tree; ``time``, in epoch seconds, when it was put."""

    name: str
    size: int
    digest: str
    time: float


class Mirror:
    """A folder that has what a bucket has, as of the latest :meth:`refresh`; gone with this object.

    ``known`` is a results folder here: what it has already is not brought again.
    """

    def __init__(self, address: Address, known: Path) -> None:
        self.address, self._known = address, known.absolute()
        # Beside what is known, so that links can be made.
        near = next(path for path in self._known.parents if path.is_dir())
        with storage_errors(near):
            self.path = Path(tempfile.mkdtemp(prefix=".orchestrate-bucket-", dir=near.resolve()))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def refresh(self, source_name: str, sweeps: Sequence[str] = ()) -> list[str]:
        """Have the folder as the bucket is now, all of it or these sweeps; names that no results tree has.

        ``source_name`` is the folder of ``sources`` that has this bucket's copies. Raises
        :class:`NotFoundError`, and :class:`UnreachableError` where nobody answers.
        """
        prefixes = [f"{self.address.prefix}{name}/" for name in sweeps] or [self.address.prefix]
        try:
            client = connect()
            refused, items = self._list(client, prefixes)
            self._clear(items)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(partial(self._bring, client, source_name), items))
        except StorageError as error:
            raise _unavailable(self.address, error) from error
        self._date_folders(items)
        return refused

    def _list(self, client: Any, prefixes: Sequence[str]) -> tuple[list[str], list[Item]]:
        """Results are seen before all else: of those that are taken, every file is in the list."""
        early = {item.name for item in self._objects(client, prefixes) if _is_result(item.name)}
        refused, items = [], []
        for item in self._objects(client, prefixes):
            if item.name.endswith("/"):  # what some tools put for a folder
                continue
            if not _is_of_tree(item.name):
                refused.append(item.name)
            elif item.name in early or not _is_result(item.name):
                items.append(item)
        folders = {str(parent) for item in items for parent in PurePosixPath(item.name).parents}
        refused += [item.name for item in items if item.name in folders]
        return refused, [item for item in items if item.name not in folders]

    def _objects(self, client: Any, prefixes: Sequence[str]) -> Iterator[Item]:
        lister = client.get_paginator("list_objects_v2")
        try:
            pages = (lister.paginate(Bucket=self.address.bucket, Prefix=prefix) for prefix in prefixes)
            for page in chain.from_iterable(pages):
                for found in page.get("Contents", ()):
                    name = found["Key"].removeprefix(self.address.prefix)
                    digest = found["ETag"].strip('"')
                    yield Item(name, found["Size"], digest, found["LastModified"].timestamp())
        except Exception as error:
            raise refusal(error) from error

    def _clear(self, items: Iterable[Item]) -> None:
        """Remove what the bucket has no more."""
        wanted = {self.path / item.name for item in items}
        for path in sorted(self.path.rglob("*"), reverse=True):
            if path not in wanted and not path.is_dir():
                path.unlink()

    def _bring(self, client: Any, source_name: str, item: Item) -> None:
        path = self.path / item.name
        if _is_same(path, item):
            return
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if not self._take_known(source_name, item, path):
                self._download(client, item, path)

    def _take_known(self, source_name: str, item: Item, path: Path) -> bool:
        """Whether the results folder here had it."""
        sweep, _, rest = item.name.partition("/")
        for known in (self._known / sweep / rest, self._known / sweep / SOURCES / source_name / rest):
            if _is_same(known, item):
                try:
                    os.link(known, path)
                except OSError:  # another file system
                    shutil.copy2(known, path)
                return True
        return False

    def _download(self, client: Any, item: Item, path: Path) -> None:
        try:
            answer = client.get_object(Bucket=self.address.bucket, Key=self.address.prefix + item.name)
            with open(path, "xb") as file:
                for block in answer["Body"].iter_chunks(_BLOCK):
                    file.write(block)
        except OSError:
            raise
        except Exception as error:
            path.unlink(missing_ok=True)
            if is_gone(error):
                return
            raise refusal(error) from error
        os.utime(path, times=(item.time, _time_of(answer, item)))

    def _date_folders(self, items: Iterable[Item]) -> None:
        """A run's folder has the time of its newest object: so it is seen whether anything changed."""
        newest: dict[str, float] = {}
        for item in items:
            parts = PurePosixPath(item.name).parts
            if len(parts) > 3 and parts[1] == RUNS:
                run = "/".join(parts[:3])
                newest[run] = max(item.time, newest.get(run, 0.0))
        for run, moment in newest.items():
            with suppress(FileNotFoundError):
                os.utime(self.path / run, times=(moment, moment))


def _time_of(answer: Any, item: Item) -> float:
    """When the file was written where it was made, if whoever put it there said so; in epoch seconds."""
    try:
        said = float(answer["Metadata"]["mtime"])
    except (KeyError, TypeError, ValueError):
        return item.time
    return said if 0 < said <= item.time + 1 else item.time


def _is_same(path: Path, item: Item) -> bool:
    """Whether a file here holds what the object does, by S3's checksum; not known of big ones in parts."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size != item.size:
            return False
        with open(path, "rb") as file:
            return (
                hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
                == item.digest
            )
    except OSError:
        return False


def _is_result(name: str) -> bool:
    return name.endswith(f"/{RESULT}")


def _is_of_tree(name: str) -> bool:
    """Whether an object may become a file of that name in a folder here."""
    try:
        lengths = [len(part.encode()) for part in name.split("/")]
    except UnicodeEncodeError:
        return False
    short = max(lengths) <= _LONGEST_NAME and sum(lengths) + len(lengths) <= _LONGEST_PATH
    sweep, slash, _ = name.partition("/")
    return short and is_plain(name) and bool(slash) and SWEEP_NAME.fullmatch(sweep) is not None


def _unavailable(address: Address, error: StorageError) -> BackendUnavailableError | NotFoundError:
    text = str(error)
    if "NoSuchBucket" in text:
        return NotFoundError(f"{address.text}: there is no such bucket", hint="list yours: aws s3 ls")
    if "cannot be reached" in text:
        return UnreachableError(f"{address.text}: {text}", hint="try again when the connection is back")
    hint = error.hint or f"see whether this works: aws s3 ls {address.text}/"
    return BackendUnavailableError(f"{address.text}: {text}", hint=hint)

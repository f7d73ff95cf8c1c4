"""A bucket's results tree, brought to a folder of this machine, from where a sync goes on as from any.

::

    results/.buckets/<source>/
      etags                  which files here are which objects
      1/  2/ …               a mirror for each process that is at it
        lock                 held by that process
        tree/                laid out like a results tree; gone when all of it is in the results folder
        parts/               objects that are not whole yet
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.core.errors import BackendUnavailableError, NotFoundError, StorageError, UnreachableError
from orchestrator.core.s3 import AT_ONCE, Address, BucketError, connect, refusal
from orchestrator.rundir.atomic import storage_errors
from orchestrator.rundir.copy_origin import SOURCES
from orchestrator.rundir.sweep import SWEEP_NAME
from orchestrator.rundir.synced import BUCKETS, RESULT, RUNS, refuse_links
from orchestrator.sync.bucket_download import Downloads, Patience
from orchestrator.sync.etags import Etags, S3Object
from orchestrator.sync.file_names import is_plain
from orchestrator.sync.free_space import lack_of_room
from orchestrator.sync.request import NoProgress, SyncOptions, SyncProgress
from orchestrator.sync.wanted import WantedFiles, find_wanted, is_index

# Bytes of a path that S3 can name, and of a name in it that file systems can.
_LONGEST_PATH, _LONGEST_NAME = 1024, 255
# So many objects are refused, one after the other, until the rest is not asked for: from the beginning of a
# download, or later for a fault that is the bucket's own.
_HOPELESS = 16
# The time of a file that only stands for an object: none that was fetched has it.
_NEVER_NS = 1_000_000_000


@dataclass(frozen=True)
class MirrorOptions:
    """How a bucket is looked at. ``dry``: objects that are not here are not fetched, only stood for."""

    wish: SyncOptions = field(default_factory=SyncOptions)
    dry: bool = False
    screen: SyncProgress = field(default_factory=NoProgress)


class Mirror:
    """A folder that has what a bucket has, as of the latest :meth:`refresh`, until :meth:`clear`.

    ``known`` is a results folder here: what it has already is not brought again. What came before a cut or a
    kill is there for the next mirror of the same bucket. ``failed``: objects that could not be read, and why.
    ``lack``: that there is no room here for what is new.
    """

    def __init__(self, address: Address, known: Path) -> None:
        self.address, self._known = address, known.absolute()
        self.failed: dict[str, str] = {}
        self.lack: StorageError | None = None
        self._lock: weakref.finalize[..., Mirror] | None = None
        self._base: Path | None = None
        self._dry: Path | None = None

    @property
    def path(self) -> Path:
        """The results tree, once there is one."""
        base = self._dry or self._base
        assert base is not None, "a bucket is looked at before its tree is"
        return base / "tree"

    def refresh(self, source_name: str, look: MirrorOptions) -> list[str]:
        """Have the folder as the bucket is now, all of it or some sweeps; names that no results tree has.

        ``source_name`` is the folder of ``sources`` that has this bucket's copies. Raises
        :class:`NotFoundError`, :class:`StorageError` where there is no room, and
        :class:`UnreachableError` where nobody answers.
        """
        patience = Patience(look.screen.say)
        try:
            client = connect()
            refused, items = self._list(client, look.wish.sweeps, patience)
            self._open(source_name, dry=look.dry)
            record = self._folder(source_name) / "etags"
            etags = Etags(record, trusting=not look.wish.verify, dry=look.dry)
            self._clear(items, look.wish.sweeps)
            downloads = Downloads(client, self.address, self.path.parent / "parts", etags, patience)
            if look.wish.runs:
                self._fetch_indexes(source_name, items, etags, downloads)
            wanted = find_wanted(look.wish, [item.name for item in items], self.path)
            listed = [item for item in items if wanted.is_listed(item.name)]
            missing = self._missing(source_name, listed, etags, wanted)
            self.lack = self._lack_of_room(missing, downloads)
            if self.lack is not None and not look.dry:
                raise self.lack
            if look.dry:
                missing = [item for item in missing if not self._stand_for(item)]
            self._download(missing, downloads, NoProgress() if look.dry else look.screen)
            if not look.dry:
                etags.compact()
        except BucketError as error:
            raise _unavailable(self.address, error) from error
        self._withhold(wanted)
        self._date_folders(items)
        return refused

    def clear(self) -> None:
        """Remove the tree: all of it is where it was to come to."""
        if self._base is None or self._lock is None:
            return
        for name in ("tree", "parts"):
            shutil.rmtree(self._base / name, ignore_errors=True)
        for other in self._base.parent.iterdir():
            if other.is_dir() and not other.is_symlink() and other != self._base:
                _remove_left(other)
        (self._base / "lock").unlink(missing_ok=True)
        with suppress(OSError):
            self._base.rmdir()
        self._lock()
        self._lock = self._base = None

    def _folder(self, source_name: str) -> Path:
        return self._known / BUCKETS / source_name

    def _open(self, source_name: str, *, dry: bool) -> None:
        """Have a folder that no other process has: the first one that is free. Refuses links."""
        folder = self._folder(source_name)
        refuse_links([folder.parent, folder, folder / "etags"], self._known)
        if dry:
            if self._dry is None:
                self._dry = Path(tempfile.mkdtemp(prefix="orchestrate-bucket-"))
                weakref.finalize(self, shutil.rmtree, self._dry, ignore_errors=True)
        elif self._lock is None:
            with storage_errors(self._known):
                for number in count(1):
                    base = folder / str(number)
                    refuse_links([base, base / "lock"], self._known)
                    if (lock := _locked(base)) is not None:
                        self._lock, self._base = weakref.finalize(self, os.close, lock), base
                        break
            refuse_links(base.rglob("*"), self._known)
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def _list(
        self, client: Any, sweeps: Sequence[str], patience: Patience
    ) -> tuple[list[str], list[S3Object]]:
        """Results are seen before all else: of those that are taken, every file is in the list."""
        prefixes = [f"{self.address.prefix}{name}/" for name in sweeps] or [self.address.prefix]

        def listed() -> list[S3Object]:
            return list(self._objects(client, prefixes))

        early = {item.name for item in patience.ask(listed, busy=True) if _is_result(item.name)}
        refused, items = [], []
        for item in patience.ask(listed, busy=True):
            if item.name.endswith("/"):  # what some tools put for a folder
                continue
            if not _is_of_tree(item.name):
                refused.append(item.name)
            elif item.name in early or not _is_result(item.name):
                items.append(item)
        folders = {str(parent) for item in items for parent in PurePosixPath(item.name).parents}
        refused += [item.name for item in items if item.name in folders]
        return refused, [item for item in items if item.name not in folders]

    def _objects(self, client: Any, prefixes: Sequence[str]) -> Iterator[S3Object]:
        lister = client.get_paginator("list_objects_v2")
        try:
            pages = (lister.paginate(Bucket=self.address.bucket, Prefix=prefix) for prefix in prefixes)
            for page in chain.from_iterable(pages):
                for found in page.get("Contents", ()):
                    name = found["Key"].removeprefix(self.address.prefix)
                    digest = found["ETag"].strip('"')
                    yield S3Object(name, found["Size"], digest, found["LastModified"].timestamp())
        except Exception as error:
            raise refusal(error) from error

    def _clear(self, items: Iterable[S3Object], sweeps: Sequence[str]) -> None:
        """Remove what the bucket has no more, of these sweeps."""
        wanted = {f"{self.path}/{item.name}" for item in items}
        for top in (self.path / name for name in sweeps) if sweeps else (self.path,):
            for folder, _, names in os.walk(top):
                for name in names:
                    if f"{folder}/{name}" not in wanted:
                        os.unlink(f"{folder}/{name}")

    def _fetch_indexes(
        self, source_name: str, items: Sequence[S3Object], etags: Etags, downloads: Downloads
    ) -> None:
        """Fetch what says which runs are selected. Raises :class:`BucketError`."""
        indexes = [item for item in items if is_index(item.name)]
        missing = self._missing(source_name, indexes, etags, WantedFiles(SyncOptions()))
        self._download(missing, downloads, NoProgress())
        for name, why in self.failed.items():
            raise BucketError(f"{why} for {name}")

    def _missing(
        self, source_name: str, items: Sequence[S3Object], etags: Etags, wanted: WantedFiles
    ) -> list[S3Object]:
        """Objects that are to be fetched: the others are in the tree afterwards, or stood for there."""

        def is_missing(item: S3Object) -> bool:
            path = self.path / item.name
            if not _only_stands(path) and etags.is_same(path, item):
                return False
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                if self._take_known(source_name, item, path, etags):
                    return False
                comes = wanted.comes(item.name) or (
                    wanted.is_selected(item.name) and self._is_damaged(source_name, item)
                )
                return comes or not self._stand_for(item)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [item for item, missing in zip(items, pool.map(is_missing, items), strict=True) if missing]

    def _take_known(self, source_name: str, item: S3Object, path: Path, etags: Etags) -> bool:
        """Whether the results folder here had it."""
        places = [folder / item.name.partition("/")[2] for folder in self._sweeps(source_name, item)]
        if self._dry:  # beside what came before a cut
            places.append(self._folder(source_name) / "1" / "tree" / item.name)
        for known in places:
            if etags.is_same(known, item):
                self._have(known, item, path)
                return True
        return False

    def _sweeps(self, source_name: str, item: S3Object) -> tuple[Path, Path]:
        """The folders here that may have the item's sweep."""
        sweep = self._known / item.name.partition("/")[0]
        return sweep, sweep / SOURCES / source_name

    def _is_damaged(self, source_name: str, item: S3Object) -> bool:
        """Whether an object that the results folder has not is there as another file of a finished run."""
        _, *inside = item.name.split("/")
        return any(
            folder.joinpath(*inside[:2], RESULT).is_file() and folder.joinpath(*inside).is_file()
            for folder in self._sweeps(source_name, item)
        )

    def _have(self, known: Path, item: S3Object, path: Path) -> None:
        """Have a file of the results folder in the tree."""
        if self._dry and self._stand_for(item, known.stat().st_mtime_ns):
            return
        try:
            os.link(known, path)
        except OSError:  # another file system
            shutil.copy2(known, path)

    def _stand_for(self, item: S3Object, time_ns: int = _NEVER_NS) -> bool:
        """Have an empty file of its size, which needs no room, for an object that is only to be counted.

        ``False`` for one that is read also then.
        """
        if is_index(item.name) or (_is_result(item.name) and time_ns != _NEVER_NS):
            return False
        path = self.path / item.name
        with open(path, "wb") as file:
            file.truncate(item.size)
        os.utime(path, ns=(time_ns, time_ns))
        return True

    def _lack_of_room(self, missing: Sequence[S3Object], downloads: Downloads) -> StorageError | None:
        """The folders are in the tree already, and come a second time; other files become links."""
        size = sum(max(0, item.size - downloads.begun(item)) for item in missing)
        folders = {parent for item in missing for parent in PurePosixPath(item.name).parents}
        files = len(missing) + sum(not (self._known / folder).is_dir() for folder in folders)
        return lack_of_room(self._known, size, files, f"what is new in {self.address.text}")

    def _download(self, missing: Sequence[S3Object], downloads: Downloads, screen: SyncProgress) -> None:
        """Fetch these; an object that cannot be read is no reason to go without the others."""
        self.failed = {}
        if not missing:
            return
        size = sum(item.size - downloads.begun(item) for item in missing)
        screen.expect(self.address.text, len(missing), size)
        fetching = _Fetching(self.path, downloads, screen)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                list(pool.map(fetching.fetch, missing))
            except BaseException as error:  # as an interrupt from the keyboard
                fetching.ends.append(error)
                raise
        self.failed = fetching.failed
        if fetching.ends:
            raise fetching.ends[0]
        if self.failed and not fetching.came and (fetching.is_hopeless or self._is_empty()):
            name, why = next(iter(self.failed.items()))
            raise BucketError(f"{why} for {name}")

    def _is_empty(self) -> bool:
        """Whether no object at all is in the tree."""
        return all(_only_stands(path) for path in self.path.rglob("*") if path.is_file())

    def _withhold(self, wanted: WantedFiles) -> None:
        """Have no result in the tree of a run of which an object could not be read.

        And nothing that could be taken for its newest checkpoint where that did not come.
        """
        for name in self.failed:
            parts = name.split("/")
            if len(parts) > 3 and parts[1] == RUNS:
                (self.path.joinpath(*parts[:3]) / RESULT).unlink(missing_ok=True)
        for name, newest in wanted.outdated.items():
            if not (self.path / newest).is_file() and _only_stands(self.path / name):
                (self.path / name).unlink()

    def _date_folders(self, items: Iterable[S3Object]) -> None:
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


class _Fetching:
    """Objects on their way, several at once. ``ends``: what makes it useless to ask for more."""

    def __init__(self, tree: Path, downloads: Downloads, screen: SyncProgress) -> None:
        self._tree, self._downloads, self._screen = tree, downloads, screen
        self.came: list[str] = []
        self.failed: dict[str, str] = {}
        self.ends: list[BaseException] = []
        self._in_vain = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether so much was refused, and nothing came, that the rest is not asked for."""
        return len(self.failed) >= _HOPELESS and not self.came

    def fetch(self, item: S3Object) -> None:
        if self.ends or self.is_hopeless:
            return
        path = self._tree / item.name
        try:
            with storage_errors(path):
                self._downloads.fetch(item, path)
        except BucketError as error:
            self._in_vain += error.passing
            if error.passing and (not error.of_object or self._in_vain >= _HOPELESS):
                text = f"{error} for {item.name}"
                self.ends.append(BucketError(text, busy=error.busy, passing=error.passing))
            else:
                self.failed[item.name] = str(error)
        except BaseException as error:  # for the thread that waits for all of them
            self.ends.append(error)
        else:
            self.came.append(item.name)
            self._in_vain = 0
            self._screen.came(self._downloads.came)


def _only_stands(path: Path) -> bool:
    """Whether a file is none that was fetched: it only stands for an object."""
    try:
        return path.lstat().st_mtime_ns == _NEVER_NS
    except OSError:
        return False


def _locked(base: Path) -> int | None:
    """The lock of a mirror's folder, which is made: a descriptor; ``None`` if another process has it."""
    base.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(base / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:  # a file system without locks: no other folder has one either
        os.close(descriptor)
        reason = os.strerror(error.errno or 0)
        hint = "name a DEST on a file system that has locks: orchestrate sync SOURCE DEST"
        raise StorageError(f"cannot lock {base}: {reason}", hint=hint) from error
    return descriptor


def _remove_left(base: Path) -> None:
    """Remove a mirror that a kill left behind."""
    if (lock := _locked(base)) is not None:
        shutil.rmtree(base, ignore_errors=True)
        os.close(lock)


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


def _unavailable(address: Address, error: BucketError) -> BackendUnavailableError | NotFoundError:
    text = str(error)
    if "NoSuchBucket" in text:
        return NotFoundError(f"{address.text}: there is no such bucket", hint="list yours: aws s3 ls")
    if error.busy:
        hint = "what came is kept: the same command goes on; wait some minutes, or have fewer use it at once"
        return UnreachableError(f"{address.text}: {text}", hint=hint)
    if error.passing:
        hint = "try again when the connection is back: what came is kept, and the same command goes on"
        return UnreachableError(f"{address.text}: {text}", hint=hint)
    hint = error.hint or f"see whether this works: aws s3 ls {address.text}/"
    return BackendUnavailableError(f"{address.text}: {text}", hint=hint)

"""Mirror a bucket's results tree in a local folder, the source of a sync.

::

    results/.buckets/<source>/
      1/  2/ …               one mirror per active process
        lock                 held by that process
        tree/                laid out like a results tree; removed once it is in the results folder
        parts/               incomplete objects

A file here is taken for an object if it has its size and the time of its upload, if its name holds a digest
of its content, or if it is as the result of its run lists it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.core.errors import (
    BackendUnavailableError,
    DamagedFileError,
    NotFoundError,
    StorageError,
    UnreachableError,
)
from orchestrator.core.machine.free_space import no_space_error
from orchestrator.core.machine.s3 import AT_ONCE, Address, BucketError, connect, refusal
from orchestrator.rundir import RunDir, sha256
from orchestrator.rundir.attempts.attempt import CHECKPOINT
from orchestrator.rundir.copies.synced import (
    BUCKETS,
    RESULT,
    RUNS,
    is_plain,
    is_short,
    plain_size,
    refuse_links,
)
from orchestrator.rundir.copy_origin import SOURCES
from orchestrator.rundir.files.atomic import storage_errors
from orchestrator.rundir.index import SWEEP_NAME
from orchestrator.sync.bucket_download import Downloads, S3Object
from orchestrator.sync.request import SyncOptions, SyncProgress, WantedFiles, find_wanted, is_index

# The most bytes of an S3 key, and of a file name.
_LONGEST_PATH, _LONGEST_NAME = 1024, 255
# The modification time that marks a placeholder.
_NEVER_NS = 1_000_000_000


@dataclass(frozen=True)
class MirrorOptions:
    """What a mirror fetches. ``dry``: create empty placeholders for missing objects instead of downloading
    them.
    """

    wanted: SyncOptions = field(default_factory=SyncOptions)
    dry: bool = False
    screen: SyncProgress = field(default_factory=SyncProgress)


class Mirror:
    """A local copy of a bucket's tree, as of the latest :meth:`refresh`, until :meth:`clear`.

    ``known``: a results folder here; its files are not downloaded again. Objects downloaded before a cut or a
    kill are reused by the next mirror of the bucket. ``failed``: objects that could not be read, and why.
    ``lack``: the error where new objects do not fit on the disk.
    """

    def __init__(self, address: Address, known: Path) -> None:
        self.address, self._known = address, known.absolute()
        self.failed: dict[str, str] = {}
        self.lack: StorageError | None = None
        self._verify = False
        self._lock: weakref.finalize[..., Mirror] | None = None
        self._base: Path | None = None
        self._dry: Path | None = None

    @property
    def path(self) -> Path:
        """The results tree; only after :meth:`refresh`."""
        base = self._dry or self._base
        assert base is not None, "refresh() comes first"
        return base / "tree"

    def refresh(self, source_name: str, options: MirrorOptions) -> list[str]:
        """Update the tree to the bucket's content, or some of its sweeps; return names that no results tree
        has.

        ``source_name``: the folder in ``sources`` with this bucket's copies. Raises :class:`NotFoundError`,
        :class:`StorageError` without disk space, and :class:`UnreachableError` without a connection.
        """
        try:
            client = connect(patient=True)
            refused, items = self._list(client, options.wanted.sweeps)
            self._open(source_name, dry=options.dry)
            self._verify = options.wanted.verify
            self._clear(items, options.wanted.sweeps)
            if options.wanted.runs:
                self._fetch_indexes(client, source_name, items)
            wanted = find_wanted(options.wanted, [item.name for item in items], self.path)
            listed = [item for item in items if wanted.is_listed(item.name)]
            missing = self._missing(source_name, listed, wanted)
            self.lack = self._lack_of_room(missing)
            if self.lack is not None and not options.dry:
                raise self.lack
            if options.dry:
                missing = [item for item in missing if not self._stand_for(item)]
            self._download(client, missing, SyncProgress() if options.dry else options.screen)
        except BucketError as error:
            self._release()  # for the next try, also in this process
            raise _unavailable(self.address, error) from error
        self._withhold(wanted)
        self._date_folders(items)
        return refused

    def clear(self) -> None:
        """Remove the tree, after all of it was copied to the results folder."""
        if self._base is None or self._lock is None:
            return
        for name in ("tree", "parts"):
            shutil.rmtree(self._base / name, ignore_errors=True)
        for other in self._base.parent.iterdir():
            if other.is_dir() and not other.is_symlink() and other != self._base:
                _remove_abandoned(other)
        (self._base / "lock").unlink(missing_ok=True)
        with suppress(OSError):  # another mirror is in use
            self._base.rmdir()
            self._base.parent.rmdir()
            self._base.parent.parent.rmdir()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock()
        self._lock = self._base = None

    def _folder(self, source_name: str) -> Path:
        return self._known / BUCKETS / source_name

    def _open(self, source_name: str, *, dry: bool) -> None:
        """Create or reuse the first folder not locked by another process. Refuses links."""
        folder = self._folder(source_name)
        refuse_links([folder.parent, folder], self._known)
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
            shutil.rmtree(self._parts, ignore_errors=True)
            self._parts.mkdir()

    @property
    def _parts(self) -> Path:
        return self.path.parent / "parts"

    def _list(self, client: Any, sweeps: Sequence[str]) -> tuple[list[str], list[S3Object]]:
        """List results first and files second: every file of a listed result is then in the list."""
        prefixes = [f"{self.address.prefix}{name}/" for name in sweeps] or [self.address.prefix]

        early = {item.name for item in self._objects(client, prefixes) if _is_result(item.name)}
        refused, items = [], []
        for item in list(self._objects(client, prefixes)):
            if item.name.endswith("/"):  # an empty object of some tools for a folder
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
                    yield S3Object(name, found["Size"], found["LastModified"].timestamp(), found["ETag"])
        except Exception as error:
            raise refusal(error) from error

    def _clear(self, items: Iterable[S3Object], sweeps: Sequence[str]) -> None:
        """Remove files of these sweeps that no longer exist in the bucket."""
        wanted = {f"{self.path}/{item.name}" for item in items}
        for top in (self.path / name for name in sweeps) if sweeps else (self.path,):
            for folder, _, names in os.walk(top):
                for name in names:
                    if f"{folder}/{name}" not in wanted:
                        os.unlink(f"{folder}/{name}")

    def _fetch_indexes(self, client: Any, source_name: str, items: Sequence[S3Object]) -> None:
        """Download the sweeps' indexes, needed to select runs. Raises :class:`BucketError`."""
        indexes = [item for item in items if is_index(item.name)]
        missing = self._missing(source_name, indexes, WantedFiles(SyncOptions()))
        self._download(client, missing, SyncProgress())
        for name, why in self.failed.items():
            raise BucketError(f"{why} for {name}")

    def _missing(self, source_name: str, items: Sequence[S3Object], wanted: WantedFiles) -> list[S3Object]:
        """Return the objects to download; the others are in the tree afterwards, as files or placeholders."""

        def is_missing(item: S3Object) -> bool:
            path = self.path / item.name
            if _is_as_uploaded(path, item):
                return False
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                if self._take_known(source_name, item, path):
                    return False
                comes = wanted.comes(item.name) or (
                    wanted.is_selected(item.name) and self._is_damaged(source_name, item)
                )
                return comes or not self._stand_for(item)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [item for item, missing in zip(items, pool.map(is_missing, items), strict=True) if missing]

    def _take_known(self, source_name: str, item: S3Object, path: Path) -> bool:
        """Take the file from the results folder here; return whether it has it."""
        for sweep in self._sweeps(source_name, item):
            known = sweep / item.name.partition("/")[2]
            as_uploaded = not self._verify and (_is_as_uploaded(known, item) or _is_checkpoint(known, item))
            if as_uploaded or _is_as_listed(sweep, known, item):
                self._have(known, item, path)
                if not as_uploaded and not self._dry:
                    os.utime(path, times=(item.time, item.time))  # of the known file, too, where it is linked
                return True
        if self._dry:  # in the tree of an interrupted sync
            known = self._folder(source_name) / "1" / "tree" / item.name
            return _is_as_uploaded(known, item) and self._stand_for(item, known.stat().st_mtime_ns)
        return False

    def _sweeps(self, source_name: str, item: S3Object) -> tuple[Path, Path]:
        """Return the folders here that may hold the item's sweep."""
        sweep = self._known / item.name.partition("/")[0]
        return sweep, sweep / SOURCES / source_name

    def _is_damaged(self, source_name: str, item: S3Object) -> bool:
        """Return whether the results folder has other content for this object, in a finished run."""
        _, *inside = item.name.split("/")
        return any(
            folder.joinpath(*inside[:2], RESULT).is_file() and folder.joinpath(*inside).is_file()
            for folder in self._sweeps(source_name, item)
        )

    def _have(self, known: Path, item: S3Object, path: Path) -> None:
        """Link or copy a file of the results folder into the tree."""
        if self._dry and self._stand_for(item, known.stat().st_mtime_ns):
            return
        try:
            os.link(known, path)
        except OSError:  # another file system
            shutil.copy2(known, path)

    def _stand_for(self, item: S3Object, time_ns: int = _NEVER_NS) -> bool:
        """Create an empty file of the object's size, which takes no disk space, for objects only counted.

        ``False`` for an object that must be read even then.
        """
        if is_index(item.name):
            return False
        path = self.path / item.name
        with open(path, "wb") as file:
            file.truncate(item.size)
        os.utime(path, ns=(time_ns, time_ns))
        return True

    def _lack_of_room(self, missing: Sequence[S3Object]) -> StorageError | None:
        """Return the error if new objects do not fit. New folders count twice: in the tree and in the results
        folder.
        """
        folders = {parent for item in missing for parent in PurePosixPath(item.name).parents}
        files = len(missing) + sum(not (self._known / folder).is_dir() for folder in folders)
        size = sum(item.size for item in missing)
        return no_space_error(self._known, size, files, f"what is new in {self.address.text}")

    def _download(self, client: Any, missing: Sequence[S3Object], screen: SyncProgress) -> None:
        """Download these objects; one that cannot be read does not stop the others."""
        self.failed = {}
        if not missing:
            return
        screen.expect(self.address.text, len(missing), sum(item.size for item in missing))
        from boto3.s3.transfer import TransferConfig, create_transfer_manager

        config = TransferConfig(max_concurrency=AT_ONCE)
        with create_transfer_manager(client, config) as manager, ThreadPoolExecutor(AT_ONCE) as pool:
            fetching = Downloads(manager, self.address, self.path, self._parts, screen)
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
        """Return whether the tree has placeholders only."""
        return all(_is_placeholder(path) for path in self.path.rglob("*") if path.is_file())

    def _withhold(self, wanted: WantedFiles) -> None:
        """Remove results of runs with an unreadable object.

        Remove placeholders of older checkpoints, too, where the newest was not downloaded.
        """
        for name in self.failed:
            parts = name.split("/")
            if len(parts) > 3 and parts[1] == RUNS:
                (self.path.joinpath(*parts[:3]) / RESULT).unlink(missing_ok=True)
        for name, newest in wanted.outdated.items():
            if not (self.path / newest).is_file() and _is_placeholder(self.path / name):
                (self.path / name).unlink()

    def _date_folders(self, items: Iterable[S3Object]) -> None:
        """Give each run's folder the time of its newest object, so that a change shows in a listing."""
        newest: dict[str, float] = {}
        for item in items:
            parts = PurePosixPath(item.name).parts
            if len(parts) > 3 and parts[1] == RUNS:
                run = "/".join(parts[:3])
                newest[run] = max(item.time, newest.get(run, 0.0))
        for run, moment in newest.items():
            with suppress(FileNotFoundError):
                os.utime(self.path / run, times=(moment, moment))


def _is_as_uploaded(path: Path, item: S3Object) -> bool:
    """Return whether a file has an object's size and time: a download gives it both."""
    try:
        found = path.lstat()
    except OSError:
        return False
    same_time = int(found.st_mtime) == int(item.time)
    return stat.S_ISREG(found.st_mode) and found.st_size == item.size and same_time


def _is_checkpoint(path: Path, item: S3Object) -> bool:
    """Return whether a file is a checkpoint of an object's size: its name holds a digest of its content."""
    try:
        found = path.lstat()
    except OSError:
        return False
    named = CHECKPOINT.fullmatch(path.name) is not None
    return named and stat.S_ISREG(found.st_mode) and found.st_size == item.size


def _is_as_listed(sweep: Path, path: Path, item: S3Object) -> bool:
    """Return whether a file is as its run's result here lists it, by size and SHA-256."""
    _, top, run_id, *inside = [*item.name.split("/"), "", ""]
    relative = "/".join(inside).rstrip("/")
    if top != RUNS or plain_size(sweep, path.relative_to(sweep).as_posix()) != item.size:
        return False
    try:
        manifest = RunDir(sweep / RUNS / run_id).manifest()
    except DamagedFileError:
        return False
    listed = {(one.path, one.bytes): one.sha256 for one in manifest}
    return sha256(path) == listed.get((relative, item.size))


def _is_placeholder(path: Path) -> bool:
    """Return whether a file is a placeholder."""
    try:
        return path.lstat().st_mtime_ns == _NEVER_NS
    except OSError:
        return False


def _locked(base: Path) -> int | None:
    """Create a mirror's folder and lock it; return the descriptor, ``None`` if another process holds the
    lock.
    """
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


def _remove_abandoned(base: Path) -> None:
    """Remove a mirror that a killed process left behind."""
    if (lock := _locked(base)) is not None:
        shutil.rmtree(base, ignore_errors=True)
        os.close(lock)


def _is_result(name: str) -> bool:
    return name.endswith(f"/{RESULT}")


def _is_of_tree(name: str) -> bool:
    """Return whether an object may become a file of that name in a folder here."""
    short = is_short(name, _LONGEST_NAME, _LONGEST_PATH)
    sweep, slash, _ = name.partition("/")
    return short and is_plain(name) and bool(slash) and SWEEP_NAME.fullmatch(sweep) is not None


def _unavailable(address: Address, error: BucketError) -> BackendUnavailableError | NotFoundError:
    text = str(error)
    if "NoSuchBucket" in text:
        return NotFoundError(f"{address.text}: there is no such bucket", hint="list yours: aws s3 ls")
    if error.passing:
        wait = "wait some minutes, or let fewer processes use it"
        hint = wait if error.busy else "try again when the connection is back"
        return UnreachableError(
            f"{address.text}: {text}", hint=f"{hint}: the same command continues from here"
        )
    hint = error.hint or f"check access with: aws s3 ls {address.text}/"
    return BackendUnavailableError(f"{address.text}: {text}", hint=hint)

"""Read W&B's offline logs of a run's attempts and write them as one.

They may come from an untrusted machine. So only the run itself is taken over, value by value: its name, tags
and configuration, its history, and the media beside it. Other records — files to send from elsewhere,
artifacts, alerts, another run's id — are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from orchestrator.core.errors import DamagedFileError

_LOG = re.compile(r"(?P<run>offline-run-[\w.-]{1,200})/run-[\w.-]{1,200}\.wandb", re.ASCII)
_PART = r"[^/.\x00-\x1f\x7f][^/\x00-\x1f\x7f]{0,200}"
_MEDIA = re.compile(rf"offline-run-[\w.-]{{1,200}}/files/(?P<file>media(/{_PART}){{1,8}})")
_TAKEN_OVER = ("entity", "project", "display_name", "notes", "job_type", "run_group", "host")


@dataclass
class OfflineLog:
    """One log. ``run``: the record with the run's name and configuration; ``steps``: its history by step."""

    run: Any = None
    settled: list[Any] = field(default_factory=list)  # changes of the configuration, definitions of metrics
    steps: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Joined:
    """A run joined from the logs of all its attempts. ``files``: the folder of its media."""

    run: Any
    settled: list[Any]
    steps: list[Any]
    files: Path


def join(
    pieces: Sequence[tuple[Path, int | None]], folder: Path, own: Mapping[str, str], finished: bool
) -> Joined:
    """Join ``pieces`` into one run: the attempts' logs, oldest first, each with the last step that counts.

    A step comes from the newest attempt that has it. ``own`` are properties not taken from the logs:
    ``run_id`` and the destination. Media go to ``folder``. Raises :class:`DamagedFileError`; the log of a run
    that is not ``finished`` may be cut off.
    """
    run: Any = None
    settled: list[Any] = []
    steps: dict[int, Any] = {}
    for number, (source, until) in reversed(list(enumerate(pieces))):
        log = OfflineLog()
        for path in take_over(source, folder / f"{number}", folder / "files"):
            _read(path, source, log, whole=finished)
        if run is None and log.run is not None:
            run, settled = log.run, log.settled
        steps = {step: item for step, item in log.steps.items() if until is None or step <= until} | steps
    if run is None:
        raise DamagedFileError(pieces[-1][0], "holds no W&B run")
    return Joined(_named(run, own), settled, [steps[step] for step in sorted(steps)], folder / "files")


def write(joined: Joined, path: Path, finished: bool, after: int = -1) -> None:
    """Write the run's steps ``after`` this one as an offline log of W&B's client."""
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_write(str(path))
    for number, record in enumerate(_records(joined, finished, after), start=1):
        record.num = number
        store.write(record)
    store.close()


def take_over(source: Path, logs: Path, files: Path) -> list[Path]:
    """Copy an attempt's logs to ``logs`` and its media to ``files``; return the logs.

    Media of a later attempt stay. ``source`` is an archive or a folder. Only plain files are read, and no
    links are followed.
    """
    found = []
    for name, file in _members(source):
        with file:
            if log := _LOG.fullmatch(name):
                target = logs / f"{log['run']}.wandb"
                found.append(target)
            elif media := _MEDIA.fullmatch(name):
                target = files / media["file"]
            else:
                continue
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as copy:
                    shutil.copyfileobj(file, copy)
    return sorted(set(found))


def _members(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the plain files below W&B's folder, with their names relative to it."""
    if source.is_dir():
        for folder, _, names in os.walk(source):
            for path in (Path(folder, name) for name in names):
                if stat.S_ISREG(path.lstat().st_mode):
                    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                    yield path.relative_to(source).as_posix(), os.fdopen(descriptor, "rb")
        return
    try:
        with tarfile.open(source, "r:") as archive:
            for member in archive:
                if member.isreg() and not member.issparse() and member.name.startswith("wandb/"):
                    file = archive.extractfile(member)
                    assert file is not None
                    yield member.name.removeprefix("wandb/"), file
    except (tarfile.TarError, EOFError) as error:
        raise DamagedFileError(source, f"is not an archive ({error})") from error


def _read(path: Path, source: Path, log: OfflineLog, *, whole: bool) -> None:
    """Add the records of one log file. Unless it must be ``whole``, it may end anywhere."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    try:
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            _add(log, record)
    except Exception as error:  # of the reader, of the parser, or an assert: all mean damage
        at_end = store._fp is not None and not store._fp.read(1)
        if whole or not at_end:
            raise DamagedFileError(source, f"holds a damaged log of W&B ({error or 'unreadable'})") from error
    finally:
        if store._fp is not None:
            store._fp.close()  # it has no method that closes what it scans


def _add(log: OfflineLog, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        log.run = record.run
    elif kind in ("config", "metric"):
        log.settled.append(_bare(record, kind))
    elif kind == "history":
        log.steps[record.history.step.num] = _bare(record, kind)


def _bare(record: Any, kind: str) -> Any:
    """Return the record without instructions of the machine that wrote it."""
    return type(record)(**{kind: getattr(record, kind)})


def _named(run: Any, own: Mapping[str, str]) -> Any:
    """Return the run's record with only the values that a person reads."""
    from wandb.proto import wandb_internal_pb2

    named = wandb_internal_pb2.RunRecord(tags=run.tags)
    for name in _TAKEN_OVER:
        setattr(named, name, getattr(run, name))
    named.config.CopyFrom(run.config)
    named.start_time.CopyFrom(run.start_time)
    for name, value in own.items():
        setattr(named, name, value)
    return named


def _records(joined: Joined, finished: bool, after: int) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2 as proto

    # Without a slot for an answer, W&B's client waits for ever for the creation of the run.
    yield proto.Record(run=joined.run, control=proto.Control(mailbox_slot="run"))
    yield from joined.settled
    yield from (record for record in joined.steps if record.history.step.num > after)
    yield proto.Record(summary=proto.SummaryRecord(update=_latest(joined.steps)))
    media = sorted(file for file in joined.files.rglob("*") if file.is_file())
    names = [file.relative_to(joined.files).as_posix() for file in media]
    yield proto.Record(files=proto.FilesRecord(files=[proto.FilesItem(path=name) for name in names]))
    yield proto.Record(exit=proto.RunExitRecord(exit_code=0 if finished else 1))


def _latest(steps: Iterable[Any]) -> list[Any]:
    """Return the last value of each metric."""
    from wandb.proto import wandb_internal_pb2 as proto

    latest: dict[str, list[Any]] = {}
    for record in steps:
        values: dict[str, list[Any]] = {}
        for item in record.history.item:
            values.setdefault(item.key or "/".join(item.nested_key[:1]), []).append(item)
        latest |= values
    return [
        proto.SummaryItem(key=item.key, nested_key=item.nested_key, value_json=item.value_json)
        for items in latest.values()
        for item in items
    ]

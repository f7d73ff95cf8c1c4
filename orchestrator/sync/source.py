"""Sources of results: a results tree here, behind ssh, or in a bucket."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.backends import is_rented
from orchestrator.config.locations import LOCAL, parse_place, tree_there
from orchestrator.core.errors import HostError, NotFoundError, OrchestrateError
from orchestrator.core.machine.s3 import is_bucket, parse_bucket
from orchestrator.core.machine.ssh import Host
from orchestrator.core.types import CommandAnswer
from orchestrator.rundir.files.atomic import storage_errors
from orchestrator.sync.bucket_mirror import Mirror, MirrorOptions
from orchestrator.sync.request import SyncOptions

_ALL = MirrorOptions()
# Seconds to wait: programs for many files are slow on a busy file system.
_PATIENCE_S = 600.0
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Source:
    """A results tree. ``path``: its absolute path on ``host``, or here without one.

    A bucket's tree is in its ``mirror``, a folder here, after :meth:`connect`.
    """

    path: str
    host: Host | None = None
    mirror: Mirror | None = None

    @property
    def root(self) -> str:
        """The path of the tree for programs."""
        return self.path if self.mirror is None else str(self.mirror.path)

    @property
    def text(self) -> str:
        """The source as a user writes it; always the same text for the same tree and access."""
        if self.mirror is not None:
            return self.mirror.address.text
        return f"{self.host.name}:{self.root}" if self.host else self.root

    @property
    def name(self) -> str:
        """A unique folder name for the source."""
        if self.mirror is not None:
            words = self.mirror.address.bucket
        else:
            words = self.host.name if self.host else Path(self.root).parent.name
        digest = hashlib.sha256(self.text.encode(errors="surrogateescape")).hexdigest()[:8]
        return f"{_NOT_IN_NAMES.sub('-', words).strip('.-_')[:60] or 'source'}-{digest}"

    def connect(self, options: MirrorOptions = _ALL) -> list[str]:
        """Connect to the source; fetch new objects of a bucket. Return names that no results tree has."""
        if self.mirror is not None:
            return self.mirror.refresh(self.name, options)
        if self.host is not None:
            self.host.connect()
        return []

    def run(self, argv: Sequence[str], names: Iterable[str]) -> CommandAnswer:
        """Run a program at the source; its input are file names, each followed by a zero byte."""
        given = zero_terminated(names)
        if self.host is not None:
            return self.host.run(argv, given, patience=_PATIENCE_S)
        done = subprocess.run(argv, input=given, capture_output=True, check=False)
        output, errors = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        return CommandAnswer(done.returncode, output, errors)

    def leave(self) -> None:
        """Remove a bucket's mirror."""
        if self.mirror is not None:
            self.mirror.clear()


def find_source(text: str, known: Path | None = None) -> Source:
    """Find the tree that a user named; contacts its machine for the path.

    ``known``: a results folder here; its files are not fetched again from a bucket. Raises
    :class:`OrchestrateError`, and the errors of :class:`Host`.
    """
    if is_bucket(text):
        return Source("", mirror=Mirror(parse_bucket(text), known or Path("results")))
    if _is_path(text):
        path = Path(text).expanduser()
        if not path.is_dir():
            raise NotFoundError(
                f"{text}: no such folder on this machine",
                hint="a folder of another machine is written user@host:path",
            )
        return Source(str(path.resolve()))
    place = parse_place(text)
    if place.profile is not None and is_rented(place.profile.backend):
        if place.profile.store is not None:
            return find_source(place.profile.store, known)
        raise OrchestrateError(
            f"{text}: results of its instances are fetched into their sweep automatically",
            hint="fetch them now with: orchestrate status SWEEP; from one instance: sync-results INSTANCE",
        )
    if place.host is None:
        raise OrchestrateError(
            f"{text} is this machine: its results are here already",
            hint="name a machine behind ssh, a profile with ssh: HOST, or a folder",
        )
    host = Host(place.host)
    try:
        return Source(tree_there(host, place), host)
    except HostError as error:
        if Path(text).is_dir():
            error.hint = f"the folder of this machine is written ./{text}"
        raise


def zero_terminated(names: Iterable[str]) -> bytes:
    """Return file names for a program, each followed by a zero byte."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def store_source(store: str, known: Path, sweep: str) -> Source:
    """Return the tree in a profile's ``store``, ready to read.

    Of a bucket, the new objects of ``sweep`` are fetched, compared with the results folder ``known``. Other
    stores are not contacted. Raises :class:`OrchestrateError`.
    """
    if is_bucket(store):
        source = find_source(store, known)
        source.connect(MirrorOptions(SyncOptions(sweeps=(sweep,))))
        return source
    host, colon, folder = store.partition(":")
    return Source(folder.removeprefix("~/"), Host(host)) if colon else Source(store)


def _is_path(text: str) -> bool:
    """Return whether a text is a path of this machine: a slash before any colon, and no profile's file."""
    if text.endswith((".yaml", ".yml")) or text == LOCAL:
        return False
    return text in (".", "..") or text.startswith("~/") or "/" in text.partition(":")[0]


def refuse_own(source: Source, results: Path) -> None:
    """Raise if the source and the results folder are the same or nested, however they are reached.

    A machine behind ssh may be this one, or share its disk: a file created here is looked for there.
    """
    here = results.absolute()
    if source.mirror is not None:
        return
    if source.host is None:
        one, other = Path(source.root).resolve(), here.resolve()
        if one == other or one in other.parents or other in one.parents:
            raise _own(source, here)
        return
    if not here.is_dir():
        return
    with storage_errors(here), _mark(here) as mark:
        there = f"{source.root.rstrip('/')}/{Path(mark.name).name}"
        if source.host.run(["test", "-e", there]).code == 0:
            raise _own(source, here)


def _mark(here: Path) -> AbstractContextManager[Any]:
    """Create a file with a new name that goes when it is closed; remove those of killed processes."""
    prefix = f".orchestrate-{socket.gethostname()}-"
    for path in here.glob(f"{prefix}*"):
        pid = path.name.removeprefix(prefix).partition("-")[0]
        if not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)
    return tempfile.NamedTemporaryFile(prefix=f"{prefix}{os.getpid()}-", dir=here)


def _own(source: Source, here: Path) -> OrchestrateError:
    return OrchestrateError(
        f"{source.text} and {here} are the same folder, or one is in the other: nothing to fetch",
        hint="name another folder for results: sync-results SOURCE DEST; "
        "to upload results that are here: orchestrate sync --wandb (of one sweep: --sweep NAME)",
    )

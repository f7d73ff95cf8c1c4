"""Where results come from: a results tree here, on a machine behind ssh, or in a bucket."""

from __future__ import annotations

import hashlib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.backends import is_rented
from orchestrator.config.locations import LOCAL, parse_place, tree_there
from orchestrator.core.errors import HostError, NotFoundError, OrchestrateError
from orchestrator.core.s3 import is_bucket, parse_bucket
from orchestrator.core.ssh import Host
from orchestrator.rundir.atomic import storage_errors
from orchestrator.sync.bucket_mirror import Mirror, MirrorOptions
from orchestrator.sync.request import SyncOptions

_ALL = MirrorOptions()
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Source:
    """A results tree. ``path`` is its absolute path on ``host``, or here where that is None.

    A bucket's is in ``mirror``, a folder here, once :meth:`connect` has brought it.
    """

    path: str
    host: Host | None = None
    mirror: Mirror | None = None

    @property
    def root(self) -> str:
        """The path of the tree, as programs are given it."""
        return self.path if self.mirror is None else str(self.mirror.path)

    @property
    def text(self) -> str:
        """As people write it; the same tree by the same way is always the same text."""
        if self.mirror is not None:
            return self.mirror.address.text
        return f"{self.host.name}:{self.root}" if self.host else self.root

    @property
    def name(self) -> str:
        """A folder's name for it, that no other source has."""
        if self.mirror is not None:
            words = self.mirror.address.bucket
        else:
            words = self.host.name if self.host else Path(self.root).parent.name
        digest = hashlib.sha256(self.text.encode(errors="surrogateescape")).hexdigest()[:8]
        return f"{_NOT_IN_NAMES.sub('-', words).strip('.-_')[:60] or 'source'}-{digest}"

    def connect(self, look: MirrorOptions = _ALL) -> list[str]:
        """Make sure of the way there; of a bucket, bring what is new of what is looked for.

        Names there that no tree has.
        """
        if self.mirror is not None:
            return self.mirror.refresh(self.name, look)
        if self.host is not None:
            self.host.connect()
        return []

    def leave(self) -> None:
        """Keep nothing of a bucket but what came to the results folder."""
        if self.mirror is not None:
            self.mirror.clear()


def find_source(text: str, known: Path | None = None) -> Source:
    """The tree that a person means; asks its machine where it is.

    ``known`` is a results folder here; what it has of a bucket is not brought again. Raises
    :class:`OrchestrateError`, and what :class:`Host` raises.
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
            f"{text}: what its instances make comes to the sweep that they work for, by itself",
            hint="any look brings it: orchestrate status SWEEP; of one instance: sync-results INSTANCE",
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


def store_source(store: str, known: Path, sweep: str) -> Source:
    """The tree that a profile's ``store`` keeps, ready to be read.

    Of a bucket's ``sweep``, what the results folder ``known`` has not is brought. Asks nobody else whether
    there is one. Raises :class:`OrchestrateError`.
    """
    if is_bucket(store):
        source = find_source(store, known)
        source.connect(MirrorOptions(SyncOptions(sweeps=(sweep,))))
        return source
    host, colon, folder = store.partition(":")
    return Source(folder.removeprefix("~/"), Host(host)) if colon else Source(store)


def _is_path(text: str) -> bool:
    """Whether a text is a path of this machine: a slash before any colon, and not a profile's file."""
    if text.endswith((".yaml", ".yml")) or text == LOCAL:
        return False
    return text in (".", "..") or text.startswith("~/") or "/" in text.partition(":")[0]


def refuse_own(source: Source, results: Path) -> None:
    """Raise if the source is where results are to come to, or one is in the other, by whatever way.

    A machine behind ssh may be this one, or have the same disk: a file that is made here is looked for there.
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
    with storage_errors(here), tempfile.NamedTemporaryFile(prefix=".orchestrate-", dir=here) as mark:
        there = f"{source.root.rstrip('/')}/{Path(mark.name).name}"
        if source.host.run(["test", "-e", there]).code == 0:
            raise _own(source, here)


def _own(source: Source, here: Path) -> OrchestrateError:
    return OrchestrateError(
        f"{source.text} and {here} are the same folder, or one is in the other: nothing is to be brought",
        hint="name another folder to bring results to: sync-results SOURCE DEST; "
        "to upload what is here already: orchestrate sync --wandb (of one sweep: --sweep NAME)",
    )

"""Copies of a sweep from other trees: their folders and origins.

::

    results/<sweep>/             a sweep of this tree's own, or the copy from the first source
      .synced/copy.json          only in a copy: its origin
      sources/<source>/          the copy from a further source, laid out like a sweep

A file from a source stays in the folder of that source. Readers choose among the versions of a run:
``versions.py``.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import parse, plain
from orchestrator.rundir.attempts.attempt import listdir
from orchestrator.rundir.files.atomic import dump_json, read_json, storage_errors, write_atomic
from orchestrator.rundir.index import SWEEP_NAME

SYNCED, SOURCES = ".synced", "sources"
_MARK = "copy.json"


@dataclass(frozen=True)
class Copy:
    """The origin of a copied sweep: ``source`` as users write it, ``name`` as in paths.

    ``since``: the begin of the first sync; ``time``: the last complete one, None before the first. In epoch
    seconds by this machine's clock.
    """

    source: str
    name: str
    since: float
    time: float | None = None


def read_copy(folder: Path) -> Copy | None:
    """Read the origin of a copied sweep; None for an own one. Raises :class:`DamagedFileError`."""
    path = folder / SYNCED / _MARK
    try:
        return parse(Copy, read_json(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (DamagedFileError, ValueError) as error:
        why = str(error).removeprefix(f"{path}: ")
        hint = f"move {folder} elsewhere, then sync again"
        raise DamagedFileError(path, f"is not the mark of a copy ({why})", hint=hint) from error


def write_copy(folder: Path, copy: Copy) -> None:
    """Record the origin of a copied sweep."""
    path = folder / SYNCED / _MARK
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, dump_json(plain(copy)))


def source_folders(sweep: Path) -> list[Path]:
    """Return the folders in ``sources``: each is a copy once it has its mark. A link leads elsewhere."""
    folder = sweep / SOURCES
    names = [] if folder.is_symlink() else sorted(filter(SWEEP_NAME.fullmatch, listdir(folder)))
    return [folder / name for name in names if (folder / name).is_dir() and not (folder / name).is_symlink()]


def fetch_command(run_folder: Path) -> str | None:
    """Return the command that fetches a copied run's files again; None for a run of this tree's own."""
    run_folder = run_folder.absolute()
    sweep = run_folder.parent.parent
    try:
        copy = read_copy(sweep)
    except DamagedFileError:
        return None
    if copy is None:
        return None
    sweep = main_folder(sweep)
    dest = [] if sweep.parent == Path("results").absolute() else [str(sweep.parent)]
    what = ["--sweep", sweep.name, "--run", run_folder.name, "--verify"]
    return shlex.join(["orchestrate", "sync", copy.source, *dest, *what])


def main_folder(sweep: Path) -> Path:
    """Return the sweep's folder in the results folder, from that of any of its copies."""
    return sweep.parent.parent if sweep.parent.name == SOURCES else sweep

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
from orchestrator.rundir.atomic import read_json
from orchestrator.rundir.attempt import listdir

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
        data = read_json(path)
        return Copy(str(data["source"]), str(data["name"]), float(data["since"]), data["time"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(path, f"is not the mark of a copy ({error!r})") from error


def further_folders(sweep: Path) -> list[tuple[Path, Copy]]:
    """Return the copies in ``sources``, in the order of their first sync."""
    folders = (sweep / SOURCES / name for name in listdir(sweep / SOURCES))
    found = [(folder, copy) for folder in folders if (copy := read_copy(folder)) is not None]
    return sorted(found, key=lambda one: (one[1].since, one[0]))


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

"""Read the mark of a sweep's copy, and build the command that fetches one of its runs again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir.atomic import read_json
from orchestrator.rundir.foreign_marks import origin_of

SYNCED, SOURCES = ".synced", "sources"


@dataclass(frozen=True)
class Copy:
    """The origin of a copied sweep: ``source`` as users write it, ``name`` as in paths.

    ``time``: the last complete sync, in epoch seconds by this machine's clock; None before the first.
    """

    source: str
    name: str
    time: float | None = None


def read_copy(folder: Path) -> Copy | None:
    """Read the origin of a copied sweep; None for an own one. Raises :class:`DamagedFileError`."""
    path = folder / SYNCED / "copy.json"
    try:
        data = read_json(path)
        return Copy(str(data["source"]), str(data["name"]), data["time"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (KeyError, TypeError) as error:
        raise DamagedFileError(path, f"is not the mark of a copy ({error!r})") from error


def fetch_command(run_folder: Path) -> str | None:
    """Return the command that fetches a copied run's files again; None for a run of this tree's own.

    In a copy every run comes from its source, or from the further source in its origin mark.
    """
    run_folder = run_folder.absolute()
    sweep = run_folder.parent.parent
    try:
        origin, copy = origin_of(run_folder), read_copy(sweep)
    except DamagedFileError:
        return None
    source = origin.source if origin else copy.source if copy else None
    if source is None:
        return None
    if sweep.parent.name == SOURCES:
        sweep = sweep.parent.parent
    dest = [] if sweep.parent == Path("results").absolute() else [str(sweep.parent)]
    what = ["--sweep", sweep.name, "--run", run_folder.name, "--verify"]
    return shlex.join(["orchestrate", "sync", source, *dest, *what])

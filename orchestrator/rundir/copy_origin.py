"""Of what a sweep's folder is a copy, and the command that brings a run of it again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir.atomic import read_json
from orchestrator.rundir.delegation import origin_of

SYNCED, SOURCES = ".synced", "sources"


@dataclass(frozen=True)
class Copy:
    """``source`` as people write it, ``name`` as folders have it, ``time`` of the last whole look at it.

    ``time`` is in epoch seconds, by this machine's clock; ``None`` before the first look was complete.
    """

    source: str
    name: str
    time: float | None = None


def read_copy(folder: Path) -> Copy | None:
    """Of what the sweep in this folder is a copy; ``None`` if it is none."""
    try:
        data = read_json(folder / SYNCED / "copy.json")
        return Copy(str(data["source"]), str(data["name"]), data["time"])
    except (FileNotFoundError, NotADirectoryError):
        return None


def bring_again(run_folder: Path) -> str | None:
    """The command that fetches the files of a run that came from elsewhere; ``None`` for one of this tree's.

    In a copy every run came from its source, or from the further source that its mark names.
    """
    run_folder = run_folder.absolute()
    sweep = run_folder.parent.parent
    try:
        origin, copy = origin_of(run_folder), read_copy(sweep)
    except (DamagedFileError, KeyError, TypeError):
        return None
    source = origin.source if origin else copy.source if copy else None
    if source is None:
        return None
    if sweep.parent.name == SOURCES:
        sweep = sweep.parent.parent
    dest = [] if sweep.parent == Path("results").absolute() else [str(sweep.parent)]
    words = [
        "orchestrate",
        "sync",
        source,
        *dest,
        "--sweep",
        sweep.name,
        "--run",
        run_folder.name,
        "--verify",
    ]
    return shlex.join(words)

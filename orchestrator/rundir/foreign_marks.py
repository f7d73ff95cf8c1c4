"""Hidden marks in the folder of a run that is shared with another tree.

The absence mark lists files of a finished run that lie elsewhere (left at the source, or moved), so that its
result counts as complete without them. The origin mark lists attempts from another tree: processes in their
claims are not this machine's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir.atomic import dump_json, read_json, write_atomic

MARK, ORIGIN = ".absent.json", ".origin.json"


@dataclass(frozen=True)
class AbsentFiles:
    """Manifest files, relative to the run's folder, that lie at ``where`` (text for users)."""

    where: str = ""
    files: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Origin:
    """Attempts up to number ``attempts`` came from ``source``, as users write it."""

    source: str
    attempts: int


def read_absent(run_folder: Path) -> AbsentFiles:
    """Read the absence mark; empty if the run has none. Raises :class:`DamagedFileError`."""
    path = run_folder / MARK
    try:
        data = read_json(path)
        return AbsentFiles(str(data["where"]), frozenset(map(str, data["files"])))
    except FileNotFoundError:
        return AbsentFiles()
    except (KeyError, TypeError) as error:
        raise DamagedFileError(path, f"is not a list of absent files ({error!r})") from error


def mark_absent(run_folder: Path, where: str, files: Iterable[str]) -> None:
    """Record the files that lie elsewhere; without any, remove the mark."""
    path = run_folder / MARK
    if names := sorted(files):
        write_atomic(path, dump_json({"where": where, "files": names}), durable=False)
    else:
        path.unlink(missing_ok=True)


def mark_origin(run_folder: Path, source: str, attempts: int) -> None:
    """Record that attempts up to that number came from ``source``."""
    data = dump_json({"source": source, "attempts": attempts})
    write_atomic(run_folder / ORIGIN, data, durable=False)


def origin_of(run_folder: Path) -> Origin | None:
    """Read the origin mark; None if the run has none. Raises :class:`DamagedFileError`."""
    path = run_folder / ORIGIN
    try:
        data = read_json(path)
        return Origin(str(data["source"]), int(data["attempts"]))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(path, f"is not an origin mark ({error!r})") from error


def forget_origin(run_folder: Path) -> None:
    """Remove the origin mark after a failed transfer."""
    (run_folder / ORIGIN).unlink(missing_ok=True)


def foreign_attempts(run_folder: Path) -> int:
    """Return the newest attempt from another tree; 0 if there is none. Raises :class:`DamagedFileError`."""
    origin = origin_of(run_folder)
    return origin.attempts if origin else 0

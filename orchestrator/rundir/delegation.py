"""Hidden marks in the folder of a run that has to do with another tree.

One names files of a finished run that lie elsewhere, left at the source or moved away from it, so that its
result counts as whole without them. The other says that attempts came from elsewhere: what their claims tell
of processes is not about this machine's.
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
    """``files`` of the manifest, relative to the run's folder, that are at ``where``, for people to read."""

    where: str = ""
    files: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Origin:
    """Attempts up to the number ``attempts`` came from ``source``, as people write it."""

    source: str
    attempts: int


def read_absent(run_folder: Path) -> AbsentFiles:
    """What the mark says; nothing is absent where there is none. Raises :class:`DamagedFileError`."""
    path = run_folder / MARK
    try:
        data = read_json(path)
        return AbsentFiles(str(data["where"]), frozenset(map(str, data["files"])))
    except FileNotFoundError:
        return AbsentFiles()
    except (KeyError, TypeError) as error:
        raise DamagedFileError(path, f"does not say which files are elsewhere ({error!r})") from error


def mark_absent(run_folder: Path, where: str, files: Iterable[str]) -> None:
    """Name the files that are elsewhere from now on; without any, the mark goes."""
    path = run_folder / MARK
    if names := sorted(files):
        write_atomic(path, dump_json({"where": where, "files": names}), durable=False)
    else:
        path.unlink(missing_ok=True)


def mark_origin(run_folder: Path, source: str, attempts: int) -> None:
    """Say that attempts up to that number came from ``source``."""
    data = dump_json({"source": source, "attempts": attempts})
    write_atomic(run_folder / ORIGIN, data, durable=False)


def origin_of(run_folder: Path) -> Origin | None:
    """Where attempts came from; ``None`` if none did. Raises :class:`DamagedFileError`."""
    path = run_folder / ORIGIN
    try:
        data = read_json(path)
        return Origin(str(data["source"]), int(data["attempts"]))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(path, f"does not say where attempts came from ({error!r})") from error


def forget_origin(run_folder: Path) -> None:
    """Take the mark away, of attempts that did not come after all."""
    (run_folder / ORIGIN).unlink(missing_ok=True)


def foreign_attempts(run_folder: Path) -> int:
    """The newest attempt that came from elsewhere; 0 if none did. Raises :class:`DamagedFileError`."""
    origin = origin_of(run_folder)
    return origin.attempts if origin else 0

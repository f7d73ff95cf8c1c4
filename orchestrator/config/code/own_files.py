"""List this program's own files for a code snapshot, and pack its modules into one file.

They are hundreds. A cluster limits a user's number of files, and opens many files more slowly than one.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from orchestrator.core.machine.package_files import CONF, DATA, PACKAGE, PROGRAM_HOOK, TOP, data
from orchestrator.rundir.code import MODULES

# The folder of our packages, or, in a snapshot, their zip file: Python's path to them.
IMPORTED_FROM = PACKAGE.parent.resolve()
# A worker imports our code from the packages beside this one only.
_OUR_PACKAGES = ("orchestrator", "jobs")
# Neither a job nor a command of another machine imports these, and they are a quarter of the bytes.
_NOT_IN_JOBS = (
    *("orchestrator/analysis", "orchestrator/api.py", "orchestrator/ui/doctor"),
    *("orchestrator/ui/drafts", "orchestrator/ui/scaffold.py", "orchestrator/ui/top"),
)
# What is opened by its path, and the modules of a snapshot.
_NOT_PACKED = (
    *(f"orchestrator/{name}" for name in DATA),
    *(f"{folder.relative_to(TOP)}/" for folder in (CONF, PROGRAM_HOOK)),
    MODULES,
)


def own_files() -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the files to keep as they are, and those to pack, each by its name in a snapshot.

    In a snapshot nothing is left to pack. It holds data as a wheel does.
    """
    files = dict(_installed() if IMPORTED_FROM.is_dir() else _below(IMPORTED_FROM.parent))
    packed = {name: path for name, path in files.items() if not name.startswith(_NOT_PACKED)}
    return {name: path for name, path in files.items() if name not in packed}, packed


def opened(path: Path) -> BinaryIO | None:
    """Open a file of the code; ``None`` if it has vanished. Follows no link and waits for no pipe."""
    try:
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except (FileNotFoundError, NotADirectoryError):
        return None


def pack(files: Mapping[str, Path]) -> BinaryIO:
    """Return a zip file for Python's path, of the same bytes for the same files, without vanished ones."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, path in files.items():
            if (file := opened(path.resolve())) is not None:
                with file:
                    archive.writestr(zipfile.ZipInfo(name), file.read())  # without the file's time
    packed.seek(0)
    return packed


def _installed() -> Iterator[tuple[str, Path]]:
    for package in _OUR_PACKAGES:
        below = ((f"{package}/{name}", path) for name, path in _below(IMPORTED_FROM / package))
        yield from ((name, path) for name, path in below if not name.startswith(_NOT_IN_JOBS))
    for place in map(data, DATA):
        files = _below(place) if place.is_dir() else [("", place)]
        yield from ((f"orchestrator/{place.name}/{name}".rstrip("/"), path) for name, path in files)


def _below(top: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, names in os.walk(top, followlinks=True):
        folders.sort()
        for name in sorted(names):
            if not name.endswith((".pyc", ".pyo")):
                yield os.path.relpath(os.path.join(folder, name), top), Path(folder, name)

"""Place the project in the working folder of a run, in which its program starts.

The project is placed before each start and removed after it, so that the folder holds the program's own files
(:mod:`orchestrator.rundir.files.placed`). Its layout is that of the project: a path relative to the folder
is the file's path in the project.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.config.code.key_files import is_named_like_key
from orchestrator.config.command_line.command import module_of, program_file
from orchestrator.config.file_kinds import counts, is_source
from orchestrator.rundir import CodeDir
from orchestrator.rundir.files.atomic import storage_errors
from orchestrator.rundir.files.placed import UNFINISHED, placed_time, remove_placed

_LARGEST_COPY, _MOST_COPIED = 1 << 20, 64 << 20
# Entries placed in all, and in one folder; folders with more are links.
_MOST_PLACED, _MOST_IN_FOLDER = 400, 200
# Entries of the start folder above which files that are no sources or settings are left out.
MOST_AT_START = 2000
_CACHE = "__pycache__"
_LEFT_OUT = re.compile(rf"\.git|{_CACHE}|.*\.egg-info|\.(mypy|ruff|pytest)_cache|\.ipynb_checkpoints")
_ENVIRONMENT = re.compile(r"\.?v?env|node_modules|\.(tox|nox|conda|direnv)")
# Outputs of earlier runs, where git ignores them: folders, and models in the start folder.
_OUTPUTS = re.compile(
    r"runs|outputs?|multirun|wandb|mlruns|videos|logs?|lightning_logs|tensorboard|tb(_logs)?|results|"
    r"checkpoints|ckpts?|(saved_)?models"
)
_MODEL = re.compile(r".+\.(pt|pth|ckpt|zip|safetensors|pkl|onnx|tfevents.*)")


class WorkingFolder:
    """The working folder ``path`` of a run that would start in ``origin``.

    ``start``: the folder in it that corresponds to ``origin``. ``results``: the results folder, never placed.
    """

    def __init__(self, path: Path, origin: Path, results: Path) -> None:
        code = CodeDir.holding(origin / "here")
        self._kept = code is not None and origin.is_relative_to(code.tree)
        self._root = code.tree if code is not None and self._kept else origin
        self._top = _relative(origin.relative_to(self._root))
        self._path = path
        # The folder of results, and that of the sweep, which may be the start folder.
        self._results = {os.fspath(results), os.path.realpath(path.parents[2])}
        self.start = path / self._top
        self._opened: set[str] = set()
        self._entry: set[str] = set()
        self._placed = self._copied = 0

    def place(self, argv: Sequence[str]) -> None:
        """Place the project in the folder, beside files that the program wrote before."""
        remove_placed(self._path)
        self._entry = set(self._names([program_file(argv) or "", *_module_files(argv)]))
        above = (name for file in (self._join("here"), *sorted(self._entry)) for name in _parents(file))
        tops = dict.fromkeys(name for name in above if (self._root / name).is_dir())
        self._opened, self._placed, self._copied = set(tops), 0, 0
        with storage_errors(self._path):
            self.start.mkdir(parents=True, exist_ok=True)
            self._place_folders(deque((name, False) for name in tops))
            for name in self._names(part for item in argv for part in (item, item.rpartition("=")[2])):
                self._place_named(name)

    def clear(self) -> None:
        """Remove all placed files; the folder, too, if the program wrote nothing."""
        remove_placed(self._path)

    def _place_folders(self, folders: deque[tuple[str, bool]]) -> None:
        """Place folders, each with whether those in it are links, breadth-first."""
        done = set()
        while folders:
            name, closed = folders.popleft()
            if name in done:
                continue
            done.add(name)
            entries = self._entries(name)
            many = len(entries) > _MOST_IN_FOLDER or self._placed + len(entries) > _MOST_PLACED
            if many and name not in self._opened and self._link(name):
                continue
            with suppress(FileExistsError):
                (self._path / name).mkdir(exist_ok=True)
                self._placed += 1
                folders += self._place_entries(name, entries, closed)

    def _entries(self, name: str) -> list[os.DirEntry[str]]:
        """List a folder without caches; empty for one with outputs of earlier runs."""
        try:
            with os.scandir(self._root / name) as entries:
                found = [entry for entry in entries if not _LEFT_OUT.fullmatch(entry.name)]
        except OSError:
            return []
        if name in self._opened and len(found) > MOST_AT_START:
            return [entry for entry in found if entry.is_dir() or counts(entry.name, listed=True)]
        if name in self._opened or not _OUTPUTS.fullmatch(os.path.basename(name)):
            return found
        is_listed = self._kept and not (self._root / name).is_symlink()
        return found if is_listed or any(is_source(entry.name) for entry in found) else []

    def _place_entries(
        self, folder: str, entries: Sequence[os.DirEntry[str]], closed: bool
    ) -> Iterator[tuple[str, bool]]:
        """Place a folder's files; yield the folders in it that are to be placed, too."""
        if any(entry.name.endswith(".py") for entry in entries):
            with suppress(OSError):  # compiled once for all runs
                (self._root / folder / _CACHE).mkdir(exist_ok=True)
            self._link(os.path.join(folder, _CACHE))
        for entry in entries:
            name = os.path.join(folder, entry.name)
            if entry.path in self._results:
                continue
            if not entry.is_dir():
                self._place_file(name, entry)
            elif name not in self._opened and (closed or _ENVIRONMENT.fullmatch(entry.name)):
                self._link(name)
            else:
                yield name, closed or entry.is_symlink()

    def _place_file(self, name: str, entry: os.DirEntry[str]) -> None:
        """Copy a small file; link a large one, and sources in other folders than the start folder."""
        in_start = os.path.dirname(name) == self._top
        if in_start and _MODEL.fullmatch(entry.name) and (entry.is_symlink() or not self._kept):
            return
        is_module = is_source(name) and not in_start and name not in self._entry
        if is_module or entry.name.startswith(".") or is_named_like_key(entry.name):
            self._link(name)
            return
        try:
            found = entry.stat()
        except OSError:  # a link that leads nowhere
            self._link(name)
            return
        is_plain = stat.S_ISREG(found.st_mode)
        if is_plain and found.st_size <= _LARGEST_COPY and self._copied + found.st_size <= _MOST_COPIED:
            self._copied += found.st_size
            self._copy(name, found)
        else:
            self._link(name)

    def _place_named(self, name: str) -> None:
        """Link a file that the command names and that is not placed, such as a model of an earlier run."""
        target = self._path / name
        if os.path.isfile(self._root / name) and not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._link(name)

    def _link(self, name: str) -> bool:
        self._placed += 1
        try:
            os.symlink(f"{self._root}/{name}", f"{self._path}/{name}")
        except FileExistsError:
            return False
        return True

    def _copy(self, name: str, found: os.stat_result) -> None:
        self._placed += 1
        target, unfinished = self._path / name, self._path / UNFINISHED
        try:
            if not os.path.lexists(target):
                shutil.copyfile(self._root / name, unfinished)
                os.chmod(unfinished, found.st_mode & 0o777 | 0o600)
                time = placed_time(name, found.st_mtime)
                os.utime(unfinished, (time, time))
                os.rename(unfinished, target)
        except (PermissionError, FileNotFoundError):  # unreadable for the program, or removed meanwhile
            unfinished.unlink(missing_ok=True)

    def _join(self, name: str) -> str:
        return os.path.normpath(os.path.join(self._top, name))

    def _names(self, items: Iterator[str] | Sequence[str]) -> list[str]:
        """Return paths in the project of items of the command that may be relative paths in it."""
        names = (self._join(item) for item in items if item and not os.path.isabs(item))
        return [name for name in names if name.split("/")[0] != ".." and name != "."]


def is_former_output(name: str) -> bool:
    """Return whether this is a file of the start folder that is placed only if git lists it.

    Folders with sources are none of outputs.
    """
    folder, last = os.path.split(name)
    if folder.startswith(("/", "..")) or not (
        any(map(_OUTPUTS.fullmatch, folder.split("/"))) if folder else _MODEL.fullmatch(last)
    ):
        return False
    return os.path.isfile(name) and not (folder and any(map(is_source, os.listdir(folder))))


def _module_files(argv: Sequence[str]) -> list[str]:
    """Return the files that Python may start for ``-m``."""
    path = (module_of(argv) or "").replace(".", "/")
    return [f"{path}.py", f"{path}/__main__.py"] if path else []


def _parents(name: str) -> list[str]:
    """Return the folders above a relative path, the top first."""
    return [_relative(path) for path in reversed(Path(name).parents)]


def _relative(path: Path) -> str:
    """Return a relative path, empty for the folder itself."""
    return "" if path == Path() else path.as_posix()

"""Find the project's files that make up the program of a `command` run, and the id of their content.

The same files count in a checkout, for the detection of stale runs, and in the code snapshot of a job. Names
are relative to the folder in which the program starts.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import iglob
from pathlib import Path
from typing import Any, Self

from orchestrator.config.code.key_files import may_hold_key
from orchestrator.config.code.worktree import NoWorkTree, UnreadWorkTree, list_files
from orchestrator.config.command_line.command import COMMAND_KEY
from orchestrator.config.command_line.placeholders import arguments
from orchestrator.config.file_kinds import (
    counts,
    counts_if_opened,
    is_listed_only,
    is_own_package,
    is_source,
    modules_beside,
)
from orchestrator.config.program.file_hash import digest_of, syntax_of
from orchestrator.config.program.patterns import CODE_KEY, Patterns, fits
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.rundir import CodeDir, results_among
from orchestrator.rundir.code import quoted, unquoted

# Seconds until a checkout is read again; a code snapshot never is.
_FRESH_S = 3.0
# The same if git fails, which may take long.
_UNREAD_FRESH_S = 60.0
_MOST_FILES = 20_000
_MOST_LISTED = 500


@dataclass(frozen=True)
class ProgramFiles:
    """The files that count for one run: hashes of their content by name.

    ``unknown``: the reason for an unknown set of files, which is empty then.
    """

    files: Mapping[str, str]
    unknown: str | None = None

    @cached_property
    def id(self) -> str | None:
        """12 hexadecimal digits; None if no file of the project counts or the files are unknown."""
        if not self.files:
            return None
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(os.fsencode(name) + b"\0" + content.encode() + b"\n")
        return digest.hexdigest()[:12]

    def to_json(self) -> dict[str, str] | None:
        """Return the hashes by quoted name; None if they are too many for a result."""
        if not 0 < len(self.files) <= _MOST_LISTED:
            return None
        return {quoted(name): content for name, content in sorted(self.files.items())}

    @classmethod
    def from_json(cls, data: Any) -> Self | None:
        """Parse the output of :meth:`to_json`; None for anything else."""
        if not isinstance(data, dict) or not all(isinstance(content, str) for content in data.values()):
            return None
        return cls({unquoted(name): content for name, content in data.items()})

    def differing(self, other: ProgramFiles) -> list[str]:
        """Return the sorted names of files that differ between the two."""
        names = {*self.files, *other.files}
        return sorted(name for name in names if self.files.get(name) != other.files.get(name))


class ProjectFiles:
    """The project's files around the folder ``start`` in which programs start, at one moment.

    ``without``: folders of results, which do not belong to a project; other sweeps found in it do not either.
    Hashes are cached. ``unknown``: the reason for which git cannot list the project's files. ``any_owner``:
    git lists those of other users, too, for code that is run in any case.
    """

    def __init__(self, start: Path, without: Sequence[Path] = (), *, any_owner: bool = False) -> None:
        self.start = start
        self.root = start
        self.listed: dict[str, Path] = {}
        self._in_project: set[str] = set()
        self.unknown: str | None = None
        try:
            self.root, self.listed, self._in_project = _listing(start, without, any_owner)
        except UnreadWorkTree as error:
            self.unknown = f"{start} is in a git repository, and {error}"
        except OrchestrateError as error:
            self.unknown = str(error)
        self._default: dict[str, Path] | None = None
        self._programs: dict[object, ProgramFiles] = {}
        self._items: dict[tuple[str, bool], tuple[str, ...]] = {}

    def program(self, point: Mapping[str, Any], opened: frozenset[str] | None = None) -> ProgramFiles:
        """Return the files that count for the run of this grid point.

        ``opened``: the files that the program was seen to import or open. Then no others count by default,
        and the hashes of Python files are those of their syntax trees.
        """
        patterns = Patterns.of(point.get(CODE_KEY))
        if self.unknown is not None:
            return ProgramFiles({}, self.unknown)
        named = tuple(self._named(point))
        key = (named, patterns, opened)
        if key not in self._programs:
            self._programs[key] = ProgramFiles(self._hashed(named, patterns, opened))
        return self._programs[key]

    def id_of(self, point: Mapping[str, Any], listed: Any, *, traced: bool) -> str | None:
        """Return the id that a run of this point has today.

        ``listed``: the files in its result's ``code_files``, of which with ``traced`` no others count.
        """
        files = ProgramFiles.from_json(listed) if traced else None
        return self.program(point, None if files is None else frozenset(files.files)).id

    def narrowed(self, before: ProgramFiles, point: Mapping[str, Any]) -> ProgramFiles:
        """Restrict an earlier set of files to those that the point selects."""
        patterns = Patterns.of(point.get(CODE_KEY))
        wanted = None if patterns.base is None else (*patterns.base, *patterns.more)
        named = {os.path.normpath(name) for name in self._named(point)}
        return ProgramFiles(
            {
                name: digest
                for name, digest in before.files.items()
                if not any(fits(name, entry) for entry in patterns.less)
                and (wanted is None or name in named or any(fits(name, entry) for entry in wanted))
            }
        )

    def syntax(self, name: str) -> str | None:
        """Hash the syntax tree of a Python file, the content of another; None for a missing file."""
        return syntax_of(self.path(name))

    def path(self, name: str) -> Path:
        """Return the path of a file of this name."""
        return self.listed.get(name, self.start / name)

    def unmatched(self, value: Any) -> list[str]:
        """Return the entries of the key `code` that match no file."""
        patterns = Patterns.of(value)
        entries = (*(patterns.base or ()), *patterns.more)
        return [entry for entry in entries if not self._fitting(entry)]

    def _named(self, point: Mapping[str, Any]) -> Iterator[str]:
        """Yield the files named in the command, as spelled there."""
        command = point.get(COMMAND_KEY)
        try:
            argv = arguments(command, point) if isinstance(command, list | tuple) else []
        except OrchestrateError:
            argv = []
        for position, text in enumerate(argv):
            if (text, not position) not in self._items:
                self._items[text, not position] = self._files_in(text, first=not position)
            yield from self._items[text, not position]

    def _files_in(self, item: str, first: bool) -> tuple[str, ...]:
        """Return the file named by an argument, alone or after an equals sign."""
        names = dict.fromkeys((item, item.rpartition("=")[2]))
        return tuple(name for name in names if name and self._is_program_file(name, first))

    def _is_program_file(self, name: str, first: bool) -> bool:
        if self._is_copied(os.path.normpath(name)):
            return True
        if first and "/" not in name:
            return False  # found on PATH: installed, not the project's
        own = first and not os.path.isabs(name)
        return (own or counts(os.path.basename(name), listed=False)) and _is_file(self.start / name)

    def _is_copied(self, name: str) -> bool:
        """Return whether a copy of the project has this file: git lists it, and it holds no key."""
        try:
            return name in self.listed and not may_hold_key(self.listed[name], name)
        except OSError:
            return True  # a link, or a file that has no hash either

    def _hashed(
        self, named: Iterable[str], patterns: Patterns, opened: frozenset[str] | None
    ) -> dict[str, str]:
        files: dict[str, Path] = {}
        if patterns.base is None:
            files |= self._default_files() if opened is None else self._opened(opened)
            for name in named:
                beside = self._beside(name)
                files |= {one: beside[one] for one in (beside if opened is None else opened & beside.keys())}
        for name in named:
            files |= self._own(name)
        asked = {name for entry in (*(patterns.base or ()), *patterns.more) for name in self._fitting(entry)}
        for entry in (*(patterns.base or ()), *patterns.more):
            files |= self._fitting(entry)
        for entry in patterns.less:
            files = {name: path for name, path in files.items() if not fits(name, entry)}
        asked |= {os.path.normpath(name) for name in named}
        hash_of = digest_of if opened is None else syntax_of
        digests = ((name, hash_of(path, asked=name in asked)) for name, path in files.items())
        return {name: digest for name, digest in digests if digest is not None}

    def _default_files(self) -> dict[str, Path]:
        """Return the project's sources and settings; outside git, those in the start folder."""
        if self._default is None:
            kept = filter(self._is_copied, self._in_project)
            self._default = {name: self.listed[name] for name in kept}
            if not self.listed:
                self._default = {
                    os.path.relpath(path, self.start): path for path in modules_beside(self.start)
                }
        return self._default

    def _opened(self, names: Iterable[str]) -> dict[str, Path]:
        """Return those files of the project, of these names, that count for a program that opened them."""
        if self.listed:
            found = {name: self.listed[name] for name in names if name in self.listed}
            return {
                name: path
                for name, path in found.items()
                if counts_if_opened(name, listed=True) and self._is_copied(name)
            }
        own = (name for name in names if not name.startswith(("/", "../")))
        return {name: self.start / name for name in own if counts_if_opened(name, listed=False)}

    def _own(self, name: str) -> dict[str, Path]:
        """Return a file named in the command."""
        plain = os.path.normpath(name)
        return {plain: self.listed.get(plain, self.start / plain)}

    def _beside(self, name: str) -> dict[str, Path]:
        """Return files beside and below a source file named in the command."""
        plain = os.path.normpath(name)
        folder = os.path.dirname(plain)
        if not is_source(plain):
            return {}
        if not self._is_copied(plain):
            top = (self.start / plain).parent
            beside = {os.path.relpath(path, top): path for path in modules_beside(top)}
            return {os.path.normpath(os.path.join(folder, other)): path for other, path in beside.items()}
        start = f"{folder}/" if folder else ""
        return {
            other: path
            for other, path in self.listed.items()
            if start and other.startswith(start) and counts(other[len(start) :], listed=True)
            if self._is_copied(other)
        }

    def _fitting(self, entry: str) -> dict[str, Path]:
        """Return the files that match an entry of the key `code`: among the listed ones, else on disk."""
        fitting = (name for name in self.listed if fits(name, entry))
        if listed := {name: self.listed[name] for name in fitting if self._is_copied(name)}:
            return listed
        if "*" in entry or "?" in entry:
            names: Iterable[str] = iglob(entry, root_dir=self.start, recursive=True)
        else:
            names = [entry]
        return {
            os.path.normpath(name): path
            for top in names
            for name, path in _on_disk(top, self.start / top)
            if not is_listed_only(name)
        }


def project_files(start: Path, without: Sequence[Path] = (), *, any_owner: bool = False) -> ProjectFiles:
    """Return the files around ``start``; a checkout's are read again after some seconds."""
    key = (os.fspath(start), tuple(map(os.fspath, without)), any_owner)
    known = _known.get(key)
    if known is None or time.monotonic() > known[0]:
        began = time.monotonic()
        files = ProjectFiles(start, without, any_owner=any_owner)
        if CodeDir.holding(start / "here") is not None:
            known = (math.inf, files)
        elif files.unknown is None:
            known = (began + _FRESH_S, files)
        else:
            known = (time.monotonic() + _UNREAD_FRESH_S, files)
        _known[key] = known
    return known[1]


# The files with the time of their next reading.
_known: dict[tuple[str, tuple[str, ...], bool], tuple[float, ProjectFiles]] = {}


def _listing(start: Path, without: Sequence[Path], any_owner: bool) -> tuple[Path, dict[str, Path], set[str]]:
    """Return the project's top folder, its files by name, and the names of those that count by default."""
    kept = _frozen_listing(start) or _live_listing(start, without, any_owner)
    if kept is None:
        return start, {}, set()
    root, paths = kept
    results = results_among(paths)
    names = [name for name in paths if not name.startswith(results)] if results else paths
    ours = is_own_package(names)
    top = os.path.relpath(start.resolve(), root.resolve())
    listed = {os.path.relpath(f"/{name}", f"/{top}"): root / name for name in names}
    counted = (
        shown for shown, name in zip(listed, names, strict=True) if counts(name, listed=True, ours=ours)
    )
    return root, listed, set(counted)


def _frozen_listing(start: Path) -> tuple[Path, list[str]] | None:
    code = CodeDir.holding(start / "here")
    if code is None:
        return None
    try:
        facts = code.facts()
        # Links lead out of the copy, as to ignored files, with their present content.
        links = set(facts.get("links", ()))
        names = [unquoted(name) for name in facts["files"] if name not in links]
    except (DamagedFileError, KeyError, TypeError):
        return None
    return code.tree, [name.removeprefix("tree/") for name in names if name.startswith("tree/")]


def _live_listing(start: Path, without: Sequence[Path], any_owner: bool) -> tuple[Path, list[str]] | None:
    try:
        tree = list_files(start.resolve(), without, any_owner=any_owner)
    except UnreadWorkTree:
        raise
    except NoWorkTree:
        return None
    names = [item.path for item in tree.items if item.target is None or not os.path.isabs(item.target)]
    return tree.root, [name for name in names if "__pycache__" not in name.split("/")]


def _on_disk(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    if _is_file(path):
        yield name, path
        return
    number = 0
    for folder, folders, files in os.walk(path, followlinks=True):
        folders[:] = sorted(one for one in folders if one != "__pycache__" and not one.startswith("."))
        for file in files:
            full = Path(folder, file)
            number += 1
            if number > _MOST_FILES:
                raise OrchestrateError(
                    f"`{CODE_KEY}`: {name} holds more than {_MOST_FILES} files", hint="name fewer of them"
                )
            if _is_file(full):
                yield os.path.join(name, full.relative_to(path)), full


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a null byte
        return False

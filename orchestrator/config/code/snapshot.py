"""Keep the code of a submission with its sweep, so that jobs run that code at any later time.

A snapshot holds this program's packages and the project: the git work tree around the folder of the call.
Other packages belong to the environment; results record their versions.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib.metadata import Distribution, distributions
from operator import and_
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.config.code.own_files import IMPORTED_FROM, opened, own_files, pack
from orchestrator.config.code.worktree import (
    HOLDS_KEY,
    TOO_LARGE_HINT,
    NoWorkTree,
    WorkTree,
    list_files,
    read_worktree,
)
from orchestrator.config.file_kinds import is_source
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formats import stamp
from orchestrator.rundir import CodeDir, FrozenCode, SweepDir, sweeps
from orchestrator.rundir.code import MODULES, quoted, unquoted
from orchestrator.rundir.files.atomic import dump_json, storage_errors
from orchestrator.rundir.frozen_code import SentCode

_MOST_FILES = 20_000
_MOST_BYTES = 512 << 20
_CHUNK = 1 << 20
_TRIES = 3
_MOST_NAMED, _MOST_KEYS = 3, 50
_LINKED = "linked, not copied"
_EDITS = "later edits affect queued and resumed runs"
_CACHE = "__pycache__"


def freeze(sweep: SweepDir, cwd: Path, *, dry: bool = False) -> FrozenCode:
    """Store the present code under ``sweep``, once for any number of submissions.

    ``cwd``: the folder of the call. With ``dry``, return the same and write nothing; otherwise call under the
    sweep's lock. Raises ``OrchestrateError`` for a project too large to keep, ``DamagedFileError`` for a
    changed snapshot, ``StorageError``.
    """
    for _ in range(_TRIES):
        source = _find_source(sweep, cwd.resolve())
        marks = _marks(source.entries)
        code = CodeDir.of(sweep, _name(source.commit, marks))
        frozen = _frozen_code(source, code, cwd)
        if dry:
            return frozen
        if code.exists():
            _verify(marks, code)
        elif not _store(source, code):
            continue
        with storage_errors(frozen.cwd):
            frozen.cwd.mkdir(parents=True, exist_ok=True)  # git records no empty folder
        return frozen
    raise OrchestrateError(
        f"{source.root}: files change while they are being copied",
        hint="run the same command again when nothing writes there, or list such files in .gitignore",
    )


def received(code: CodeDir, sent: SentCode, submit_dir: Path) -> FrozenCode:
    """Return a snapshot that another machine sent here.

    Files added by runs or Python do not count. Raises :class:`DamagedFileError` only if the sent files do not
    match the snapshot's id.
    """
    if not is_whole(code):
        raise DamagedFileError(
            code.path, "is not the code that was sent", hint=f"remove {code.path} and send it again"
        )
    frozen = sent.at(code.path, submit_dir)
    with storage_errors(frozen.cwd):
        frozen.cwd.mkdir(parents=True, exist_ok=True)
    return frozen


def is_whole(code: CodeDir) -> bool:
    """Return whether a snapshot's content matches its id. Reads every file."""
    try:
        facts = code.facts()
        project, marks = facts["project"], _found(map(unquoted, facts["files"]), code)
        return _name(project and project["commit"], marks) == code.code_id
    except (DamagedFileError, OSError, KeyError, TypeError):
        return False


@dataclass(frozen=True)
class _Entry:
    """A file to keep under ``name``: the content of ``source``, or a link to ``target``.

    With ``packed``, it is a zip file of these files, by name, that belongs at ``source``.
    """

    name: str
    source: Path
    target: str | None = None
    packed: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class _Source:
    """The files to keep. ``why_not``: the reason for no ``tree``."""

    cwd: Path
    without: Sequence[Path]
    ours_in_tree: bool
    tree: WorkTree | None
    why_not: str | None
    entries: tuple[_Entry, ...]

    @property
    def root(self) -> Path:
        """The root of the project."""
        return self.tree.root if self.tree else self.cwd

    @property
    def commit(self) -> str | None:
        """The project's commit."""
        return self.tree.commit if self.tree else None


def _find_source(sweep: SweepDir, cwd: Path) -> _Source:
    """Find the files to keep; reads none of them."""
    tree, why_not, without = None, None, _results_folders(sweep, cwd)
    if (code := CodeDir.holding(cwd / "here")) is not None:
        why_not = f"it is part of the frozen code {code.path}"
    else:
        try:
            tree = read_worktree(cwd, without)
        except NoWorkTree as error:
            why_not = str(error)
    ours, packed = own_files()
    # Python's caches in a copy are rewritten, which would look like damage.
    items = [item for item in (tree.items if tree else ()) if _CACHE not in Path(item.path).parts]
    entries = [_Entry(f"tree/{item.path}", tree.root / item.path, item.target) for item in items if tree]
    files = {entry.source for entry in entries if entry.target is None}
    ours_in_tree = all(path.resolve() in files for path in (*ours.values(), *packed.values()))
    if not ours_in_tree:
        entries += [_Entry(f"ours/{name}", path.resolve()) for name, path in ours.items()]
        entries += [_Entry(f"ours/{MODULES}", IMPORTED_FROM / MODULES, packed=packed)] if packed else []
    if len(entries) > _MOST_FILES:
        raise OrchestrateError(
            f"the code to keep with the sweep has {len(entries)} files, more than {_MOST_FILES}",
            hint=TOO_LARGE_HINT,
        )
    return _Source(cwd, without, ours_in_tree, tree, why_not, tuple(entries))


def _results_folders(sweep: SweepDir, cwd: Path) -> list[Path]:
    """Return the folders of results among the project's files."""
    results = sweep.results.resolve()
    if not cwd.is_relative_to(results):
        return [results]
    return [results / sweep.name, *(other.path.resolve() for other in sweeps(results))]


# Reading and writing


def _marks(entries: Iterable[_Entry], into: Path | None = None) -> dict[str, str]:
    """Return the content mark of every name, a hash for files; copy them ``into`` a folder if given.

    A vanished file has no mark.
    """
    marks: dict[str, str] = {}
    budget = _MOST_BYTES
    for entry in entries:
        target = into / entry.name if into else None
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
        if entry.target is not None:
            marks[entry.name] = f"link {entry.target}"
            if target is not None:
                target.symlink_to(entry.target)
            continue
        file = pack(entry.packed) if entry.packed else opened(entry.source)
        if file is None:
            continue
        mode = 0o444 if entry.packed else stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if target is not None:
            mode &= ~_shut(entry)
        with file:
            marks[entry.name], size = _transfer(file, mode, target)
        budget -= size
        if budget < 0:
            raise OrchestrateError(
                f"the code to keep with the sweep has more than {_MOST_BYTES >> 20} MiB", hint=TOO_LARGE_HINT
            )
    return marks


def _shut(entry: _Entry) -> int:
    """Return the permissions that a file has and its project's folders take away from others."""
    shut = 0
    for folder in entry.source.parents[: entry.name.count("/")]:
        mode = folder.stat().st_mode
        shut |= (0 if mode & stat.S_IXGRP else stat.S_IRWXG) | (0 if mode & stat.S_IXOTH else stat.S_IRWXO)
    return shut


def _transfer(file: BinaryIO, mode: int, target: Path | None) -> tuple[str, int]:
    """Hash a file of ``mode`` and copy it to ``target`` if given; return its mark and size in bytes.

    The copy is read-only, for the users who may read by that mode.
    """
    digest, size = hashlib.sha256(), 0
    copy = open(target, "xb") if target is not None else None  # noqa: SIM115 (there may be none)
    try:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            if copy is not None:
                copy.write(chunk)
        if copy is not None:
            os.fchmod(copy.fileno(), mode & 0o555)
    finally:
        if copy is not None:
            copy.close()
    return f"{'program' if mode & stat.S_IXUSR else 'file'} {digest.hexdigest()}", size


def _name(commit: str | None, marks: Mapping[str, str]) -> str:
    """Return the snapshot's id: 16 hexadecimal digits from content and commit."""
    digest = hashlib.sha256(f"{commit}\n".encode())
    for name, mark in sorted(marks.items()):
        digest.update(os.fsencode(name) + b"\0" + os.fsencode(mark) + b"\0")
    return digest.hexdigest()[:16]


def _store(source: _Source, code: CodeDir) -> bool:
    """Write the snapshot; return False if the files have changed since they were hashed."""
    with code.draft() as draft:
        if _name(source.commit, _marks(source.entries, draft.path)) != code.code_id:
            return False
        changes, without = source.tree.changes() if source.tree else (b"", [])
        if changes:
            copies = (draft.path / entry.name for entry in source.entries if entry.target is None)
            modes = (copy.stat().st_mode for copy in copies if copy.is_relative_to(draft.tree))
            draft.changes.touch(mode=reduce(and_, modes, 0o444) | 0o200)
            draft.changes.write_bytes(changes)
        left_out = {f"changes.diff of {name}": HOLDS_KEY for name in without}
        if changes is None:
            left_out = {"changes.diff": "too large"}
        draft.facts_path.write_bytes(dump_json(_facts(source, left_out), indent=1))
        code.publish(draft)
    return True


def _facts(source: _Source, left_out: Mapping[str, str]) -> dict[str, Any]:
    tree = source.tree
    outside = [entry for entry in source.entries if entry.target is not None and os.path.isabs(entry.target)]
    facts: dict[str, Any] = {
        "time": time.time(),
        **stamp(),
        "project": None,
        "files": [quoted(entry.name) for entry in source.entries],
        "links": [quoted(entry.name) for entry in outside],
    }
    if tree is not None:
        left_out = {**tree.left_out, **left_out}
        facts["project"] = {
            "root": _as_text(os.fspath(tree.root)),
            "commit": tree.commit,
            "branch": tree.branch,
            "changed": tree.changed,
            "untracked": [_as_text(path) for path in tree.untracked if is_source(path)],
            "linked": {_as_text(path): why for path, why in tree.linked.items()},
            "left_out": {_as_text(path): why for path, why in left_out.items()},
        }
    return facts


def _verify(marks: Mapping[str, str], code: CodeDir) -> None:
    """Raise :class:`DamagedFileError` unless the folder matches its id."""
    present = _found(marks, code)
    for name, mark in marks.items():
        if present.get(name) != mark:
            raise DamagedFileError(
                code.path / name,
                "has changed since it was stored, or was lost in a power cut",
                hint=f"move {code.path} away and run the same command again: it is stored again",
            )


def _found(names: Iterable[str], code: CodeDir) -> dict[str, str]:
    """Return the marks of the folder's content under these names."""
    return _marks(_Entry(name, code.path / name, _target(code.path / name)) for name in names)


def _target(path: Path) -> str | None:
    return os.readlink(path) if path.is_symlink() else None


def _as_text(name: str) -> str:
    """Return a file name of any bytes as text."""
    return os.fsencode(name).decode(errors="backslashreplace")


# Settings to start a worker


def _frozen_code(source: _Source, code: CodeDir, submit_dir: Path) -> FrozenCode:
    tree, cwd = source.tree, source.cwd
    ours = code.tree / IMPORTED_FROM.relative_to(source.root) if source.ours_in_tree else code.modules
    theirs, notes = _module_folders(source, code)
    if tree is None:
        notes = [f"the code in {cwd} is not copied ({source.why_not}): {_EDITS}", *notes]
    elif any(cwd.is_relative_to(folder) for folder in source.without):
        notes = [*_what_is_missing(tree), f"runs start in {cwd} itself: it is part of the results", *notes]
    else:
        notes = [*_what_is_missing(tree), *notes]
        cwd = code.tree / cwd.relative_to(tree.root)
    if os.pathsep in os.fspath(code.path):
        raise OrchestrateError(
            f"{code.path}: Python searches no folder with {os.pathsep!r} in its name",
            hint="choose another folder for the results: --results DIR",
        )
    path = tuple(dict.fromkeys([ours, *theirs]))
    return FrozenCode(code.code_id, code.path, path, cwd, submit_dir.absolute(), tuple(notes))


def key_notes(cwd: Path) -> tuple[str, ...]:
    """Return a note on files with keys, which a copy of the project around ``cwd`` would only link to."""
    try:
        tree = list_files(cwd.resolve(), any_owner=True, read=True)
    except (NoWorkTree, OrchestrateError):
        return ()  # nothing is copied
    return tuple(
        _named(tree.root, _LINKED, {path: why for path, why in tree.linked.items() if why == HOLDS_KEY})
    )


def _what_is_missing(tree: WorkTree) -> Iterator[str]:
    yield from _named(tree.root, _LINKED, tree.linked)
    yield from _named(tree.root, "left out", tree.left_out)


def _named(root: Path, said: str, files: Mapping[str, str]) -> Iterator[str]:
    """Name files with reasons: some of them, and those that may hold a key."""
    keys = [path for path, why in files.items() if why == HOLDS_KEY][:_MOST_KEYS]
    first = list(dict.fromkeys([*list(files)[:_MOST_NAMED], *keys]))
    if files:
        named = [f"{_as_text(path)} ({files[path]})" for path in first]
        more = f" and {len(files) - len(named)} more" if len(files) > len(named) else ""
        yield f"of {root}, {said}: {', '.join(named)}{more}"


def _module_folders(source: _Source, code: CodeDir) -> tuple[list[Path], list[str]]:
    """Return the import folders of the user's modules, the project's in its copy; and notes on plug-ins.

    They are on Python's path, or installed as editable. A folder outside the project is included only if
    PYTHONPATH names it. The notes name plug-ins that are not copied.
    """
    tree, folders, notes = source.tree, [], []
    held = {Path(), *(parent for item in tree.items for parent in Path(item.path).parents)} if tree else set()
    named = {os.path.abspath(name) for name in os.environ.get("PYTHONPATH", "").split(os.pathsep) if name}
    for entry in sys.path if sys.flags.safe_path else sys.path[1:]:
        folder = Path(entry).resolve()
        if tree and folder.is_relative_to(tree.root) and folder.relative_to(tree.root) in held:
            folders.append(code.tree / folder.relative_to(tree.root))
        elif os.path.abspath(entry) in named:
            folders.append(Path(entry).absolute())
    for distribution in distributions():
        for folder in _editable_folders(distribution):
            if tree and folder.is_relative_to(tree.root):
                folders.append(code.tree / folder.relative_to(tree.root))
            elif _is_plugin(distribution):
                notes.append(f"the code of {distribution.name} in {folder} is not copied: {_EDITS}")
    return folders, notes


def _editable_folders(distribution: Distribution) -> set[Path]:
    """Return the package folders of an editable installation; empty for any other."""
    if '"editable": true' not in (distribution.read_text("direct_url.json") or ""):
        return set()
    declared = (distribution.read_text("top_level.txt") or "").split()
    names = {*declared, *(point.module.split(".")[0] for point in distribution.entry_points)}
    return {folder for name in names if (folder := _folder_of(name)) is not None}


def _folder_of(module: str) -> Path | None:
    """Return the folder from which a module or package is imported."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).exists():
        return None
    origin = Path(spec.origin).resolve()
    return origin.parent.parent if spec.submodule_search_locations else origin.parent


def _is_plugin(distribution: Distribution) -> bool:
    return any(point.group.startswith("orchestrate.") for point in distribution.entry_points)

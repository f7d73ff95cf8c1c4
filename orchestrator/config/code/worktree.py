"""Read a git work tree: the files that make up a project, by git's own rules."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.config.code.key_files import has_key, is_named_like_key, may_hold_key
from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import results_among

# A larger file is data or a build; every sweep would keep a copy.
LARGEST_FILE = 20 << 20
# The reason why a file with a key is only linked to.
HOLDS_KEY = "may hold a key"
# Ignored files that no run needs.
_LITTER = ("__pycache__", "*.py[co]", "*.egg-info", ".*_cache")
_MOST_LINKS = 1000
_MOST_REPOSITORIES = 50
_PATIENCE_S = 30.0
_LARGEST_DIFF = 64 << 20
_OF_A_FILE, _OF_NAME = re.compile(rb"^(?=diff --git )", re.M), re.compile(rb'diff --git .* "?b/(.*?)"?\n')

# Variables that make git answer about another repository.
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE")

_ANY_OWNER = ("-c", "safe.directory=*")
# Programs that a repository's own settings name and git would start. Filters are left to `git status` and
# `git diff`, of the project that a command submits; `git ls-files` has none.
_NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
# Objects that a repository lacks are fetched by programs that its settings name, too.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}

TOO_LARGE_HINT = (
    "list what no run needs in .gitignore (runs still reach it, by a link), or make the folder of your code "
    "a repository of its own: git init"
)


class NoWorkTree(Exception):
    """There is no readable work tree; the message completes a sentence about the folder."""


class UnreadWorkTree(NoWorkTree):
    """There is a ``.git``, but git does not list its content."""


@dataclass(frozen=True)
class WorkTreeFile:
    """A file of a work tree, or a link to ``target``. ``path`` is relative to the work tree's root."""

    path: str
    target: str | None = None


@dataclass(frozen=True)
class WorkTreeFiles:
    """The files of a work tree at ``root``: ``items`` by path, none below another.

    ``linked``: files that a copy only links to; ``left_out``: files missing in a copy; both with reasons.
    ``untracked``: items in no commit.
    """

    root: Path
    items: tuple[WorkTreeFile, ...]
    linked: Mapping[str, str]
    left_out: Mapping[str, str]
    untracked: tuple[str, ...]


@dataclass(frozen=True)
class WorkTree(WorkTreeFiles):
    """A work tree with its commit and branch; ``changed``: whether tracked files differ from the commit."""

    commit: str | None
    branch: str | None
    changed: bool

    def changes(self) -> tuple[bytes | None, list[str]]:
        """Return the diff of tracked files against the commit, for ``git apply``; None if it is too large.

        And the files that are left out of it: they may hold a key, or held one in the commit.
        """
        if self.commit is None or not self.changed:
            return b"", []
        command = ["diff", "--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=diff"]
        try:
            text = _git(self.root, *command, "--src-prefix=a/", "--dst-prefix=b/", "HEAD", any_owner=True)
        except (NoWorkTree, OrchestrateError):
            return None, []
        if len(text) > _LARGEST_DIFF:
            return None, []
        kept, left_out = [], []
        for part in _OF_A_FILE.split(text):
            header = _OF_NAME.match(part)
            name = os.fsdecode(header[1]) if header else ""
            lines = b"\n".join(line[1:] for line in part.splitlines())
            holds_key = is_named_like_key(name) or has_key(name, lines)
            (left_out.append(name) if holds_key else kept.append(part))
        return b"".join(kept), left_out


def read_worktree(folder: Path, without: Sequence[Path] = ()) -> WorkTree:
    """Read files, commit and changes of a project to be submitted; raises as :func:`list_files`.

    Git starts the filters that the repository's settings name, and accepts another owner: the code there is
    to be run. Never call it on a folder that a results tree names.
    """
    files = list_files(folder, without, any_owner=True, read=True)
    commit, branch, changed = _head(files.root)
    return WorkTree(**vars(files), commit=commit, branch=branch, changed=changed)


def head_of(folder: Path) -> tuple[str | None, bool, list[str]]:
    """Return the commit around a folder, whether tracked files differ from it, and files below in no commit.

    For a project that runs; raises as :func:`list_files`.
    """
    commit, _, changed = _head(folder)
    others = _git(folder, "ls-files", "-z", "--others", "--exclude-standard", any_owner=True)
    return commit, changed, os.fsdecode(others).split("\0")


def list_files(
    folder: Path, without: Sequence[Path] = (), *, any_owner: bool = False, read: bool = False
) -> WorkTreeFiles:
    """List the files of the work tree around ``folder``, without the content of the folders ``without``.

    Finds files that may hold a key by name; with ``read`` also by content. Starts git and no other program,
    with any settings of the repository; without ``any_owner`` git refuses the repository of another user.
    Paths must be resolved. Raises :class:`NoWorkTree` and :class:`UnreadWorkTree`, and ``OrchestrateError``
    if git takes too long.
    """
    top = _git(folder, "rev-parse", "--show-toplevel", any_owner=any_owner)
    root = Path(os.fsdecode(top.removesuffix(b"\n")))
    inside = [os.fspath(path.relative_to(root)) for path in without if path.is_relative_to(root)]
    hidden = [f"--exclude=/{_escaped(path)}" for path in inside if path != "."]
    files = _Sorting(root, inside, any_owner, read)
    files.take_all(files.listed(root, "-c"), tracked=True)
    files.take_all(files.listed(root, "-o", "--exclude-standard", *hidden), tracked=False)
    files.link_results()
    files.take_ignored(files.listed(root, "-o", "-i", "--exclude-standard", "--directory"))
    items = _without_nested(files.items.values())
    new = tuple(item.path for item in items if item.path in files.untracked)
    return WorkTreeFiles(root, items, files.linked, files.left_out, new)


@dataclass
class _Sorting:
    """Sort git's list of files into copies, links and omissions."""

    root: Path
    without: Sequence[str]
    any_owner: bool
    read: bool
    items: dict[str, WorkTreeFile] = field(default_factory=dict)
    linked: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    repositories: int = 0
    untracked: set[str] = field(default_factory=set)

    def listed(self, root: Path, *arguments: str) -> list[str]:
        """List files of a work tree by `git ls-files`."""
        answer = _git(root, "ls-files", "-z", *arguments, any_owner=self.any_owner)
        return sorted({os.fsdecode(name) for name in answer.split(b"\0") if name})

    def take_all(self, paths: Iterable[str], *, tracked: bool) -> None:
        """Add listed files."""
        for path in paths:
            if not _is_below(path, self.without):
                if not tracked:
                    self.untracked.add(path)
                self._take(path)

    def _take(self, path: str) -> None:
        full = self.root / path
        try:
            about = full.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return  # tracked, but deleted
        if stat.S_ISLNK(about.st_mode):
            self.items[path] = WorkTreeFile(path, self._moved_target(path))
        elif stat.S_ISDIR(about.st_mode):
            self._take_repository(path.rstrip("/"))
        elif not stat.S_ISREG(about.st_mode):
            self.left_out[path] = "neither a file nor a link"
        elif about.st_size > LARGEST_FILE:
            self._link(path, f"larger than {LARGEST_FILE >> 20} MiB")
        else:
            self._take_file(path)

    def _take_file(self, path: str) -> None:
        try:
            holds_key = may_hold_key(self.root / path, path) if self.read else is_named_like_key(path)
        except FileNotFoundError:
            return  # removed a moment ago
        except OSError:
            self.left_out[path] = "cannot be read"
            return
        if holds_key:
            self._link(path, HOLDS_KEY)
        else:
            self.items[path] = WorkTreeFile(path)

    def link_results(self) -> None:
        """Link to untracked sweeps of other results trees: they are not code, and they grow."""
        for top in results_among({*self.items, *self.untracked}):
            new = {path for path in self.untracked if path.startswith(top)}
            if not new:
                continue  # all of it is tracked, or part of an earlier one
            for by_path in (self.items, self.linked, self.left_out):
                for path in new & by_path.keys():
                    del by_path[path]
            self.untracked -= new
            if any(path.startswith(top) for path in self.items):
                self.left_out[top] = "results of a sweep, of which git tracks a part"
            else:
                self._link(top.rstrip("/"), "results of a sweep")

    def take_ignored(self, paths: Iterable[str]) -> None:
        """Link to ignored files that runs may need: data, environments and built modules."""
        links = 0
        for path in sorted(path.rstrip("/") for path in paths):
            name = path.rsplit("/", 1)[-1]
            if _is_below(path, self.without) or any(fnmatchcase(name, pattern) for pattern in _LITTER):
                continue
            if links == _MOST_LINKS:
                self.left_out[path] = (
                    f"git ignores more than {_MOST_LINKS} files and folders, this and others"
                )
                return
            links += 1
            self.items.setdefault(path, WorkTreeFile(path, os.fspath(self.root / path)))

    def _link(self, path: str, why: str) -> None:
        self.linked[path] = why
        self.items[path] = WorkTreeFile(path, os.fspath(self.root / path))

    def _take_repository(self, path: str) -> None:
        """Add a submodule, or another repository within this one."""
        inner = self.root / path
        if not (inner / ".git").exists():
            return  # a submodule that was not fetched
        self.repositories += 1
        if self.repositories > _MOST_REPOSITORIES:
            self.left_out[path] = f"there are more than {_MOST_REPOSITORIES} repositories in this one"
            return
        try:
            names, new = self.listed(inner, "-c"), self.listed(inner, "-o", "--exclude-standard")
        except NoWorkTree as error:
            self.left_out[path] = str(error)
            return
        self.take_all((f"{path}/{name}" for name in names), tracked=True)
        self.take_all((f"{path}/{name}" for name in new), tracked=False)

    def _moved_target(self, path: str) -> str:
        """Return a link's target in a copy: the same file, inside the copy if it is in the tree."""
        target, folder = os.readlink(self.root / path), os.path.dirname(path)
        full = os.path.normpath(self.root / folder / target)
        if not _is_below(full, [os.fspath(self.root)]):
            return full
        leaves = os.path.isabs(target) or os.path.normpath(os.path.join(folder, target)).startswith("..")
        return os.path.relpath(full, self.root / folder) if leaves else target


def _head(root: Path) -> tuple[str | None, str | None, bool]:
    """Return commit, branch and whether tracked files differ; None for a missing commit or branch."""
    command = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no")
    answer = _git(root, *command, any_owner=True)
    lines = [os.fsdecode(line) for line in answer.split(b"\0") if line]
    told = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit, branch = told.get("branch.oid"), told.get("branch.head")
    changed = any(not line.startswith("# ") for line in lines)
    return (None if commit == "(initial)" else commit, None if branch == "(detached)" else branch, changed)


def _without_nested(items: Iterable[WorkTreeFile]) -> tuple[WorkTreeFile, ...]:
    """Drop items below another one, as below a link that replaced a tracked folder."""
    by_path = {item.path: item for item in items}
    kept = (item for item in by_path.values() if not any(parent in by_path for parent in _parents(item.path)))
    return tuple(sorted(kept, key=lambda item: os.fsencode(item.path)))


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:number]) for number in range(1, len(parts))]


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _escaped(path: str) -> str:
    """Escape a path as a literal git pattern."""
    return re.sub(r"([\\*?\[ ])", r"\\\1", path)


def _git(folder: Path, *arguments: str, any_owner: bool) -> bytes:
    """Run git and return its output."""
    argv = ["git", *_NO_PROGRAMS, *(_ANY_OWNER if any_owner else ()), "-C", os.fspath(folder), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **_NO_FETCH}
    try:
        answer = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except FileNotFoundError:
        raise _unanswered(folder, "git is not installed") from None
    except OSError as error:
        raise _unanswered(folder, f"git cannot be started ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise OrchestrateError(
            f"{folder}: git took more than {_PATIENCE_S:.0f} s to look through the repository",
            hint=TOO_LARGE_HINT,
        ) from None
    if answer.returncode != 0:
        said = answer.stderr.decode(errors="replace").strip().splitlines()
        # Followed by a path, the repository exists: a link of git's to one that is elsewhere, or gone.
        if any("not a git repository (or any" in line for line in said):
            raise NoWorkTree("it is in no git repository")
        if any("dubious ownership" in line for line in said):
            raise _unanswered(
                folder, f"git refuses it as another user's; if you trust them: {said[-1].strip()}"
            )
        why = said[-1] if said else f"exit code {answer.returncode}"
        raise _unanswered(folder, f"git fails there ({why})")
    return answer.stdout


def _unanswered(folder: Path, why: str) -> NoWorkTree:
    is_one = any(os.path.lexists(parent / ".git") for parent in (folder, *folder.parents))
    return UnreadWorkTree(why) if is_one else NoWorkTree(why)

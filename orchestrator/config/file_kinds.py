"""Classify files by name: can they decide a program's results?"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

_SOURCE = re.compile(
    r".+\.(py|pyx|pxd|pyi|sh|bash|zsh|c|h|cc|cpp|cxx|hpp|hh|cu|cuh|rs|go|java|kt|scala|jl|r|lua|m|f|f90|f95|js|mjs|"
    r"ts|rb|pl|php|cs|swift|hs|ml|zig|nim|proto|glsl|wgsl|asm|s|mk|cmake)",
    re.IGNORECASE,
)
_SETTINGS = re.compile(r".+\.(yaml|yml|toml|ini|cfg|conf|gin|xml|urdf|mjcf|sdf)", re.IGNORECASE)
# Programs also write such files: they count only if git lists them.
_LISTED_ONLY = re.compile(r".+\.json", re.IGNORECASE)

_FOLDERS_LEFT_OUT = frozenset(("tests", "test", "docs", "doc", "node_modules", "__pycache__"))
# Settings of tools that check, package and describe a project; no training reads them.
_FILES_LEFT_OUT = re.compile(
    r"test_.*\.py|.*_test\.py|conftest\.py|pyproject\.toml|setup\.cfg|(tox|pytest|mypy)\.ini|ruff\.toml|"
    r"(mkdocs|environment)\.ya?ml|package(-lock)?\.json|\..*"
)

# Top folders of this program's own checkout, which may also hold users' programs.
_OURS = re.compile(r"orchestrator|jobs|templates|sky|launch|sweeps|tests|benchmarks|docs|examples")
_MARKS = ("orchestrator/rundir/attempts/claims.py", "jobs/train.py")


def is_source(name: str) -> bool:
    """Return whether the name is a source file's."""
    return _SOURCE.fullmatch(name) is not None


def is_listed_only(name: str) -> bool:
    """Return whether files of this name count only if git lists them."""
    return _LISTED_ONLY.fullmatch(name) is not None


def counts(name: str, *, listed: bool, ours: bool = False) -> bool:
    """Return whether a file counts by default; ``name`` is relative to a folder with a program.

    ``listed``: git lists it as one of a project's files; ``ours``: the folder is this program's checkout.
    """
    *folders, last = name.split("/")
    if not (_SOURCE.fullmatch(last) or _SETTINGS.fullmatch(last) or (listed and is_listed_only(last))):
        return False
    if _FILES_LEFT_OUT.fullmatch(last) or (ours and folders and _OURS.fullmatch(folders[0])):
        return False
    return not any(folder in _FOLDERS_LEFT_OUT or folder.startswith(".") for folder in folders)


def counts_if_opened(name: str, *, listed: bool) -> bool:
    """Return whether a file counts for a program that opened it; ``listed`` as for :func:`counts`.

    Data counts only if git lists it: programs write it, too.
    """
    *folders, last = name.split("/")
    if last.endswith(".py"):
        return listed or not any(folder.startswith(".") for folder in folders)
    if listed:
        return _FILES_LEFT_OUT.fullmatch(last) is None
    return counts(name, listed=True)


def is_own_package(names: Collection[str]) -> bool:
    """Return whether these files are this program's own checkout."""
    return set(_MARKS) <= set(names)


def modules_beside(folder: Path) -> Iterator[Path]:
    """Yield sources and settings in a folder, and in those below it with Python files.

    For folders outside git: other content there may be data and outputs.
    """
    for here, folders, names in os.walk(folder):
        if here != os.fspath(folder) and not any(name.endswith(".py") for name in names):
            folders[:] = []
            continue
        folders[:] = sorted(
            folder for folder in folders if not folder.startswith(".") and folder not in _FOLDERS_LEFT_OUT
        )
        yield from (Path(here, name) for name in sorted(names) if counts(name, listed=False))

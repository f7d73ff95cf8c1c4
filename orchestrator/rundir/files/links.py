"""Give files further names in the results tree: hard links where the file systems have them, else copies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file, or all files of a folder, under another name, for readers only."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True, copy_function=_link_file, dirs_exist_ok=True)
    else:
        _link_file(os.fspath(source), os.fspath(target))


def _link_file(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        pass
    except OSError:  # another file system, one without links, or a file of another user
        shutil.copy2(source, target, follow_symlinks=False)
    return target

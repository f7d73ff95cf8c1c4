"""Code that was kept with a sweep when it was submitted.

::

    results/<sweep>/code/<id>/
      tree/          the project as it was: the git work tree that held the folder of the submission
      ours/          this program's packages, unless they are part of tree/
      code.json      the project's root, commit and branch, what tree/ only links to or leaves out, and
                     every file's name
      changes.diff   tracked files against that commit; absent if there was nothing to tell
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from orchestrator.rundir.atomic import fsync_folder, read_json, storage_errors, temporary_name
from orchestrator.rundir.run import listdir
from orchestrator.rundir.sweep import SweepDir

_ID = re.compile(r"[0-9a-f]{16}")
_FOLDER, _FACTS = "code", "code.json"


@dataclass(frozen=True)
class CodeDir:
    """The folder of one frozen code. Its name says what is in it; it is whole or absent."""

    path: Path

    @classmethod
    def of(cls, sweep: SweepDir, code_id: str) -> Self:
        assert _ID.fullmatch(code_id), code_id
        return cls(sweep.path.absolute() / _FOLDER / code_id)

    @classmethod
    def holding(cls, path: Path) -> Self | None:
        """The frozen code that ``path``, an absolute one, lies in."""
        for folder in path.parents:
            if folder.parent.name == _FOLDER and _ID.fullmatch(folder.name) and (folder / _FACTS).is_file():
                return cls(folder)
        return None

    @property
    def code_id(self) -> str:
        return self.path.name

    @property
    def tree(self) -> Path:
        return self.path / "tree"

    @property
    def ours(self) -> Path:
        return self.path / "ours"

    @property
    def facts_path(self) -> Path:
        return self.path / _FACTS

    @property
    def changes(self) -> Path:
        return self.path / "changes.diff"

    def exists(self) -> bool:
        return self.facts_path.is_file()

    def facts(self) -> dict[str, Any]:
        """What ``code.json`` says. Raises ``FileNotFoundError`` and ``DamagedFileError``."""
        facts: dict[str, Any] = read_json(self.facts_path)
        return facts

    @contextmanager
    def draft(self) -> Iterator[CodeDir]:
        """A folder to fill and :meth:`publish`, which is gone afterwards. Call under the sweep's lock."""
        folder = self.path.parent
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _sweep_out(folder)
            draft = CodeDir(temporary_name(self.path))
            draft.path.mkdir()
            try:
                yield draft
            finally:
                shutil.rmtree(draft.path, ignore_errors=True)

    def publish(self, draft: CodeDir) -> None:
        """Give a draft this one's name, unless another command line was first, with the same."""
        try:
            os.rename(draft.path, self.path)
        except OSError:
            if not self.exists():
                raise
        fsync_folder(self.path.parent)


def _sweep_out(folder: Path) -> None:
    """Remove the drafts of command lines that were killed while they wrote."""
    for name in listdir(folder):
        if name.startswith(".") and name.endswith(".tmp"):
            shutil.rmtree(folder / name, ignore_errors=True)

"""Code snapshots: the code of each submission, kept with its sweep.

::

    results/<sweep>/code/<id>/
      tree/          the project: the git work tree that held the folder of the submission
      ours/          this program's packages, unless they are part of tree/: modules.zip, and what is
                     opened by its path
      code.json      the project's root, commit and branch, links and omissions of tree/, and
                     every file's name
      changes.diff   tracked files against that commit; absent without changes
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
from urllib.parse import quote, unquote_to_bytes

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.formats import require_known_format
from orchestrator.rundir.attempts.attempt import listdir
from orchestrator.rundir.files.atomic import fsync_folder, read_json, storage_errors, temporary_name
from orchestrator.rundir.sweep import SweepDir

_ID = re.compile(r"[0-9a-f]{16}")
_FOLDER, _FACTS = "code", "code.json"
MODULES = "modules.zip"


@dataclass(frozen=True)
class CodeDir:
    """The folder of one code snapshot. Its name is a hash of its content; it is complete or absent."""

    path: Path

    @classmethod
    def of(cls, sweep: SweepDir, code_id: str) -> Self:
        """Return the snapshot's folder in a sweep."""
        assert _ID.fullmatch(code_id), code_id
        return cls(sweep.path.absolute() / _FOLDER / code_id)

    @classmethod
    def holding(cls, path: Path) -> Self | None:
        """Return the snapshot that contains the absolute ``path``; None if there is none."""
        for folder in path.parents:
            if folder.parent.name == _FOLDER and _ID.fullmatch(folder.name) and (folder / _FACTS).is_file():
                return cls(folder)
        return None

    @property
    def code_id(self) -> str:
        """The snapshot's id: a hash of its content."""
        return self.path.name

    @property
    def tree(self) -> Path:
        """The copy of the project."""
        return self.path / "tree"

    @property
    def modules(self) -> Path:
        """The zip file of this program's packages, for Python's path, unless they are part of the project."""
        return self.path / "ours" / MODULES

    @property
    def facts_path(self) -> Path:
        """The file ``code.json``."""
        return self.path / _FACTS

    @property
    def changes(self) -> Path:
        """The diff of tracked files against the commit."""
        return self.path / "changes.diff"

    def exists(self) -> bool:
        """Return whether the snapshot is complete."""
        return self.facts_path.is_file()

    def facts(self) -> dict[str, Any]:
        """Read ``code.json``. Raises ``FileNotFoundError`` and ``DamagedFileError``."""
        facts: dict[str, Any] = read_json(self.facts_path)
        if isinstance(facts, dict):
            require_known_format(facts, self.facts_path)
        return facts

    def names(self) -> list[str]:
        """List the names of all parts of the snapshot, ``code.json`` last.

        Files that Python or runs add to the folder are not parts of it. Raises as :meth:`facts`.
        """
        try:
            kept = [unquoted(name) for name in self.facts()["files"]]
        except (KeyError, TypeError) as error:
            raise DamagedFileError(self.facts_path, f"lists no files: {error!r}") from None
        changes = [self.changes.name] * self.changes.is_file()
        return [*kept, *changes, _FACTS]

    @contextmanager
    def draft(self) -> Iterator[CodeDir]:
        """Provide a folder to fill and :meth:`publish`, removed afterwards. Call under the sweep's lock."""
        folder = self.path.parent
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _remove_drafts(folder)
            draft = CodeDir(temporary_name(self.path))
            draft.path.mkdir()
            try:
                yield draft
            finally:
                shutil.rmtree(draft.path, ignore_errors=True)

    def publish(self, draft: CodeDir) -> None:
        """Rename a draft to this snapshot, unless another command published the same one first."""
        try:
            os.rename(draft.path, self.path)
        except OSError:
            if not self.exists():
                raise
        fsync_folder(self.path.parent)


def quoted(name: str) -> str:
    """Return a file name of any bytes as text for JSON."""
    return quote(os.fsencode(name))


def unquoted(text: str) -> str:
    """Return the file name of a :func:`quoted` text."""
    return os.fsdecode(unquote_to_bytes(text))


def _remove_drafts(folder: Path) -> None:
    """Remove drafts of killed commands."""
    for name in listdir(folder):
        if name.startswith(".") and name.endswith(".tmp"):
            shutil.rmtree(folder / name, ignore_errors=True)

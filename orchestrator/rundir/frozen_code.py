"""Name a submission's code: the snapshot kept with its sweep, or sent to another results tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

# Modules that `python -m` starts in a snapshot of this version. Another version has its own names on
# record with its snapshots, so that modules can move while jobs wait and trees behind ssh keep earlier code.
ENTRY_POINTS: Mapping[str, str] = {
    "worker": "jobs.worker",
    "instance": "jobs.instance",
    "node": "jobs.worker.nodes.agent",
    "program": "orchestrator.ui.cli",
}
# A module by its name, as ASCII.
_Module = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")]


def _own_entry_points() -> Mapping[str, str]:
    return dict(ENTRY_POINTS)


@dataclass(frozen=True)
class FrozenCode:
    """A code snapshot, and the settings to start a worker on it. All paths are absolute.

    ``python_path``: the beginning of the worker's PYTHONPATH; ``cwd``: its folder; ``submit_dir``: the folder
    of the call, ORCHESTRATE_SUBMIT_DIR for programs. ``notes`` are for users. ``entries``: its modules for
    `python -m`, by purpose.
    """

    id: str
    path: Path
    python_path: tuple[Path, ...]
    cwd: Path
    submit_dir: Path
    notes: tuple[str, ...] = ()
    entries: Mapping[str, _Module] = field(default_factory=_own_entry_points, hash=False)


@dataclass(frozen=True)
class SentCode:
    """A code snapshot sent to a place: its id, and paths relative to its own folder.

    ``cwd`` is None if the folder of the call has no part in it. ``entries`` as for :class:`FrozenCode`.
    """

    id: str
    python_path: tuple[str, ...]
    cwd: str | None
    entries: Mapping[str, _Module] = field(default_factory=_own_entry_points, hash=False)

    def at(self, folder: Path, submit_dir: Path) -> FrozenCode:
        """Return the snapshot as it lies in ``folder``; without ``cwd`` runs start in ``submit_dir``."""
        paths = tuple(folder / path for path in self.python_path)
        cwd = submit_dir if self.cwd is None else folder / self.cwd
        return FrozenCode(self.id, folder, paths, cwd, submit_dir, entries=self.entries)

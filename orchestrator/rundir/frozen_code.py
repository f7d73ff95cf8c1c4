"""Name a submission's code: the snapshot kept with its sweep, or sent to another results tree."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

# Modules that `python -m` starts in a snapshot of this version. Another version has its own names on
# record with its snapshots, so that modules can move while jobs wait and trees behind ssh keep earlier code.
ENTRY_POINTS: Mapping[str, str] = {
    "worker": "jobs.worker",
    "instance": "jobs.instance",
    "node": "jobs.worker.nodes.agent",
    "answer": "orchestrator.answer",
}
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def _own_entry_points() -> Mapping[str, str]:
    return dict(ENTRY_POINTS)


def _entry_points(data: Mapping[str, Any]) -> Mapping[str, str]:
    """Read recorded entry points; a record without any has those of this version."""
    found = {**ENTRY_POINTS, **data.get("entries", {})}
    if any(type(module) is not str or not _MODULE.fullmatch(module) for module in found.values()):
        raise TypeError(f"entry points are names of modules, found {found!r}"[:200])
    return found


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
    entries: Mapping[str, str] = field(default_factory=_own_entry_points, hash=False)

    def to_json(self) -> dict[str, Any]:
        paths = {"path": self.path, "cwd": self.cwd, "submit_dir": self.submit_dir}
        return {
            **asdict(self),
            **{name: os.fspath(path) for name, path in paths.items()},
            "python_path": [os.fspath(path) for path in self.python_path],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            data["id"],
            Path(data["path"]),
            tuple(Path(path) for path in data["python_path"]),
            Path(data["cwd"]),
            Path(data["submit_dir"]),
            tuple(data["notes"]),
            _entry_points(data),
        )


@dataclass(frozen=True)
class SentCode:
    """A code snapshot sent to a place: its id, and paths relative to its own folder.

    ``cwd`` is None if the folder of the call has no part in it. ``entries`` as for :class:`FrozenCode`.
    """

    id: str
    python_path: tuple[str, ...]
    cwd: str | None
    entries: Mapping[str, str] = field(default_factory=_own_entry_points, hash=False)

    def to_json(self) -> dict[str, Any]:
        entries = dict(self.entries)
        return {"id": self.id, "python_path": list(self.python_path), "cwd": self.cwd, "entries": entries}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        code = cls(data["id"], tuple(data["python_path"]), data["cwd"], _entry_points(data))
        if any(type(text) is not str for text in (code.id, code.cwd or "", *code.python_path)):
            raise TypeError(f"a code snapshot has an id and paths, found {data!r}"[:200])
        return code

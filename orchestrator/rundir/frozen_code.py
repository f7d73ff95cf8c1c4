"""Name a submission's code: the snapshot kept with its sweep, or sent to another results tree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class FrozenCode:
    """A code snapshot, and the settings to start a worker on it. All paths are absolute.

    ``python_path``: the beginning of the worker's PYTHONPATH; ``cwd``: its folder; ``submit_dir``: the folder
    of the call, ORCHESTRATE_SUBMIT_DIR for programs. ``notes`` are for users.
    """

    id: str
    path: Path
    python_path: tuple[Path, ...]
    cwd: Path
    submit_dir: Path
    notes: tuple[str, ...] = ()

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
        )


@dataclass(frozen=True)
class SentCode:
    """A code snapshot sent to a place: its id, and paths relative to its own folder.

    ``cwd`` is None if the folder of the call has no part in it.
    """

    id: str
    python_path: tuple[str, ...]
    cwd: str | None

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "python_path": list(self.python_path), "cwd": self.cwd}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        code = cls(data["id"], tuple(data["python_path"]), data["cwd"])
        if any(type(text) is not str for text in (code.id, code.cwd or "", *code.python_path)):
            raise TypeError(f"a code snapshot has an id and paths, found {data!r}"[:200])
        return code

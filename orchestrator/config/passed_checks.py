"""Remember checks that found nothing, so that an unchanged grid is not checked again."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from orchestrator.config.task_packages import registering_module, task_of
from orchestrator.config.trainers import TrainerSpec
from orchestrator.core.machine import hardware
from orchestrator.core.types import Run, Value

# A check sees more of a machine, such as drivers, than a key can name. So it is repeated after a day.
_LIFETIME_S = 24 * 3600
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "DISPLAY", "LD_LIBRARY_PATH", "SC2PATH")


@dataclass(frozen=True)
class PassedCheck:
    """A file in the user's cache that exists if the check with this key has passed."""

    path: Path

    @classmethod
    def of(cls, spec: TrainerSpec, runs: Mapping[str, Run], request: Value) -> PassedCheck | None:
        """Return the place of a check of ``runs``, by configuration.

        These, ``request``, and the code and the machine that check them make the key. ``None`` if the check
        may read files that a person edits: of a program, an own trainer, a plug-in, a task's own module.
        """
        worker_side = _worker_side()
        if worker_side is None or not spec.first_look or spec.plugins or os.environ.get("PYTHONPATH"):
            return None
        if any(registering_module(task_of(run)) for run in runs.values()) or any(
            map(_is_edited, spec.packages)
        ):
            return None
        read = {
            "request": [request, sorted(runs)],
            # Installing a package changes the folder that it is in.
            "packages": _stamps(map(Path, sys.path)),
            # The first check compiles the sources.
            "files": _stamps(sorted(path for path in worker_side.rglob("*.*") if path.suffix != ".pyc")),
            "machine": [socket.gethostname(), hardware.gpus()],
            "variables": {name: os.environ.get(name) for name in _VARIABLES},
        }
        key = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:32]
        return cls(_folder() / key)

    def structures(self) -> int | None:
        """Return the number of structures that were checked; ``None`` if the check has to be run."""
        try:
            if time.time() - self.path.stat().st_mtime < _LIFETIME_S:
                return int(self.path.read_text())
        except (OSError, ValueError):
            pass  # never checked, or cut short by a kill
        return None

    def record(self, structures: int) -> None:
        """Remember that the check passed, and forget those that are too old. Without a cache, do nothing."""
        with contextlib.suppress(OSError):
            # Connections of ssh are kept there, too, in a folder that only the user can use.
            self.path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.parent.mkdir(exist_ok=True)
            for other in self.path.parent.iterdir():
                if time.time() - other.stat().st_mtime > _LIFETIME_S:
                    other.unlink()
            self.path.write_text(f"{structures}\n")


def _folder() -> Path:
    # The XDG specification ignores a relative path.
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "orchestrate" / "passed-checks"


def _worker_side() -> Path | None:
    spec = importlib.util.find_spec("jobs")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _is_edited(package: str) -> bool:
    """Whether the installed package is a folder of sources."""
    try:
        return '"editable": true' in (distribution(package).read_text("direct_url.json") or "")
    except PackageNotFoundError:
        return False


def _stamps(paths: Iterable[Path]) -> list[list[Value]]:
    """Return path, size and time of the last change of those that exist."""
    stamps: list[list[Value]] = []
    for path in paths:
        with contextlib.suppress(OSError):
            state = path.stat()
            stamps.append([str(path), state.st_size, state.st_mtime_ns])
    return stamps

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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.trainers import TrainerSpec, plugin_folder
from orchestrator.core import hardware
from orchestrator.core.types import Value

# A check sees more of a machine, such as drivers, than a key can name. So it is repeated after a day.
_LIFETIME_S = 24 * 3600
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "DISPLAY", "LD_LIBRARY_PATH", "PYTHONPATH", "SC2PATH")


@dataclass(frozen=True)
class PassedCheck:
    """A file in the user's cache that exists if the check with this key has passed."""

    path: Path

    @classmethod
    def of(cls, spec: TrainerSpec, request: Value) -> PassedCheck | None:
        """Return the place of a check: ``request`` and the code and the machine that check it make the key.

        ``None`` if the check may read any file, as that of a program or of a user's own trainer.
        """
        folders = [_worker_side(), *(plugin_folder(source) for source in spec.plugins)]
        if not spec.first_look or None in folders:
            return None
        read = {
            "request": request,
            # Installing a package changes the folder that it is in.
            "packages": _stamps(map(Path, sys.path)),
            "files": [_stamps(sorted(folder.rglob("*.*"))) for folder in folders if folder],
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
            self.path.parent.mkdir(parents=True, exist_ok=True)
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


def _stamps(paths: Iterable[Path]) -> list[list[Value]]:
    """Return path, size and time of the last change of those that exist."""
    found: list[list[Value]] = []
    for path in paths:
        with contextlib.suppress(OSError):
            state = path.stat()
            found.append([str(path), state.st_size, state.st_mtime_ns])
    return found

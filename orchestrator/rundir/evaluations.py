"""Evaluations of trained policies: one JSON file each, named by a hash of the request.

A repeated evaluation has the same name and the same returns: it replaces the file. Records never change a
run, and lost ones can be made again from its checkpoint. ``sync`` fetches them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import parse, plain
from orchestrator.rundir.copy_origin import source_folders
from orchestrator.rundir.files.atomic import dump_json, read_json, storage_errors, write_atomic

_FOLDER = "evaluations"
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}\.json")
# Fields that name a record; the others are its outcome.
_REQUEST = ("run_id", "frames", "best", "checkpoint", "task", "episodes", "seed", "deterministic")


@dataclass(frozen=True)
class Evaluation:
    """One evaluated policy.

    ``frames``: length of its training. ``best``: the policy with the highest return among the run's
    evaluations so far, not the newest one. ``checkpoint``: digest of its file; a run trained anew has
    another. ``task``: as in a grid, followed by the changed settings if any ("vmas/navigation
    task.n_agents=8"). ``returns`` and ``lengths`` (steps): one for each episode; a return is the sum of
    rewards, the mean over agents and then over groups of agents, as in BenchMARL's own evaluation. ``time``:
    end of the evaluation in epoch seconds. ``figures``: further results by name; ``baselines``: the same
    figures of scripted players in as many episodes of this task, by player.
    """

    run_id: str
    frames: int
    best: bool
    checkpoint: str
    task: str
    episodes: int
    seed: int
    deterministic: bool
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    time: float
    figures: Mapping[str, float] = field(default_factory=dict)
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its file."""
        asked = {key: getattr(self, key) for key in _REQUEST}
        return f"{self.run_id}-{hashlib.sha256(dump_json(asked)).hexdigest()[:16]}.json"

    @classmethod
    def from_json(cls, data: Any) -> Evaluation:
        """Parse a record. Raises ``ValueError`` for invalid data."""
        found = parse(cls, data)
        if not len(found.returns) == len(found.lengths) == found.episodes:
            raise ValueError("not one return and one length an episode")
        return found


class EvaluationLog:
    """A sweep's evaluations: those of this tree and those fetched from further sources."""

    def __init__(self, sweep: Path) -> None:
        self.path, self._sweep = sweep / _FOLDER, sweep

    def read(self) -> list[Evaluation]:
        """Return all evaluations, oldest first; unreadable files are skipped."""
        found: dict[str, Evaluation] = {}
        for path in self._files():
            try:
                evaluation = Evaluation.from_json(read_json(path))
            except (DamagedFileError, OSError, ValueError):
                continue  # a repeated evaluation replaces it
            if evaluation.name == path.name:
                found.setdefault(path.name, evaluation)
        return sorted(found.values(), key=lambda one: (one.time, one.name))

    def add(self, evaluation: Evaluation) -> Path:
        """Store an evaluation; return its path."""
        with storage_errors(self.path):
            self.path.mkdir(exist_ok=True)
        path = self.path / evaluation.name
        write_atomic(path, dump_json(plain(evaluation), indent=1))
        return path

    def _files(self) -> Iterator[Path]:
        for folder in (self.path, *(source / _FOLDER for source in source_folders(self._sweep))):
            if folder.is_dir():
                yield from (path for path in sorted(folder.iterdir()) if _NAME.fullmatch(path.name))

"""Audits of resume: a JSON file for each code that was audited, named by its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import parse, plain
from orchestrator.rundir.files.atomic import dump_json, read_json, storage_errors, write_atomic

FOLDER = "audits"
EXACT, NOT_EXACT, NOT_DETERMINISTIC = "exact", "not exact", "not deterministic"


@dataclass(frozen=True)
class MetricDifference:
    """A metric that differs between two executions, from ``frames`` on, where it had these values.

    ``None`` stands for no value. ``largest``: the largest absolute difference of all.
    """

    metric: str
    frames: int
    straight: float | None
    other: float | None
    largest: float


@dataclass(frozen=True)
class LeftOut:
    """A part of the program's state that a resumed run lacks: its kind in words, and its place.

    ``was`` and ``became``: its value in the straight run and in the resumed one, as text.
    """

    kind: str
    name: str
    was: str = ""
    became: str = ""


@dataclass(frozen=True)
class Audit:
    """What an audit found. ``point``: the run that was trained; ``frames``: its length.

    ``kills``: frames of the checkpoints after which it was killed. ``declared``: the exactness it claims.
    ``code_files`` and ``traced`` are those of its result. ``time``: epoch seconds; ``seconds``: how long.
    """

    verdict: str
    point: Mapping[str, Any]
    frames: int
    kills: tuple[int, ...]
    declared: str
    code_id: str
    time: float
    seconds: float
    differences: tuple[MetricDifference, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    code_files: Mapping[str, Any] | None = None
    traced: bool = False
    ignored: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def overstated(self) -> bool:
        """Whether the program declares more than the audit found."""
        return self.declared == EXACT and self.verdict != EXACT

    def warning(self, sweep: str) -> str:
        """Return the warning of a sweep's program that declares more than the audit found."""
        parts = ", ".join(f"{one.kind} {one.name}" for one in self.left_out[:2])
        lost = f" ({parts} not restored)" if parts else ""
        return (
            f'{sweep}: the program declares exactness="exact", but its audit found it {self.verdict}{lost}: '
            "save what is missing and audit again, or declare less"
        )


class AuditLog:
    """The audits of a sweep."""

    def __init__(self, sweep: Path) -> None:
        self._folder = sweep / FOLDER

    def read(self) -> list[Audit]:
        """Return all audits, newest first; unreadable files are skipped."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(parse(Audit, read_json(path)))
            except (DamagedFileError, OSError, ValueError):
                continue  # a repeated audit replaces it
        return sorted(found, key=lambda one: -one.time)

    def add(self, audit: Audit) -> Path:
        """Store an audit; return its path."""
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{audit.code_id}.json"
        write_atomic(path, dump_json(plain(audit), indent=1))
        return path

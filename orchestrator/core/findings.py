"""Findings of the doctor's checks. A check examines one thing and raises nothing."""

from __future__ import annotations

import enum
from dataclasses import dataclass

# Seconds to wait for a command: a person waits. Slurm's commands give a controller that is down about ten.
PATIENCE_S = 15.0
_LONGEST = 500


class Verdict(enum.Enum):
    """Outcome of a check. NOT_HERE: it does not apply to this machine, or cannot be checked from it."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_HERE = "not here"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's: ``name`` is the thing checked, ``fix`` a remedy, on one line.

    ``blocks``: no later check of the same target can work.
    """

    name: str
    verdict: Verdict
    found: str
    fix: str | None = None
    blocks: bool = False

    def to_json(self) -> dict[str, str | None]:
        """Return the finding as JSON values."""
        return {"name": self.name, "verdict": self.verdict.value, "found": self.found, "fix": self.fix}


def ok(name: str, found: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(name, Verdict.OK, _line(found))


def warning(name: str, found: str, fix: str) -> Finding:
    """Return a finding that limits what works, with a fix."""
    return Finding(name, Verdict.WARNING, _line(found), _line(fix))


def problem(name: str, found: str, fix: str, *, blocks: bool = False) -> Finding:
    """Return a finding that prevents work, with a fix."""
    return Finding(name, Verdict.PROBLEM, _line(found), _line(fix), blocks)


def not_here(name: str, found: str, fix: str | None = None) -> Finding:
    """Return a finding that a check does not apply here."""
    return Finding(name, Verdict.NOT_HERE, _line(found), fix and _line(fix))


def _line(text: str) -> str:
    """Return any program's output as one printable line of limited length."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"

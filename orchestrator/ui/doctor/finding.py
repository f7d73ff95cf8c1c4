"""What a check of the doctor found."""

from __future__ import annotations

import enum
from dataclasses import dataclass

_LONGEST = 500


class Verdict(enum.Enum):
    """How a check ended. NOT_HERE: it does not concern this machine, or cannot be told from it."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_HERE = "not here"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's: ``name`` is what was looked at, ``fix`` what a person can do, on one line."""

    name: str
    verdict: Verdict
    found: str
    fix: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"name": self.name, "verdict": self.verdict.value, "found": self.found, "fix": self.fix}


def ok(name: str, found: str) -> Finding:
    return Finding(name, Verdict.OK, _line(found))


def warning(name: str, found: str, fix: str) -> Finding:
    return Finding(name, Verdict.WARNING, _line(found), _line(fix))


def problem(name: str, found: str, fix: str) -> Finding:
    return Finding(name, Verdict.PROBLEM, _line(found), _line(fix))


def not_here(name: str, found: str, fix: str | None = None) -> Finding:
    return Finding(name, Verdict.NOT_HERE, _line(found), fix and _line(fix))


def _line(text: str) -> str:
    """What programs print may be anything: one line of it, not endless, nothing that moves a cursor."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"

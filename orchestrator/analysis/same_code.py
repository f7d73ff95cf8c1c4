"""Decide which runs of a sweep count as trained by the same code, though each used other files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.analysis.run_table import RunReading
from orchestrator.core.types import RunState

# A fact of a run that is no column: the hashes of the project's files that it used.
CODE_FILES = "code_files"


def with_same_code(readings: Iterable[RunReading]) -> list[RunReading]:
    """Let runs of one sweep count as one code if no file that several of them used differs.

    Variants may use files of their own, such as an algorithm's module or a file of a Hydra group. Sets
    ``accepted_as``, and takes :data:`CODE_FILES` out of the facts.
    """
    known = list(readings)
    same = _same_codes(sorted(known, key=lambda reading: reading.state is RunState.STALE))
    return [replace(reading, facts=_counted(reading, same)) for reading in known]


def _same_codes(readings: Iterable[RunReading]) -> dict[tuple[str, str], str]:
    """Return, by sweep and code id, the id of the first code with files that agree."""
    programs: dict[str, list[tuple[str, dict[str, str]]]] = {}
    same: dict[tuple[str, str], str] = {}
    for reading in readings:
        files, code = reading.facts.get(CODE_FILES), reading.facts.get("code_id")
        if not isinstance(files, dict) or code is None or (reading.sweep, code) in same:
            continue
        own = programs.setdefault(reading.sweep, [])
        agreeing = (one for one in own if all(one[1].get(name, files[name]) == files[name] for name in files))
        first, used = next(agreeing, (code, {}))
        if first == code:
            own.append((code, used))
        used.update(files)
        same[reading.sweep, code] = first
    return same


def _counted(reading: RunReading, same: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    facts = {name: value for name, value in reading.facts.items() if name != CODE_FILES}
    code = facts.get("accepted_as") or facts.get("code_id")
    first = same.get((reading.sweep, code)) if code else None
    return facts if first in (None, code) else {**facts, "accepted_as": first}

"""A program's description of itself, and the packages that it imported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from jobs.trainers.command.lines import PROGRAM_KEY
from jobs.training.context import EXACT, NO_PROGRESS_LOST, RESET, UNDECLARED
from orchestrator.config.program.identity import ProgramFiles

_EXACTNESS = (EXACT, NO_PROGRESS_LOST, RESET)
_KEYS = {"exactness", "versions"}

# Packages that decide results even where the program's own files do not name them.
_DECISIVE = re.compile(
    r"benchmarl|brax|flax|gym|gymnasium|haiku|jax|jaxlib|keras|mujoco|numpy|optax|pettingzoo|pufferlib|ray|scipy|"
    r"stable_baselines3|tensordict|tensorflow|tianshou|torch|torchrl|transformers|vmas"
)
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([A-Za-z_]\w*)|import[ \t]+([^\n#;]+))", re.MULTILINE)


@dataclass(frozen=True)
class Declared:
    """A program's description of itself.

    ``exactness``: as of :class:`~jobs.training.context.Outcome`, "undeclared" if the program gave none.
    """

    exactness: str = UNDECLARED
    versions: Mapping[str, str] = field(default_factory=dict)

    def with_line(self, line: Mapping[str, Any]) -> Self:
        """Add the content of a line ``{"program": {...}}``. Raises ``ValueError``."""
        said = line[PROGRAM_KEY]
        if set(line) != {PROGRAM_KEY} or not isinstance(said, Mapping):
            raise ValueError(f"a line with {PROGRAM_KEY!r} has no other key, and a mapping as its value")
        if unknown := set(said) - _KEYS:
            raise ValueError(f"unknown key {min(unknown)!r} of {PROGRAM_KEY!r}; known are {sorted(_KEYS)}")
        exactness, versions = said.get("exactness", self.exactness), said.get("versions", {})
        if exactness != self.exactness and exactness not in _EXACTNESS:
            raise ValueError(f"exactness is {exactness!r}; expected one of {list(_EXACTNESS)}")
        if not isinstance(versions, Mapping) or not all(isinstance(text, str) for text in versions.values()):
            raise ValueError(f"versions are {versions!r}; expected texts by name")
        return type(self)(exactness, {**self.versions, **versions})


def declared_in(metrics: Path) -> Declared:
    """Return what the program of an earlier attempt declared in its metrics, as far as they are there."""
    declared = Declared()
    try:
        for line in metrics.read_bytes().splitlines():
            data = json.loads(line)
            declared = declared.with_line(data) if PROGRAM_KEY in data else declared
    except (OSError, ValueError, TypeError):
        pass
    return declared


def raised(notes: Path) -> bool | None:
    """Return whether an exception ended a Python process of the program; ``None`` if none noted its end."""
    try:
        ends = {"raised", "returned"}.intersection(notes.read_text(errors="replace").splitlines())
    except OSError:
        return None
    return "raised" in ends if ends else None


def imported_packages(notes: Path, program: ProgramFiles) -> dict[str, str]:
    """Return the versions, noted by the program's Python, of itself and of packages that decide a result.

    Of all imported packages, those that the program's own files name and those known to decide results.
    """
    try:
        lines = notes.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name, _, version = line.partition(" ")
        if version:
            found[name] = version
    wanted = {"python", *_named(program)} if found else set()
    return {
        name: version
        for name, version in sorted(found.items())
        if name in wanted or _DECISIVE.fullmatch(name)
    }


def _named(program: ProgramFiles) -> Iterable[str]:
    """Yield the top-level modules that the program's Python files import."""
    for name in program.files:
        if not name.endswith(".py"):
            continue
        try:
            text = Path(name).read_text(errors="replace")
        except OSError:
            continue
        for match in _IMPORT.finditer(text):
            for item in (match[1] or match[2]).split(","):
                yield item.strip().partition(" ")[0].partition(".")[0]

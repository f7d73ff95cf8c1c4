"""Tasks on which policies play: read from `--on-task`, written in records of evaluations."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from orchestrator.config.yaml_files.scalars import resolve
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.labels import Point
from orchestrator.core.types import Value

_EXAMPLE = "for example: --on-task vmas/balance, or with other values: --on-task vmas/navigation,n_agents=5"
_OPEN, _CLOSED, _SEPARATOR = "[", "]", ","


@dataclass(frozen=True)
class PlayedTask:
    """A task to play: its ``name`` in a grid, ``None`` for a run's own, with ``changes`` of its keys."""

    name: str | None = None
    changes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_pattern(self) -> bool:
        """Whether the name stands for several tasks, as ``bucket_brigade/*``."""
        return self.name is not None and any(letter in self.name for letter in "*?")

    def text(self, own: str) -> str:
        """Return it as in records; ``own`` is the run's own task."""
        changed = (f"{key}={json.dumps(value)}" for key, value in sorted(self.changes.items()))
        return " ".join([self.name or own, *changed])


OWN_TASK = PlayedTask()


def parse_task(text: str) -> PlayedTask:
    """Parse a task and changes of its keys: ``vmas/navigation,n_agents=5`` or just its name.

    A value may be a list: ``bucket_brigade/hard,opponents=[hero,liar]``. Raises :class:`OrchestrateError`.
    """
    task, *pairs = (part.strip() for part in _split(text))
    if not task or "=" in task:
        raise OrchestrateError(f"--on-task: found {text!r}, expected a task", hint=_EXAMPLE)
    changes = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip().removeprefix("task.")
        if not key or not equals:
            raise OrchestrateError(f"--on-task: found {pair!r}, expected key=value", hint=_EXAMPLE)
        try:
            changes[f"task.{key}"] = _value(value.strip())
        except ValueError as error:
            raise OrchestrateError(f"--on-task: {key}: {error}") from None
    return PlayedTask(task, changes)


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that stand in no brackets."""
    begin = depth = 0
    for place, letter in enumerate(text):
        depth += (letter == _OPEN) - (letter == _CLOSED)
        if letter == _SEPARATOR and depth <= 0:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


def _value(text: str) -> Value:
    if not text.startswith(_OPEN):
        return resolve(text)
    if not text.endswith(_CLOSED) or text.count(_OPEN) != text.count(_CLOSED):
        raise ValueError(f"found {text!r}, expected a list such as [hero,liar]")
    inside = text[1:-1].strip()
    return [_value(part.strip()) for part in _split(inside)] if inside else []


def read_task(text: str) -> dict[str, Any]:
    """Return the point of a task in a record: ``task`` and its changed keys.

    Raises :class:`ValueError` if it is none.
    """
    name, _, rest = text.partition(" ")
    point: dict[str, Any] = {"task": name}
    decoder = json.JSONDecoder()
    while rest:
        key, _, rest = rest.partition("=")
        point[key], end = decoder.raw_decode(rest)
        rest = rest[end:].lstrip()
    return point


def expanded(tasks: Iterable[PlayedTask], names: Sequence[str]) -> list[PlayedTask]:
    """Replace patterns by the ``names`` that fit. Raises :class:`OrchestrateError` if none does."""
    played: list[PlayedTask] = []
    for task in tasks:
        if not task.is_pattern:
            played.append(task)
            continue
        assert task.name is not None
        fitting = fnmatch.filter(names, task.name)
        if not fitting:
            families = list(dict.fromkeys(name.partition("/")[0] for name in names))
            near = get_close_matches(task.name.partition("/")[0], families, n=1) or families
            told = " or ".join(f"{family}/*" for family in near)
            raise OrchestrateError(f"--on-task: no task fits {task.name!r}", hint=f"there are {told}")
        played += [replace(task, name=name) for name in fitting]
    return played


def without_family(tasks: list[str]) -> list[str]:
    """Return the names of tasks without the family that all of them share, as they are without one."""
    alike = len({task.partition("/")[0] for task in tasks}) == 1 and all("/" in task for task in tasks)
    return [task.partition("/")[2] for task in tasks] if alike else tasks


def trained_on(points: Iterable[Point]) -> list[PlayedTask]:
    """Return the tasks of these points of a grid, each once."""
    tasks: dict[str, PlayedTask] = {}
    for point in points:
        if "task" in point:
            changes = {key: value for key, value in point.items() if key.startswith("task.")}
            task = PlayedTask(str(point["task"]), changes)
            tasks.setdefault(task.text(""), task)
    return list(tasks.values())

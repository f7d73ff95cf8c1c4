"""Has the trainer look at a sweep in a process of its own, before anything is submitted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from orchestrator.errors import GridError, OrchestrateError
from orchestrator.grid import Position, parse_grid
from orchestrator.grid.model import bare_key
from orchestrator.types import Plan, Sweep, Value

_TAIL_LINES = 15
_PATIENCE_SECONDS = 600


@dataclass(frozen=True)
class CheckProblem:
    """A fault found before any training. ``run_id`` is one run that has it; ``line`` is in the grid file."""

    run_id: str
    key: str | None
    message: str
    hint: str | None
    file: str
    line: int | None
    column: int | None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{place}: {self.message}{hint}"

    def to_json(self) -> dict[str, Value]:
        return asdict(self)


@dataclass(frozen=True)
class CheckReport:
    """What a check found. ``structures`` is how many kinds of configuration the ``points`` runs have."""

    problems: tuple[CheckProblem, ...]
    structures: int
    points: int
    seconds: float


def problems_of(plan: Plan) -> tuple[CheckProblem, ...]:
    """What is wrong with the runs that are about to be submitted, now or when the queue has room."""
    todo = {*plan.run_ids, *plan.waiting}
    if not todo:
        return ()
    runs = tuple(run for run in plan.sweep.runs if run.run_id in todo)
    return check_sweep(replace(plan.sweep, runs=runs), partial=len(runs) < len(plan.sweep.runs)).problems


def check_sweep(sweep: Sweep, python: str = sys.executable, *, partial: bool = False) -> CheckReport:
    """Validate every distinct structure and value of a sweep on the worker's side; trains nothing.

    ``python`` would run the workers. ``partial``: the grid has other runs too. Raises
    :class:`OrchestrateError` if it cannot check at all.
    """
    began = time.monotonic()
    plugins = [asdict(plugin) for plugin in sweep.plugins]
    request = {"trainer": sweep.trainer, "plugins": plugins, "runs": [run.to_json() for run in sweep.runs]}
    answer = _ask(python, json.dumps(request))
    positions = _positions(sweep)
    problems = [
        _located(found, positions, sweep.source)
        for found in answer["problems"]
        if not (partial and found["whole"])
    ]
    problems.sort(key=lambda problem: (problem.line is None, problem.line, problem.column))
    return CheckReport(tuple(problems), answer["structures"], len(sweep.runs), time.monotonic() - began)


def _ask(python: str, request: str) -> dict[str, Value]:
    # -P: a folder named jobs where the command was typed is not ours.
    argv = [python, "-P", "-m", "jobs.check"]
    try:
        done = subprocess.run(
            argv, input=request, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except OSError as error:
        raise OrchestrateError(f"cannot start {python}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise OrchestrateError(f"the check took more than {_PATIENCE_SECONDS} s and was ended") from None
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-_TAIL_LINES:])
        missing = "No module named" in tail
        raise OrchestrateError(
            f"the check ended with exit code {done.returncode}:\n{tail}",
            hint="install what training needs: pip install 'orchestrate[train]'" if missing else None,
        )
    answer: dict[str, Value] = json.loads(done.stdout)
    return answer


def _positions(sweep: Sweep) -> Mapping[str, Position]:
    try:
        return parse_grid(sweep.grid_text, sweep.source).positions
    except GridError:
        return {}  # a sweep that was not made from a file


def _located(found: Mapping[str, Value], positions: Mapping[str, Position], file: str) -> CheckProblem:
    key = found["key"]
    at = None if key is None else positions.get(key) or positions.get(bare_key(key))
    line, column = at if at is not None else (None, None)
    return CheckProblem(found["run_id"], key, found["message"], found["hint"], file, line, column)

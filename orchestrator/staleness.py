"""Which finished runs other code trained than today's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.assignments import share
from orchestrator.errors import OrchestrateError
from orchestrator.freeze import FrozenCode
from orchestrator.ledger import submitted_plugins
from orchestrator.program import Program, ProjectFiles, project_files
from orchestrator.rundir import CodeDir, IndexRow, SweepDir
from orchestrator.rundir.synced import copy_of
from orchestrator.state import RunStatus, Survey, mark_stale
from orchestrator.trainers import TrainerSpec, code_id, get_trainer, is_installed
from orchestrator.types import RunState, array_of

_MOST_NAMED = 3


def with_stale(seen: Survey, sweep_dir: SweepDir) -> Survey:
    """The survey with runs that other code than today's trained as stale.

    Without the trainer's packages, as on a laptop that only looks, there is no code of today. A copy shows
    what was done elsewhere.
    """
    if copy_of(sweep_dir) is not None:
        return seen
    spec = _trainer_of(sweep_dir)
    if spec is None or not is_installed(spec):
        return seen
    if not spec.runs_program:
        return mark_stale(seen, code_id(spec))
    try:
        return _with_stale_programs(seen, sweep_dir)
    except OrchestrateError:
        return seen  # a project that cannot be read is reported by what submits it


def _trainer_of(sweep_dir: SweepDir) -> TrainerSpec | None:
    for entry in reversed(sweep_dir.read_ledger()):
        if entry.kind == "submission":
            try:
                return get_trainer(entry.data["trainer"]).with_plugins(submitted_plugins(sweep_dir))
            except OrchestrateError:
                return None
    return None


def _with_stale_programs(seen: Survey, sweep_dir: SweepDir) -> Survey:
    """Hold the program of each finished run against the one that would be submitted today."""
    today = _todays_files(sweep_dir)
    if today is None:
        return seen
    kept = _Kept(sweep_dir)
    statuses = dict(seen.statuses)
    for row in seen.rows:
        status = statuses[row.run_id]
        if status.state is RunState.DONE and (why := _why_stale(row, status, today, kept)):
            statuses[row.run_id] = replace(status, state=RunState.STALE, message=why)
    return replace(seen, statuses=statuses)


def _why_stale(row: IndexRow, status: RunStatus, today: ProjectFiles, kept: _Kept) -> str | None:
    now = today.program(row.point)
    if status.code_id in (None, now.id):
        return None
    was = kept.program(row, status)
    if was is None:
        return f"trained by other code ({status.code_id}, today's is {now.id})"
    # The grid may have come to say otherwise which files count: that holds for what was trained before, too.
    differing = was.differing(now)
    return f"trained by other code: {_named(differing, was, now)}" if differing else None


def _named(names: list[str], was: Program, now: Program) -> str:
    def what(name: str) -> str:
        if name not in now.files:
            return f"{name} is gone"
        return f"{name} {'changed' if name in was.files else 'is new'}"

    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(what, names[:_MOST_NAMED])) + more


def _todays_files(sweep_dir: SweepDir) -> ProjectFiles | None:
    """Of the folder in which the sweep was submitted last; where that is gone, of the copy kept of it."""
    ledger = sweep_dir.read_ledger()
    for entry in reversed(ledger):
        if entry.kind != "submission":
            continue
        start = entry.data.get("folder")
        if "code" in entry.data:
            code = FrozenCode.from_json(entry.data["code"])
            # Where the code was sent here, its project is elsewhere.
            start = code.cwd if share(ledger) is not None or not code.submit_dir.is_dir() else code.submit_dir
        if start is not None:
            return project_files(Path(start), [sweep_dir.results.resolve()]) if Path(start).is_dir() else None
    return None


class _Kept:
    """The programs in the copies that submissions kept."""

    def __init__(self, sweep_dir: SweepDir) -> None:
        self._results = sweep_dir.results.resolve()
        self._folders: Mapping[str, Path] = {
            array_of(job["token"]): Path(entry.data["code"]["cwd"])
            for entry in sweep_dir.read_ledger()
            if entry.kind == "submission" and "code" in entry.data
            for job in entry.data["jobs"]
        }

    def program(self, row: IndexRow, status: RunStatus) -> Program | None:
        """What would count for the run today of the copy that its last attempt ran, if there is one."""
        folder = self._folders.get(array_of(status.token or ""))
        if folder is None or not folder.is_dir() or CodeDir.holding(folder / "here") is None:
            return None
        return project_files(folder, [self._results]).program(row.point)

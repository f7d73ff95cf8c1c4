"""Which finished runs other code trained than today's."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.config.code.identity import code_id
from orchestrator.config.file_kinds import is_source
from orchestrator.config.program.identity import ProgramFiles, ProjectFiles, project_files
from orchestrator.config.trainers import TrainerSpec, get_trainer, is_installed
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formatting import printable
from orchestrator.core.types import RunState, array_of
from orchestrator.rundir import CodeDir, IndexRow, SweepDir
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.records.ledger_entries import jobs_of, submissions
from orchestrator.status.ledger import submitted_plugins
from orchestrator.status.ownership import share
from orchestrator.status.survey import RunStatus, Survey, mark_stale

_MOST_NAMED = 3
# A name that YAML reads as it stands, in a list too.
_PLAIN = re.compile(r"[\w./-]+", re.ASCII)
_UNKNOWN = "which runs are stale is unknown"


def with_stale(seen: Survey, sweep_dir: SweepDir) -> Survey:
    """The survey with runs that other code than today's trained as stale.

    Without the trainer's packages, as on a laptop that only looks, there is no code of today. A copy shows
    what was done elsewhere. There a note says if different code trained the runs.
    """
    if read_copy(sweep_dir.path) is not None:
        return _with_codes_noted(seen)
    spec = _trainer_of(sweep_dir)
    if spec is None or not is_installed(spec):
        return _with_codes_noted(seen)
    if not spec.runs_program:
        return mark_stale(seen, code_id(spec))
    try:
        return _with_stale_programs(seen, sweep_dir)
    except OrchestrateError as error:
        return replace(seen, notes=(*seen.notes, f"{_UNKNOWN}: {error}"))


def _with_codes_noted(seen: Survey) -> Survey:
    done = (seen.statuses[row.run_id] for row in seen.rows if row.in_grid)
    runs = Counter(one.code_id for one in done if one.state is RunState.DONE and one.code_id is not None)
    if len(runs) < 2:
        return seen
    listed = ", ".join(f"{code}: {count}" for code, count in runs.most_common(_MOST_NAMED))
    more = ", …" if len(runs) > _MOST_NAMED else ""
    note = f"{runs.total()} finished runs were trained by {len(runs)} different codes ({listed}{more})"
    return replace(seen, notes=(*seen.notes, f"{note}, and {_UNKNOWN}"))


def _trainer_of(sweep_dir: SweepDir) -> TrainerSpec | None:
    for entry in reversed(submissions(sweep_dir.read_ledger())):
        try:
            return get_trainer(entry.trainer or "").with_plugins(submitted_plugins(sweep_dir))
        except OrchestrateError:
            return None
    return None


def _with_stale_programs(seen: Survey, sweep_dir: SweepDir) -> Survey:
    """Hold the program of each finished run against the one that would be submitted today."""
    today = _todays_files(sweep_dir)
    if today is None:
        return seen
    if today.unknown is not None:
        return replace(seen, notes=(*seen.notes, f"{_UNKNOWN}: {today.unknown}"))
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
    if was is None and (listed := kept.listed(row, status)) is not None:
        was = today.narrowed(listed, row.point)
    if was is None:
        return f"trained by other code ({status.code_id}, today's is {now.id})"
    # The grid may have come to say otherwise which files count: that holds for what was trained before, too.
    differing = was.differing(now)
    return f"trained by other code: {_named(differing, was, now)}" if differing else None


def _named(names: list[str], was: ProgramFiles, now: ProgramFiles) -> str:
    def what(name: str) -> str:
        if name not in now.files:
            return f"{printable(name)} is gone"
        return f"{printable(name)} {'changed' if name in was.files else 'is new'}"

    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(what, names[:_MOST_NAMED])) + more + _way_out(names, was)


def _way_out(names: list[str], was: ProgramFiles) -> str:
    """What to do about files that programs write themselves: those that were not there, or are no sources."""
    found = [name for name in names if name not in was.files or not is_source(name)]
    if not found:
        return ""
    entries = [f"-{name}" if _PLAIN.fullmatch(name) else json.dumps(f"-{name}") for name in found]
    listed = [*entries[:_MOST_NAMED], *(["…"] if len(found) > _MOST_NAMED else [])]
    them = "it" if len(found) == 1 else "them"
    return f"; if no result depends on {them}: code: [{', '.join(listed)}] in the grid's base"


def _todays_files(sweep_dir: SweepDir) -> ProjectFiles | None:
    """Of the folder in which the sweep was submitted last; where that is gone, of the copy kept of it."""
    ledger = sweep_dir.read_ledger()
    for entry in reversed(submissions(ledger)):
        start, code = entry.folder and Path(entry.folder), entry.code
        if code is not None:
            # Where the code was sent here, its project is elsewhere.
            start = code.cwd if share(ledger) is not None or not code.submit_dir.is_dir() else code.submit_dir
        if start:
            return project_files(start, [sweep_dir.results.resolve()]) if start.is_dir() else None
    return None


class _Kept:
    """The programs in the copies that submissions kept, and those that results list the files of."""

    def __init__(self, sweep_dir: SweepDir) -> None:
        self._sweep_dir = sweep_dir
        self._results = sweep_dir.results.resolve()
        self._listed: dict[str | None, ProgramFiles | None] = {}
        self._folders: Mapping[str, Path] = {
            array_of(job.token): entry.code.cwd
            for entry, job in jobs_of(sweep_dir.read_ledger())
            if entry.code is not None
        }

    def program(self, row: IndexRow, status: RunStatus) -> ProgramFiles | None:
        """What would count for the run today of the copy that its last attempt ran, if there is one."""
        folder = self._folders.get(array_of(status.token or ""))
        if folder is None or not folder.is_dir() or CodeDir.holding(folder / "here") is None:
            return None
        return project_files(folder, [self._results]).program(row.point)

    def listed(self, row: IndexRow, status: RunStatus) -> ProgramFiles | None:
        """What trained the run, by its result, if that lists the files. Of one id all have the same."""
        if status.code_id not in self._listed:
            try:
                result = self._sweep_dir.run_to_read(row.run_id).result()
            except (DamagedFileError, OSError):
                result = None
            listed = ProgramFiles.from_json(result.fields.get("code_files") if result else None)
            self._listed[status.code_id] = listed if listed and listed.id == status.code_id else None
        return self._listed[status.code_id]

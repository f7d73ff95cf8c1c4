"""Find finished runs that were trained by other code than today's."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.config.code.identity import code_id
from orchestrator.config.program.identity import ProgramFiles, ProjectFiles, project_files
from orchestrator.config.trainers import TrainerSpec, get_trainer, is_installed
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formatting import printable
from orchestrator.core.types import RunState, array_of
from orchestrator.rundir import CodeDir, IndexRow, SweepDir
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.records.ledger_entries import AcceptEntry, Change, jobs_of, submissions
from orchestrator.status.ledger import submitted_plugins
from orchestrator.status.ownership import share
from orchestrator.status.survey import RunStatus, Survey

_MOST_NAMED = 3
# A name that YAML reads as it stands, in a list too.
_PLAIN = re.compile(r"[\w./-]+", re.ASCII)
_UNKNOWN = "which runs are stale is unknown"


def with_stale(seen: Survey, sweep_dir: SweepDir) -> Survey:
    """Return the survey with runs that were trained by other code than today's as stale.

    There is no code of today without the trainer's packages, nor for a copy of another tree: there a note
    names different codes of the runs.
    """
    try:
        today = Staleness(sweep_dir)
        if today.unknown == "":
            return _with_codes_noted(seen)
        if today.unknown is None:
            return _marked(seen, today)
        why = today.unknown
    except OrchestrateError as error:
        why = str(error)
    return replace(seen, notes=(*seen.notes, f"{_UNKNOWN}: {why}"))


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


class Staleness:
    """The finished runs of a sweep against the code that would train them today.

    ``today``: the project's files, of a trainer that runs programs. ``unknown``: the reason for which nothing
    can be compared, empty if that needs no note; ``None`` if runs can be compared.
    """

    def __init__(self, sweep_dir: SweepDir) -> None:
        self.today: ProjectFiles | None = None
        self.unknown: str | None = None
        self._trainer: str | None = None
        self._kept = _Kept(sweep_dir)
        self._found: dict[object, tuple[Change, ...]] = {}
        ledger = sweep_dir.read_ledger()
        self._accepted = [entry for entry in ledger if isinstance(entry, AcceptEntry)]
        spec = _trainer_of(sweep_dir)
        if read_copy(sweep_dir.path) is not None or spec is None or not is_installed(spec):
            self.unknown = ""
        elif not spec.runs_program:
            self._trainer = code_id(spec)
        elif (files := _todays_files(sweep_dir)) is None:
            self.unknown = ""
        else:
            self.today, self.unknown = files, files.unknown

    def differences(self, row: IndexRow, status: RunStatus) -> tuple[Change, ...]:
        """Return the changes since a finished run, without accepted ones; empty if it is not stale."""
        found = self.all_differences(row, status)
        entries = [entry for entry in self._accepted if row.run_id in entry.run_ids] if found else []
        accepted = {change for entry in entries for change in entry.changes}
        left = tuple(one for one in found[1:] if one not in accepted)
        if found and (found[0] in accepted or (found[1:] and not left)):
            return ()
        return (*found[:1], *left)

    def all_differences(self, row: IndexRow, status: RunStatus) -> tuple[Change, ...]:
        """Return the changes since a finished run: first the whole code, then the files if they are known."""
        if status.code_id is None or self.unknown is not None:
            return ()
        if self.today is None:
            whole = Change("", status.code_id, self._trainer)
            return () if status.code_id == self._trainer else (whole,)
        record = self._kept.record(row, status)
        now = self.today.program(row.point, record.opened)
        if status.code_id == now.id:
            return ()
        key = (status.code_id, id(now), self._kept.folder(status))
        if key not in self._found:
            self._found[key] = self._compared(row, status, record, now)
        return self._found[key]

    def _compared(
        self, row: IndexRow, status: RunStatus, record: _Record, now: ProgramFiles
    ) -> tuple[Change, ...]:
        assert self.today is not None
        whole = Change("", status.code_id, now.id)
        kept = self._kept.files(status)
        was = None if kept is None else kept.program(row.point, record.opened)
        if was is None and record.files is not None:
            was = self.today.narrowed(record.files, row.point)
        if was is None:
            return (whole,)
        # The files that count are those of the latest grid, for earlier runs, too.
        names = was.differing(now)
        if kept is not None:
            names = [name for name in names if kept.syntax(name) != self.today.syntax(name)]
        files = (Change(name, was.files.get(name), now.files.get(name)) for name in names)
        return (whole, *files) if names else ()

    def kept(self, status: RunStatus) -> ProjectFiles | None:
        """Return the files of the copy that the run's last attempt ran, if there is one."""
        return self._kept.files(status)


def _marked(seen: Survey, today: Staleness) -> Survey:
    """Compare the code of each finished run with the one that would train it today."""
    statuses = dict(seen.statuses)
    for row in seen.rows:
        status = statuses[row.run_id]
        if status.state is RunState.DONE and (found := today.differences(row, status)):
            statuses[row.run_id] = replace(status, state=RunState.STALE, message=_why(found))
    return replace(seen, statuses=statuses)


def _why(found: tuple[Change, ...]) -> str:
    files = [one for one in found if one.name]
    if not files:
        return f"trained by other code ({found[0].was}, today's is {found[0].now})"
    return f"trained by other code: {_named(files)}"


def _named(found: Sequence[Change]) -> str:
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(map(said, found[:_MOST_NAMED])) + more + _way_out(found)


def said(one: Change) -> str:
    """Describe a change of a file."""
    if one.now is None:
        return f"{printable(one.name)} is gone"
    return f"{printable(one.name)} {'is new' if one.was is None else 'changed'}"


def _way_out(differing: Sequence[Change]) -> str:
    """Describe how to leave out new files, which programs may have written."""
    found = [one.name for one in differing if one.was is None]
    if not found:
        return ""
    entries = [f"-{name}" if _PLAIN.fullmatch(name) else json.dumps(f"-{name}") for name in found]
    listed = [*entries[:_MOST_NAMED], *(["…"] if len(found) > _MOST_NAMED else [])]
    them = "it" if len(found) == 1 else "them"
    return f"; if no result depends on {them}: code: [{', '.join(listed)}] in the grid's base"


def _todays_files(sweep_dir: SweepDir) -> ProjectFiles | None:
    """Return the files of the folder of the last submission; without that folder, of its copy."""
    ledger = sweep_dir.read_ledger()
    for entry in reversed(submissions(ledger)):
        start, code = entry.folder and Path(entry.folder), entry.code
        if code is not None:
            # The project of code that was sent to this machine is elsewhere.
            start = code.cwd if share(ledger) is not None or not code.submit_dir.is_dir() else code.submit_dir
        if start:
            return project_files(start, [sweep_dir.results.resolve()]) if start.is_dir() else None
    return None


@dataclass(frozen=True)
class _Record:
    """A result's list of the program's files; ``opened``: their names, if tracing found them."""

    files: ProgramFiles | None = None
    opened: frozenset[str] | None = None


class _Kept:
    """The programs in the copies that submissions kept, and those that results list the files of."""

    def __init__(self, sweep_dir: SweepDir) -> None:
        self._sweep_dir = sweep_dir
        self._results = sweep_dir.results.resolve()
        self._records: dict[str | None, _Record] = {}
        self._folders: Mapping[str, Path] = {
            array_of(job.token): entry.code.cwd
            for entry, job in jobs_of(sweep_dir.read_ledger())
            if entry.code is not None
        }

    def folder(self, status: RunStatus) -> Path | None:
        return self._folders.get(array_of(status.token or ""))

    def files(self, status: RunStatus) -> ProjectFiles | None:
        """Return the files of the copy that the run's last attempt ran, if there is one."""
        folder = self.folder(status)
        if folder is None or not folder.is_dir() or CodeDir.holding(folder / "here") is None:
            return None
        return project_files(folder, [self._results])

    def record(self, row: IndexRow, status: RunStatus) -> _Record:
        """Return the files that trained the run, by its result. All results of one code id list the same."""
        if status.code_id not in self._records:
            try:
                result = self._sweep_dir.run_to_read(row.run_id).result()
            except (DamagedFileError, OSError):
                result = None
            fields = result.fields if result else {}
            files = ProgramFiles.from_json(fields.get("code_files"))
            if files is None or files.id != status.code_id:
                self._records[status.code_id] = _Record()
            else:
                traced = fields.get("code_traced") is True
                self._records[status.code_id] = _Record(files, frozenset(files.files) if traced else None)
        return self._records[status.code_id]

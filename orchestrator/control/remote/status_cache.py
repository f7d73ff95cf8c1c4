"""What trees behind ssh say of their runs: heard once in a while, kept, and shown as what it is."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.types import JobState, JobStatus, RunState
from orchestrator.rundir import SweepDir
from orchestrator.rundir.files.atomic import dump_json, read_json, write_atomic
from orchestrator.rundir.records.ledger_entries import TreePlace
from orchestrator.status.ownership import TreeAssignment
from orchestrator.status.survey import RunStatus, Survey

# Who watches asks often; a login node answers everybody.
_FRESH_S = 5.0
# So long after a place did not answer it is not asked again.
_REST_S = 15.0

_silent: dict[str, tuple[float, str]] = {}


@dataclass(frozen=True)
class RemoteStatus:
    """What a place said, at ``time`` (epoch seconds; ``None`` if it never did), and why it says no more."""

    time: float | None
    runs: Mapping[str, RunStatus]
    jobs: Mapping[str, JobStatus]
    silence: str | None = None

    @property
    def silent_since(self) -> str:
        """For people: what is not known, and since when."""
        if self.time is None:
            return f"unknown: {self.silence}"
        day = "%H:%M" if time.time() - self.time < 12 * 3600 else "%d %b %H:%M"
        return f"unknown since {time.strftime(day, time.localtime(self.time))}: {self.silence}"


def remote_status(
    sweep_dir: SweepDir, place: TreePlace, answer: Callable[[], Mapping[str, Any]]
) -> RemoteStatus:
    """What the place says, or said a moment ago; where it does not answer, what it said last.

    ``answer``: gets it as `status --json` prints it.
    """
    path = sweep_dir.heard(_name(place))
    before = _kept(path)
    now = time.time()
    if before is not None and not before.get("expired") and 0 <= now - before["heard"] < _FRESH_S:
        return _read(before)
    silent = _silent.get(str(path))
    if silent is None or time.monotonic() - silent[0] > _REST_S:
        try:
            return note(sweep_dir, place, answer())
        except OrchestrateError as error:
            _silent[str(path)] = (time.monotonic(), str(error))
    why = _silent[str(path)][1]
    return replace(_read(before), silence=why) if before else RemoteStatus(None, {}, {}, why)


def recall(sweep_dir: SweepDir, place: TreePlace) -> RemoteStatus:
    """Return the place's last answer, without a query."""
    before = _kept(sweep_dir.heard(_name(place)))
    return _read(before) if before else RemoteStatus(None, {}, {})


def note(sweep_dir: SweepDir, place: TreePlace, answer: Mapping[str, Any]) -> RemoteStatus:
    """Keep what the place said just now."""
    path = sweep_dir.heard(_name(place))
    said = {"heard": time.time(), "runs": answer["runs"], "jobs": answer["jobs"]}
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, dump_json(said), durable=False)
    _silent.pop(str(path), None)
    return _read(said)


def expire(sweep_dir: SweepDir, place: TreePlace) -> None:
    """Have the next look ask the place: a decision changes what it said last."""
    path = sweep_dir.heard(_name(place))
    if (before := _kept(path)) is not None:
        write_atomic(path, dump_json({**before, "expired": True}), durable=False)
    _silent.pop(str(path), None)


def overlaid(seen: Survey, one: TreeAssignment, heard: RemoteStatus) -> Survey:
    """The survey with what the place says of the runs that it has; what came home from there stays."""
    statuses, name = dict(seen.statuses), one.place.name
    jobs = {**seen.jobs, **{f"{name}/{token}": job for token, job in heard.jobs.items()}}
    for run_id in one.run_ids:
        here, there = statuses.get(run_id), heard.runs.get(run_id)
        if here is None:
            continue
        if here.state in (RunState.DONE, RunState.STALE):
            token = there.token if there is not None else None
            here = replace(here, token=here.token or f"{name}/{token or ''}")
            if there is not None and there.state is RunState.STALE and there.attempt == here.attempt:
                here = replace(here, state=RunState.STALE, message=there.message)
            if there is not None and there.state is RunState.DONE:
                speed = here.end_to_end_fps or there.end_to_end_fps
                here = replace(here, end_to_end_fps=speed, total=here.total or there.total)
            statuses[run_id] = here
            continue
        if there is None:
            waits = f"given to {name}, which has not taken it up yet: the same sweep command sends it"
            there = replace(here, state=RunState.PENDING, message=waits)
        if heard.silence is not None and not there.state.final:
            there = replace(
                there, state=RunState.UNKNOWN, reason=None, message=f"{name}: {heard.silent_since}"
            )
            job = heard.jobs.get(there.token or "", JobStatus(JobState.UNKNOWN))
            silent = replace(job, state=JobState.UNKNOWN, text=heard.silent_since)
            jobs[f"{name}/{there.token or ''}"] = silent
        statuses[run_id] = replace(there, token=f"{name}/{there.token or ''}")
    return replace(seen, statuses=statuses, jobs=jobs, elsewhere=seen.elsewhere - one.run_ids)


def _read(said: Mapping[str, Any]) -> RemoteStatus:
    runs = {data["run_id"]: RunStatus.from_json(data) for data in said["runs"]}
    jobs = {
        token: JobStatus(JobState(job["state"]), job["text"], seconds=job.get("seconds"))
        for token, job in said["jobs"].items()
    }
    return RemoteStatus(said["heard"], runs, jobs)


def _kept(path: Path) -> Mapping[str, Any] | None:
    try:
        said: Mapping[str, Any] = read_json(path)
        _read(said)
    except (FileNotFoundError, DamagedFileError, KeyError, TypeError, ValueError):
        return None
    return said


def _name(place: TreePlace) -> str:
    return f"{place.name}-{hashlib.sha256(repr(place.key).encode()).hexdigest()[:8]}"

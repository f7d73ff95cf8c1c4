"""A results tree with runs of another tree, its home: check home's decisions, take runs up, release them.

Home decides by running the commands of this program here (:mod:`program`), with the decision as JSON on
their stdin. A later decision may arrive first: an earlier one is refused from then on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from orchestrator.backends.registry import AllBackends
from orchestrator.config.code.snapshot import received
from orchestrator.config.grid import parse_grid
from orchestrator.config.profiles import Profile, parse_profile
from orchestrator.config.sweep import runs_of
from orchestrator.control.poll import close_attempts, give_up, idle_jobs, only_waiting, poll_sweep
from orchestrator.control.remote.program import NO_CODE
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formats import require_known_format, stamp
from orchestrator.core.records import parse, plain
from orchestrator.core.types import RunState, Sweep, Value
from orchestrator.rundir import CodeDir, SweepDir
from orchestrator.rundir.files.atomic import write_atomic
from orchestrator.rundir.frozen_code import FrozenCode, SentCode
from orchestrator.rundir.records.ledger_entries import (
    AddEntry,
    AssignedShare,
    RetryEntry,
    ReturnedEntry,
    ShareEntry,
    added_points,
)
from orchestrator.status.disk_check import correct, inspect, proved_ended
from orchestrator.status.ownership import given_back, share
from orchestrator.status.survey import RunStatus


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision of the tree ``home`` about these runs, by its number. ``owner``: for users."""

    home: str | None
    owner: str
    number: int
    run_ids: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the decision as JSON, for the stdin of a command."""
        return json.dumps({**stamp(), **plain(self)}).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """Parse :meth:`to_bytes`. Raises :class:`OrchestrateError` for anything else."""
        try:
            data = json.loads(text)
            require_known_format(data, "the decision on stdin", _OLD_CODE_HINT)
            return parse(cls, data)
        except (AttributeError, ValueError) as error:
            raise OrchestrateError(
                f"stdin: found no decision of another tree ({error})", hint=_OLD_CODE_HINT
            ) from error


@dataclass(frozen=True, kw_only=True)
class Assignment(Decision):
    """Assigned runs, and all that their submission needs.

    ``grid_path``: the grid file relative to the code's folder. ``added``: points that home's ledger adds to
    it. ``profile``: its text for this machine. ``adopt``: also in a sweep that another tree assigned.
    """

    sweep: str
    grid: str
    grid_path: str
    profile_name: str
    profile: str
    code: SentCode
    added: tuple[Mapping[str, Value], ...] = ()
    adopt: bool = False


@dataclass(frozen=True)
class AssignedSweep:
    """The assigned part of a sweep, the profile of its target here, and the code that was sent."""

    sweep: Sweep
    sweep_dir: SweepDir
    profile: Profile
    code: FrozenCode


_ADDED = "added where the sweep was submitted"
_OLD_CODE_HINT = "another version of this program asks: `orchestrate sweep` with the grid sends its own code"


def take_up(assignment: Assignment, results: Path, *, dry: bool) -> AssignedSweep:
    """Enter the assigned runs in the ledger; return what is to be submitted. With ``dry`` write nothing."""
    results = results.absolute()
    sweep_dir = SweepDir(results, assignment.sweep)
    code = _received(CodeDir.of(sweep_dir, assignment.code.id), assignment.code, results.parent, dry=dry)
    sweep, profile = _sweep(assignment, code), _profile(assignment, results.parent, dry=dry)
    if not dry:
        _take_share(assignment, sweep_dir)
    return AssignedSweep(sweep, sweep_dir, profile, code)


def _received(kept: CodeDir, sent: SentCode, folder: Path, *, dry: bool) -> FrozenCode:
    if dry:
        return sent.at(kept.path, folder)
    try:
        return received(kept, sent, folder)
    except DamagedFileError as error:
        error.exit_code = NO_CODE
        raise


def _profile(assignment: Assignment, folder: Path, *, dry: bool) -> Profile:
    """Keep the profile by its content: jobs that submit others find the one they were submitted with."""
    name, text = assignment.profile_name, assignment.profile
    path = folder / "profiles" / sha256(text.encode()).hexdigest()[:8] / f"{name}.yaml"
    if not dry:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode())
    return parse_profile(text, str(path), name)


def _sweep(assignment: Assignment, code: FrozenCode) -> Sweep:
    folder = code.cwd if code.cwd.is_dir() else Path.cwd()
    with chdir(folder):  # a grid names files of the code by relative paths
        added = AddEntry(points=assignment.added, by=assignment.owner, why=_ADDED)
        full = runs_of(parse_grid(assignment.grid, assignment.grid_path), [added])
    wanted, known = set(assignment.run_ids), {run.run_id for run in full.runs}
    if unknown := wanted - known:
        raise OrchestrateError(
            f"{len(unknown)} runs of {full.name} have another identity here than where it was submitted",
            hint="both machines need the same versions of the trainer's packages (constraints.txt)",
        )
    return replace(full, runs=tuple(run for run in full.runs if run.run_id in wanted))


def _take_share(assignment: Assignment, sweep_dir: SweepDir) -> None:
    """Enter what this tree is given; what it had released before is to be done here again."""
    sweep_dir.create()
    with sweep_dir.lock():
        if not assignment.adopt:
            require_home(assignment, sweep_dir)
        known = added_points(sweep_dir.read_ledger())
        if new := tuple(point for point in assignment.added if point not in known):
            sweep_dir.add_to_ledger(AddEntry(points=new, by=assignment.owner, why=_ADDED))
        if back := sorted(given_back(sweep_dir.read_ledger()).intersection(assignment.run_ids)):
            runs = {run_id: sweep_dir.run(run_id).newest_attempt() for run_id in back}
            sweep_dir.add_to_ledger(RetryEntry(runs=runs))
        _set_share(assignment, sweep_dir, frozenset(assignment.run_ids))


def require_home(decision: Decision, sweep_dir: SweepDir) -> None:
    """Raise unless the decision is of the tree that assigned the runs here, and no later one came first."""
    own = share(sweep_dir.read_ledger())
    if own is None:
        if sweep_dir.latest_grid() is None:
            return
        raise OrchestrateError(
            f"{sweep_dir.path}: a sweep of this name was submitted on that machine itself",
            hint="to go on with it from here, add --adopt; otherwise give yours another name",
        )
    if own.home != decision.home:
        raise OrchestrateError(
            f"{sweep_dir.path}: a sweep of this name is {own.owner}'s",
            hint="if that one has given it up, add --adopt; otherwise give yours another name, or folder",
        )
    if decision.number < own.number:
        raise OrchestrateError(
            "what this was about has been decided anew meanwhile, by another command",
            hint="orchestrate status shows how it is; the same command again goes on from there",
        )


def _set_share(decision: Decision, sweep_dir: SweepDir, run_ids: frozenset[str]) -> None:
    new = AssignedShare(run_ids, decision.home or "", decision.owner, decision.number)
    if share(sweep_dir.read_ledger()) != new:
        sweep_dir.add_to_ledger(ShareEntry(share=new))


def release(decision: Decision, sweep_dir: SweepDir, *, moved: bool, waiting: bool) -> Mapping[str, Any]:
    """Give back runs that no job here works on or will; return them, and the reasons for the others.

    ``moved``: also runs that failed here or that a person took out of the sweep. ``waiting``: also runs of
    jobs that only wait in a queue, which thereby never begin; their other runs are then unassigned here. A
    tree without the sweep yet records the decision: earlier ones come too late, and a submission that is
    still being checked here finds its runs returned.
    """
    sweep_dir.create()
    with sweep_dir.lock():
        require_home(decision, sweep_dir)
        own = share(sweep_dir.read_ledger())
        seen = poll_sweep(sweep_dir)
        if waiting:
            tokens = only_waiting(sweep_dir, seen, decision.run_ids)
            AllBackends().cancel(give_up(sweep_dir, tokens, "assigned to another target"))
            seen = poll_sweep(sweep_dir)
        close_attempts(sweep_dir, seen)
        statuses = correct(seen, inspect(sweep_dir, seen.statuses), sweep_dir).statuses
        already = given_back(sweep_dir.read_ledger())
        held = {
            run_id: why
            for run_id in decision.run_ids
            if run_id in statuses and run_id not in already
            if (why := _why_held(statuses[run_id], sweep_dir, moved=moved))
        }
        free = {run_id for run_id in decision.run_ids if run_id not in held}
        new = sorted(free - already)  # also runs of a submission here that has not listed them yet
        if new:
            sweep_dir.add_to_ledger(ReturnedEntry(runs=dict.fromkeys(new, 0)))
            AllBackends().cancel(list(idle_jobs(sweep_dir).values()))
        # From here on no worker claims one of them. A job that claimed one before keeps it.
        late = [run_id for run_id in new if not _is_free(sweep_dir, run_id)]
        if late:
            sweep_dir.add_to_ledger(RetryEntry(runs=dict.fromkeys(late, 0)))
            held |= dict.fromkeys(late, "a job there has just begun it")
        gone = free.difference(late)
        left = (own.run_ids if own is not None else frozenset(statuses)) - gone
        _set_share(decision, sweep_dir, left)
    return {"released": sorted(gone), "held": held}


def _why_held(status: RunStatus, sweep_dir: SweepDir, *, moved: bool) -> str | None:
    if status.state is RunState.DONE:
        return "it is done there; bring its result home: orchestrate sync"
    if status.state in (RunState.QUEUED, RunState.RUNNING, RunState.STALLED, RunState.UNKNOWN):
        return f"it is {status.state.value} there; cancel it first"
    if status.state.final and not moved:
        return f"it is {status.state.value} there; orchestrate retry names what is to be done again"
    return None if _is_free(sweep_dir, status.run_id) else "nothing proves that its attempt there has ended"


def _is_free(sweep_dir: SweepDir, run_id: str) -> bool:
    """Whether the run has no result here and every attempt at it has provably ended."""
    return not sweep_dir.run_to_read(run_id).has_result() and proved_ended(sweep_dir.run(run_id))

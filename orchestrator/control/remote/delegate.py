"""Giving a sweep's runs to a tree behind ssh, and having them back."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orchestrator.backends.base import Backend
from orchestrator.backends.registry import make_backend
from orchestrator.config.code.snapshot import freeze, key_notes
from orchestrator.config.profiles import Profile, parse_profile, text_for_there
from orchestrator.control import submit
from orchestrator.control.dry_run import UNASKED, UNCHECKED, planned
from orchestrator.control.poll import poll_sweep
from orchestrator.control.remote import CODE_DAMAGED
from orchestrator.control.remote.client import ask, parsed
from orchestrator.control.remote.messages import (
    PlanRequest,
    ReleaseAnswer,
    ReleaseRequest,
    SentGrid,
    SentProfile,
    SubmitAnswer,
    SubmitRequest,
)
from orchestrator.control.remote.push_code import RemoteCode, look_there, push
from orchestrator.control.remote.push_code import sent as as_sent
from orchestrator.control.remote.queries import assigned_of, decision_of, not_there, question
from orchestrator.control.remote.status_cache import note
from orchestrator.control.submit import SubmitOptions
from orchestrator.core.errors import ChecksFailedError, OrchestrateError
from orchestrator.core.types import Capacity, RunState, Sweep
from orchestrator.rundir import CodeDir, SweepDir
from orchestrator.rundir.frozen_code import FrozenCode, SentCode
from orchestrator.rundir.ledger_entries import AssignedEntry, RecalledEntry, ReleasedEntry, TreePlace
from orchestrator.rundir.synced import require_own
from orchestrator.status.disk_check import correct, inspect
from orchestrator.status.ownership import AssignedRuns, assigned, home_of

# States of a run at home in which another tree may be given it.
_TO_DO = (RunState.PENDING, RunState.INTERRUPTED, RunState.QUEUED)


@dataclass(frozen=True)
class Delegation:
    """A sweep for the tree of ``profile``, and the options of its submission; optionally ``only`` these runs.

    ``options``: of a scheduler's own command. ``adopt``: go on with a sweep that came to that place from
    another tree, or from none.
    """

    sweep: Sweep
    sweep_dir: SweepDir
    profile: Profile
    wish: SubmitOptions
    options: Sequence[str] = ()
    only: Collection[str] | None = None
    adopt: bool = False


@dataclass(frozen=True)
class RemoteSubmission:
    """A submission elsewhere. ``kept``: why other trees keep runs, by run id."""

    place: TreePlace
    answer: SubmitAnswer
    kept: Mapping[str, str]
    notes: tuple[str, ...]


def send(asked: Delegation) -> RemoteSubmission:
    """Give the runs still to do to the tree of the profile and submit them.

    Runs of other trees are requested back first. The assignment is on record before anything is sent, and its
    number goes along: an assignment that arrives after the runs were requested back is refused there.
    """
    sweep, sweep_dir, only = asked.sweep, asked.sweep_dir, asked.only
    require_own(sweep_dir)
    there = look_there(asked.profile, sweep.name)
    sweep_dir.create()
    with sweep_dir.lock():
        submit.record(sweep, sweep_dir)
        _require_there(there, sweep_dir)
        kept = _ask_back(_wanted(sweep, sweep_dir, only), sweep_dir, there.place)
        given, busy = _given(sweep, sweep_dir, there.place, only)
        kept |= busy
        if not given:
            return RemoteSubmission(there.place, SubmitAnswer(settled=True), kept, ())
        code = freeze(sweep_dir, Path.cwd())
        shipped, notes = as_sent(code)
        number = _assign(sweep_dir, there.place, shipped, given)
    plan, decision = _request(asked, given, shipped), decision_of(sweep_dir, number)
    request = SubmitRequest(**vars(plan), decision=decision, adopt=asked.adopt)
    answer = _submit_there(there, sweep_dir, code, asked.profile, request)
    _accepted(sweep_dir, number)
    if answer.runs is not None:
        note(sweep_dir, there.place, answer)
    return RemoteSubmission(there.place, answer, kept, (*code.notes, *notes))


def _submit_there(
    there: RemoteCode, sweep_dir: SweepDir, code: FrozenCode, profile: Profile, request: SubmitRequest
) -> SubmitAnswer:
    """Send the code unless it is there, and the request; the answer."""
    place, name, shipped = there.place, sweep_dir.name, request.code
    if code.id not in there.codes:
        try:
            push(place, sweep_dir, code)
        except OrchestrateError:
            _give_up(sweep_dir, place, request.decision.number)
            raise
    try:
        return parsed(SubmitAnswer, place, ask(place, name, shipped, profile, request))
    except OrchestrateError as error:
        if error.exit_code != CODE_DAMAGED:
            raise
        push(place, sweep_dir, code, replace=True)
        return parsed(SubmitAnswer, place, ask(place, name, shipped, profile, request))


def take_back(
    sweep: Sweep,
    sweep_dir: SweepDir,
    only: Collection[str] | None = None,
    *,
    waiting: bool = False,
    lost: bool = False,
) -> dict[str, str]:
    """Request back the runs that other trees do not work on; return those that they keep, and why.

    ``only`` these runs, named by a person: then also those that failed or were cancelled there. ``waiting``,
    without a person: also those that only wait in a queue there. ``lost`` trusts a person that no process
    works on them at their place, and sends no request.
    """
    require_own(sweep_dir)
    if not assigned_of(sweep_dir):
        return {}
    with sweep_dir.lock():
        wanted, named = _wanted(sweep, sweep_dir, only), only is not None and not waiting
        return _ask_back(wanted, sweep_dir, None, named=named, waiting=waiting, lost=lost)


def _wanted(sweep: Sweep, sweep_dir: SweepDir, only: Collection[str] | None) -> set[str]:
    """Runs that are still to do as far as this tree knows, or those that a person names."""
    here = poll_sweep(sweep_dir, submit.rows_of(sweep, sweep_dir)).statuses
    wanted = {run.run_id for run in sweep.runs if here[run.run_id].state in _TO_DO}
    return wanted if only is None else wanted.intersection(only)


def _require_there(there: RemoteCode, sweep_dir: SweepDir) -> None:
    """Raise if a tree has lost all runs that it took up: its processes may still be at work."""
    before = _before(sweep_dir, there.place)
    if before is not None and before.accepted and not there.known:
        raise not_there(before.place, sweep_dir.name)


def _before(sweep_dir: SweepDir, place: TreePlace) -> AssignedRuns | None:
    return next((one for one in assigned_of(sweep_dir) if one.place.key == place.key), None)


def _assign(sweep_dir: SweepDir, place: TreePlace, code: SentCode, given: frozenset[str]) -> int:
    """Put the assignment on record; its number. Call under the lock."""
    ledger = sweep_dir.read_ledger()
    home = home_of(ledger) or secrets.token_hex(8)
    return sweep_dir.add_to_ledger(AssignedEntry(place=place, code=code, run_ids=given, home=home))


def _give_up(sweep_dir: SweepDir, place: TreePlace, number: int) -> None:
    """Take back the runs of decision ``number``, which was never delivered, unless there are later ones."""
    with sweep_dir.lock():
        ledger = sweep_dir.read_ledger()
        (mine,) = [one for one in ledger if one.number == number]
        before = {run for one in assigned(ledger[: ledger.index(mine)]) for run in one.run_ids}
        now = _before(sweep_dir, place)
        assert isinstance(mine, AssignedEntry)
        new = mine.run_ids - before
        if new and now is not None and now.number == number:
            sweep_dir.add_to_ledger(ReleasedEntry(place=place, run_ids=new))


def _accepted(sweep_dir: SweepDir, number: int) -> None:
    with sweep_dir.lock():
        (mine,) = [one for one in sweep_dir.read_ledger(after=number - 1) if one.number == number]
        assert isinstance(mine, AssignedEntry)
        sweep_dir.amend_ledger(replace(mine, accepted=True))


def capacity_there(profile: Profile, options: Sequence[str] = ()) -> Capacity:
    """What a job can have at a profile behind ssh, as far as it is known here."""
    return _backend_there(profile, options).capacity(ask=False)


def _backend_there(profile: Profile, options: Sequence[str]) -> Backend:
    return make_backend(parse_profile(text_for_there(profile), profile.source, profile.name), options)


def rehearse(asked: Delegation) -> Mapping[str, Any]:
    """What :func:`send` would submit, to the byte, as :func:`dry_run.planned` describes it; writes nothing.

    A tree that knows the sweep checks and plans it there; for one that does not, the plan is made here, and
    the configurations are not checked. Raises :class:`ChecksFailedError`.
    """
    sweep, sweep_dir = asked.sweep, asked.sweep_dir
    there = look_there(asked.profile, sweep.name)
    code = freeze(sweep_dir, Path.cwd(), dry=True)
    shipped, _ = as_sent(code)
    given, _ = _given(sweep, sweep_dir, there.place, asked.only)
    before = _before(sweep_dir, there.place)
    if there.known and before is not None and before.code.id in there.codes:
        answer = ask(there.place, sweep.name, before.code, asked.profile, _request(asked, given, shipped))
        if problems := answer.get("problems"):
            raise ChecksFailedError(problems)
        return {**answer, "notes": [*answer.get("notes", ()), *key_notes(Path.cwd())]}
    return _first_plan(asked, there, code, given)


def _first_plan(
    asked: Delegation, there: RemoteCode, code: FrozenCode, given: frozenset[str]
) -> Mapping[str, Any]:
    sweep, folder = asked.sweep, Path(there.place.folder)
    backend = _backend_there(asked.profile, asked.options)
    kept = CodeDir.of(SweepDir(folder / "results", sweep.name), code.id)
    moved = replace(
        code,
        path=kept.path,
        python_path=tuple(kept.path / path for path in as_sent(code)[0].python_path),
        cwd=kept.path / code.cwd.relative_to(code.path) if code.cwd.is_relative_to(code.path) else folder,
        submit_dir=folder,
    )
    share = replace(sweep, runs=tuple(run for run in sweep.runs if run.run_id in given))
    with TemporaryDirectory() as nothing:
        empty = SweepDir(Path(nothing), sweep.name)
        plan = submit.plan_sweep(share, empty, backend.capacity(ask=False), asked.wish).plan
    scripts = submit.render_plan(plan, SweepDir(folder / "results", sweep.name), backend, moved)
    concerns = backend.concerns(plan, ask=False)
    unasked = f"{UNASKED}: {there.place.ssh} has nothing of this sweep yet"
    return planned(plan, scripts, (unasked, UNCHECKED, *map(str, concerns), *key_notes(Path.cwd())))


def _request(asked: Delegation, given: Iterable[str], code: SentCode) -> PlanRequest:
    sweep, profile = asked.sweep, asked.profile
    return PlanRequest(
        runs=tuple(run.run_id for run in sweep.runs if run.run_id in set(given)),
        grid=SentGrid(sweep.grid_text, _within_the_project(sweep.source)),
        profile=SentProfile(profile.name, text_for_there(profile)),
        wish=asked.wish,
        options=tuple(asked.options),
        code=code,
    )


def _within_the_project(source: str) -> str:
    """The grid file as it is called from the folder of the call, where that is below it."""
    path, here = Path(source), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else source


def _given(
    sweep: Sweep, sweep_dir: SweepDir, place: TreePlace, only: Collection[str] | None
) -> tuple[frozenset[str], dict[str, str]]:
    """Return the place's runs, with the unassigned ones still to do, and the places of all other runs."""
    seen = poll_sweep(sweep_dir, submit.rows_of(sweep, sweep_dir))
    statuses = correct(seen, inspect(sweep_dir, seen.statuses), sweep_dir).statuses
    holders = {run_id: one.place for one in assigned_of(sweep_dir) for run_id in one.run_ids}
    given, busy = set(), {}
    for run_id in (run.run_id for run in sweep.runs):
        status, holder = statuses[run_id], holders.get(run_id)
        if holder is not None:
            if holder.key == place.key:
                given.add(run_id)
        elif status.token in seen.live and not status.state.final:
            busy[run_id] = "a job submitted from this tree has it"
        elif status.state in _TO_DO and (only is None or run_id in only):
            given.add(run_id)
    return frozenset(given), busy


def _ask_back(
    wanted: Collection[str],
    sweep_dir: SweepDir,
    place: TreePlace | None,
    *,
    named: bool = False,
    waiting: bool = False,
    lost: bool = False,
) -> dict[str, str]:
    """Have trees other than ``place`` release runs at rest; return the runs that they keep, and why.

    The request is on record first: decisions from before it are refused there from then on.
    """
    kept: dict[str, str] = {}
    for one in assigned_of(sweep_dir):
        runs = sorted(one.run_ids.intersection(wanted))
        if (place is not None and one.place.key == place.key) or not runs:
            continue
        number = sweep_dir.add_to_ledger(RecalledEntry(place=one.place, run_ids=frozenset(runs)))
        released: Sequence[str] = runs
        held: Mapping[str, str] = {}
        if not lost:
            decision = decision_of(sweep_dir, number)
            request = ReleaseRequest(runs=tuple(runs), moved=named, waiting=waiting, decision=decision)
            try:
                answer = question(sweep_dir, one, request, ReleaseAnswer)
                released, held = answer.released, answer.held
            except OrchestrateError as error:
                released, held = [], dict.fromkeys(runs, str(error))
        kept |= {run_id: f"on {one.place.name}: {why}" for run_id, why in held.items()}
        if released:
            sweep_dir.add_to_ledger(ReleasedEntry(place=one.place, run_ids=frozenset(released)))
    return kept

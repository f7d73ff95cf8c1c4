"""Assign a sweep's runs to a tree behind ssh, and take them back."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.backends.base import Backend
from orchestrator.backends.registry import make_backend
from orchestrator.config.code.snapshot import freeze, key_notes
from orchestrator.config.profiles import Profile, parse_profile, text_for_there
from orchestrator.control import dry_run, submit
from orchestrator.control.dry_run import UNASKED, UNCHECKED
from orchestrator.control.remote.delegated import Assignment
from orchestrator.control.remote.places import (
    assigned_of,
    decide,
    decision_facts,
    not_there,
    program_of,
    run_there,
)
from orchestrator.control.remote.push_code import RemoteCode, deliver, look_there, sent
from orchestrator.control.submission import Started
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.records import parse
from orchestrator.core.types import Capacity, RunState, Sweep
from orchestrator.planning.plan import SubmitOptions
from orchestrator.rundir import CodeDir, SweepDir
from orchestrator.rundir.copies.synced import require_own
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import (
    AssignedEntry,
    RecalledEntry,
    ReleasedEntry,
    TreePlace,
    added_points,
)
from orchestrator.status.ownership import TreeAssignment, home_of
from orchestrator.status.survey import Survey

# States of a run at home in which another tree may be given it.
_TO_DO = (RunState.PENDING, RunState.INTERRUPTED, RunState.SKIPPED, RunState.QUEUED)


@dataclass(frozen=True)
class Delegation:
    """A sweep for the tree of ``profile``, and the options of its submission; optionally ``only`` these runs.

    ``scheduler_options``: of a scheduler's own command. ``adopt``: go on with a sweep that came to that place
    from another tree, or from none.
    """

    sweep: Sweep
    sweep_dir: SweepDir
    profile: Profile
    options: SubmitOptions
    scheduler_options: Sequence[str] = ()
    only: Collection[str] | None = None
    adopt: bool = False

    def assignment(self, tree: TreeAssignment) -> bytes:
        """Return the tree's runs as its latest decision assigns them, for the stdin of :meth:`command`."""
        source, here = Path(self.sweep.source), Path.cwd()
        return Assignment(
            **decision_facts(self.sweep_dir, tree.number),
            run_ids=tuple(run.run_id for run in self.sweep.runs if run.run_id in tree.run_ids),
            sweep=self.sweep.name,
            grid=self.sweep.grid_text,
            grid_path=str(source.relative_to(here)) if source.is_relative_to(here) else str(source),
            added=added_points(self.sweep_dir.read_ledger()),
            profile_name=self.profile.name,
            profile=text_for_there(self.profile),
            code=tree.code,
            adopt=self.adopt,
        ).to_bytes()

    def command(self, *how: str) -> list[str]:
        """Return the command line that submits an assignment there."""
        slots, budget = self.options.slots, self.options.budget
        return [
            *("sweep", "--delegated", *how),
            *(() if slots is None else ("--slots", str(slots))),
            *(("--canary",) if self.options.canary else ()),
            *("--reuse", self.options.reuse.value),
            *(() if budget is None else ("--budget", str(budget))),
            *("--", *self.scheduler_options),
        ]


def send(asked: Delegation) -> Started:
    """Assign the runs still to do to the tree of the profile, and have them submitted there.

    Runs of other trees are requested back first. The assignment is on record before it is sent, and its
    number goes along: an assignment that arrives after the runs were requested back is refused there.
    ``over``: nothing was missing. Raises the error of the command there.
    """
    sweep, sweep_dir = asked.sweep, asked.sweep_dir
    require_own(sweep_dir)
    there = look_there(asked.profile, sweep.name)
    place = there.place
    path = f"{place.ssh}:{place.folder}/results/{sweep.name}/"
    sweep_dir.create()
    with sweep_dir.lock():
        submit.record(sweep, sweep_dir)
        before = _tree_at(place, sweep_dir)
        if before is not None and before.accepted and not there.known:
            raise not_there(before.place, sweep.name)  # its processes may still be at work
        code = freeze(sweep_dir, Path.cwd())
    shipped, notes = deliver(there, sweep_dir, code)
    with sweep_dir.lock():
        seen = submit.inspect_sweep(sweep, sweep_dir).seen
        kept = _recall(_to_do(sweep, seen, asked.only), sweep_dir, place)
        given, busy = _given(asked, seen, place)
        kept |= busy
        if not given:
            return Started(path, where=place.name, kept=kept, over=True)
        home = home_of(sweep_dir.read_ledger()) or secrets.token_hex(8)
        entry = AssignedEntry(place=place, code=shipped, run_ids=given, home=home)
        number = sweep_dir.add_to_ledger(entry)
    tree = TreeAssignment(place, shipped, given, number=number)
    answer, warnings = run_there(sweep_dir, tree, asked.command(), asked.assignment(tree))
    with sweep_dir.lock():
        sweep_dir.amend_ledger(replace(entry, number=number, accepted=True))
    started = parse(Started, answer["started"])
    notes = [*code.notes, *notes, *warnings, *started.notes]
    return replace(started, path=path, where=place.name, notes=tuple(notes), kept=kept)


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
    arguments = (
        *(["--moved"] if only is not None and not waiting else []),
        *(["--waiting"] if waiting else []),
    )
    with sweep_dir.lock():
        wanted = _to_do(sweep, submit.inspect_sweep(sweep, sweep_dir).seen, only)
        return _recall(wanted, sweep_dir, None, arguments, lost=lost)


def _to_do(sweep: Sweep, seen: Survey, only: Collection[str] | None) -> set[str]:
    """Runs that are still to do as far as this tree knows, or those that a person names."""
    wanted = {run.run_id for run in sweep.runs if seen.statuses[run.run_id].state in _TO_DO}
    return wanted if only is None else wanted.intersection(only)


def _tree_at(place: TreePlace, sweep_dir: SweepDir) -> TreeAssignment | None:
    """Return what the place has been assigned so far."""
    return next((one for one in assigned_of(sweep_dir) if one.place.key == place.key), None)


def capacity_there(profile: Profile, scheduler_options: Sequence[str] = ()) -> Capacity:
    """What a job can have at a profile behind ssh, as far as it is known here."""
    return _backend_there(profile, scheduler_options).capacity(ask=False)


def _backend_there(profile: Profile, scheduler_options: Sequence[str]) -> Backend:
    return make_backend(
        parse_profile(text_for_there(profile), profile.source, profile.name), scheduler_options
    )


def rehearse(asked: Delegation) -> Mapping[str, Any]:
    """What :func:`send` would submit, to the byte, as of :func:`dry_run.rehearse`; writes nothing.

    A tree that knows the sweep checks and plans it there; for one that does not, the plan is made here, and
    the configurations are not checked. Raises :class:`OrchestrateError` for runs that cannot work.
    """
    sweep, sweep_dir = asked.sweep, asked.sweep_dir
    there = look_there(asked.profile, sweep.name)
    shipped, _ = sent(freeze(sweep_dir, Path.cwd(), dry=True))
    given, _ = _given(asked, submit.inspect_sweep(sweep, sweep_dir).seen, there.place)
    before = _tree_at(there.place, sweep_dir)
    if not there.known or before is None or before.code.id not in there.codes:
        return _first_plan(asked, there, shipped, given)
    assignment = asked.assignment(replace(before, run_ids=given, code=shipped))
    answer, warnings = program_of(sweep_dir, before).run(asked.command("--dry-run"), assignment)
    return {**answer, "notes": [*warnings, *answer["notes"], *key_notes(Path.cwd())]}


def _first_plan(
    asked: Delegation, there: RemoteCode, shipped: SentCode, given: frozenset[str]
) -> Mapping[str, Any]:
    sweep, folder = asked.sweep, Path(there.place.folder)
    backend = _backend_there(asked.profile, asked.scheduler_options)
    in_tree = SweepDir(folder / "results", sweep.name)
    code = shipped.at(CodeDir.of(in_tree, shipped.id).path, folder)
    share = replace(sweep, runs=tuple(run for run in sweep.runs if run.run_id in given))
    state = submit.unbegun(share, in_tree)
    prospect = submit.plan_sweep(state, backend.capacity(ask=False), asked.options)
    unasked = f"{UNASKED}: {there.place.ssh} has nothing of this sweep yet"
    return dry_run.rehearse(prospect, backend, (unasked,), (UNCHECKED, *key_notes(Path.cwd())), code)


def _given(asked: Delegation, seen: Survey, place: TreePlace) -> tuple[frozenset[str], dict[str, str]]:
    """Return the place's runs, with the unassigned ones still to do, and why it gets no others."""
    holders = {run_id: one.place for one in assigned_of(asked.sweep_dir) for run_id in one.run_ids}
    given, busy = set(), {}
    for run_id in (run.run_id for run in asked.sweep.runs):
        status, holder = seen.statuses[run_id], holders.get(run_id)
        if holder is not None:
            if holder.key == place.key:
                given.add(run_id)
        elif status.token in seen.live and not status.state.final:
            busy[run_id] = "a job submitted from this tree has it"
        elif status.state in _TO_DO and (asked.only is None or run_id in asked.only):
            given.add(run_id)
    return frozenset(given), busy


def _recall(
    wanted: Collection[str],
    sweep_dir: SweepDir,
    place: TreePlace | None,
    arguments: Sequence[str] = (),
    *,
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
            try:
                recalled = replace(one, number=number)
                answer = decide(sweep_dir, recalled, ["release", sweep_dir.name, *arguments], runs)
                released, held = answer["released"], answer["held"]
            except OrchestrateError as error:
                released, held = [], dict.fromkeys(runs, str(error))
        kept |= {run_id: f"on {one.place.name}: {why}" for run_id, why in held.items()}
        if released:
            sweep_dir.add_to_ledger(ReleasedEntry(place=one.place, run_ids=frozenset(released)))
    return kept

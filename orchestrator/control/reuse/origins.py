"""Find what the runs of a grid with `fork` or `init` start from: finished runs, by their ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.config.trainers import get_trainer
from orchestrator.control.reuse.adopted import finished
from orchestrator.control.reuse.library import Library, own_tree
from orchestrator.control.reuse.prefixes import FoundPrefix, Prefixes, has_files, without_state
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run, RunState, Sweep
from orchestrator.rundir import Result, RunDir, SweepDir
from orchestrator.rundir.attempts.absent_files import read_absent
from orchestrator.rundir.copies.prefix import Prefix, policy_file
from orchestrator.rundir.records.ledger_entries import Beginning
from orchestrator.status.survey import RunStatus, Survey

_SAVE = "the program has to save one, by run.save or in ORCHESTRATE_CHECKPOINT_DIR"


def find_origins(
    sweep: Sweep, sweep_dir: SweepDir, seen: Survey, libraries: Sequence[Library] | None = ()
) -> Prefixes:
    """Find what each run that has not begun starts from: in the tree first, then in libraries.

    Without ``libraries``, which are not looked into now, runs wait for what is not in the tree. Raises
    :class:`OrchestrateError` for a run that is not there, or not as the grid says.
    """
    new = {run.run_id: run for run in sweep.runs if run.origin or run.run_id in sweep.trunks}
    folders = sweep_dir.run_folders() if new else set()
    new = {
        run_id: run
        for run_id, run in new.items()
        if not seen.statuses[run_id].has_begun
        and (run_id not in folders or sweep_dir.run(run_id).prefix is None)
    }
    spec = get_trainer(sweep.trainer)
    whole = {run_id: spec.bound_to_length(run) for run_id, run in new.items() if not run.origin}
    alone = {run_id: why for run_id, why in whole.items() if why}
    new = {run_id: run for run_id, run in new.items() if run_id not in alone}
    found: dict[str, FoundPrefix] = {}
    waiting: dict[str, str] = {}
    cannot: dict[str, str] = {}
    there: dict[str, tuple[Library, RunDir, Result]] = {}
    if wanted := {run.origin for run in new.values()} - {""}:
        for one in finished((own_tree(sweep_dir.results), *(libraries or ())), wanted):
            there.setdefault(one[1].run_id, one)
    for run_id, run in new.items():
        trunk = seen.statuses.get(sweep.trunks.get(run_id, ""))
        try:
            if run.origin in there:
                found[run_id] = _found(sweep, run, *there[run.origin])
            elif (libraries is None and run.origin) if trunk is None else not trunk.state.final:
                waiting[run_id] = run.origin or sweep.trunks[run_id]
                _require_own(waiting[run_id], seen)
            elif run.origin:
                raise _missing(run, trunk, sweep_dir)
        except OrchestrateError as error:
            if trunk is None:
                raise
            waiting.pop(run_id, None)
            cannot[run_id] = ": ".join(filter(None, (str(error), error.hint)))
    spared = {run_id: one for run_id, one in spared_frames(sweep).items() if run_id in waiting}
    return Prefixes(found, waiting=waiting, cannot=cannot, spared=spared, alone=alone)


def _require_own(trunk: str, seen: Survey) -> None:
    """Raise if a run to fork from was given to another tree."""
    if trunk in seen.elsewhere:
        raise OrchestrateError(f"run {trunk} to fork from is another tree's", hint="submit its forks there")


def _missing(run: Run, trunk: RunStatus | None, sweep_dir: SweepDir) -> OrchestrateError:
    """Return the error for a run without the finished run that it starts from."""
    if trunk is None:
        section = "fork" if run.fork else "init"
        what = f"{section}: no finished run {run.origin} in {sweep_dir.results} or a library"
        hint = f"sync it, or name its tree as library: ({section}: {run.fork or run.init})"
        return OrchestrateError(what, hint=hint)
    state = "done, but its result cannot be read" if trunk.state is RunState.DONE else trunk.state.value
    hint = f"orchestrate retry {sweep_dir.name} {run.origin}"
    return OrchestrateError(f"run {run.origin} to fork from is {state}", hint=hint)


def await_trunks(sweep: Sweep) -> Prefixes:
    """Return which runs wait for others of a sweep that has not begun."""
    spec, own = get_trainer(sweep.trainer), {run.run_id: run for run in sweep.runs}
    waiting = {
        run_id: trunk
        for run_id, trunk in sweep.trunks.items()
        if run_id in own and trunk in own and (own[run_id].origin or not spec.bound_to_length(own[run_id]))
    }
    return Prefixes(waiting=waiting, spared=spared_frames(sweep))


def spared_frames(sweep: Sweep) -> dict[str, Beginning]:
    """Return what forks need not train once their trunks are finished, where that is known before."""
    spec, runs = get_trainer(sweep.trainer), {run.run_id: run for run in sweep.runs}
    known = {}
    for run_id, trunk_id in sweep.trunks.items():
        if (run := runs.get(run_id)) is not None and (trunk := runs.get(trunk_id)) is not None:
            frames, total = spec.frames_of(trunk), spec.frames_of(run)
            if frames and total:
                known[run_id] = Beginning(frames, total)
    return known


def _found(sweep: Sweep, run: Run, library: Library, source: RunDir, result: Result) -> FoundPrefix:
    """Return what the run starts from. Raises :class:`OrchestrateError` if that lacks what is needed."""
    name = f"{source.sweep}/{source.run_id}"
    if run.init:
        last = policy_file(result)
        if last is None or not has_files(library, source, [last]):
            raise OrchestrateError(f"init: the last checkpoint of {name} is not in {library.text}")
        return FoundPrefix(library, source, Prefix.of_policy(source, result, library.text), 0)
    prefix, before = Prefix.of(source, result, library.text), source.description()
    if prefix is None:
        fix = "begin with its policy, init: SWEEP/RUN" if policy_file(result) else _SAVE
        raise OrchestrateError(f"fork: {name} {without_state(before, result)}", hint=fix)
    if why := get_trainer(run.trainer).refuses_fork(before.point, run.point):
        raise OrchestrateError(f"fork: {why}")
    if not has_files(library, source, result.final_state):
        where = read_absent(source.path).where
        again = f"train it again: orchestrate retry {source.sweep} {source.run_id}"
        raise OrchestrateError(
            f"fork: the last checkpoint of {name} is not in {library.text}",
            hint=f"it is at {where}: bring it with orchestrate sync, or fork there" if where else again,
        )
    place = run.fork.partition("@")[2]
    if place and run.run_id not in sweep.trunks and float(place) != prefix.frames:
        raise OrchestrateError(
            f"fork: {name} has no checkpoint at {place} frames; the nearest is at its end, {prefix.frames:_}",
            hint=f"write at: {prefix.frames:_}, or {{for: …, at: {place}}}, which trains so much first",
        )
    lengths = _length(sweep, run), _length(sweep, before)
    total = round(prefix.frames * lengths[0] / lengths[1]) if all(lengths) else 0
    prefix = replace(prefix, fork=before.point)
    return FoundPrefix(library, source, prefix, max(total, prefix.frames + 1))


def _length(sweep: Sweep, run: Run) -> float:
    """Return the value of the key that says when the run ends; 0 without one."""
    names = (sweep.length,) if sweep.length else get_trainer(run.trainer).length_keys
    found = (run.value_of(name) for name in names)
    return next((value for value in found if isinstance(value, int | float) and math.isfinite(value)), 0.0)

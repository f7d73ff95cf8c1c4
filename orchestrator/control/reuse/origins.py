"""Find what the runs of a grid with `fork` or `init` start from: finished runs, by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.config.trainers import get_trainer
from orchestrator.control.reuse.adopted import finished
from orchestrator.control.reuse.library import Library, own_tree
from orchestrator.control.reuse.prefixes import FoundPrefix, Prefixes, has_files, without_state
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run, RunState, Sweep
from orchestrator.rundir import Result, RunDir, SweepDir
from orchestrator.rundir.copies.prefix import Prefix, policy_file
from orchestrator.status.survey import Survey

# States in which a run that others fork from will not be finished by itself.
_GIVEN_UP = (RunState.FAILED, RunState.CANCELLED, RunState.SKIPPED)

_SAVE = "the program has to save one, by run.save or in ORCHESTRATE_CHECKPOINT_DIR"


def find_origins(
    sweep: Sweep, sweep_dir: SweepDir, seen: Survey, libraries: Sequence[Library] = ()
) -> Prefixes:
    """Find what each run that has not begun starts from: in the tree first, then in libraries.

    Raises :class:`OrchestrateError` for a run that is not there, or not as the grid says.
    """
    new = {run.run_id: run for run in sweep.runs if run.origin or run.run_id in sweep.trunks}
    new = {
        run_id: run
        for run_id, run in new.items()
        if not seen.statuses[run_id].has_begun and sweep_dir.run(run_id).prefix is None
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
        for one in finished((own_tree(sweep_dir.results), *libraries), wanted):
            there.setdefault(one[1].run_id, one)
    for run_id, run in new.items():
        trunk = seen.statuses.get(sweep.trunks.get(run_id, ""))
        if run.origin in there:
            try:
                found[run_id] = _found(run, *there[run.origin], is_trunk=run_id in sweep.trunks)
            except OrchestrateError as error:
                if run_id not in sweep.trunks:
                    raise
                cannot[run_id] = ": ".join(filter(None, (str(error), error.hint)))
        elif trunk is not None and trunk.state in _GIVEN_UP:
            cannot |= (
                {run_id: f"run {trunk.run_id} to fork from is {trunk.state.value}"} if run.origin else {}
            )
        elif trunk is not None and not trunk.state.final:
            waiting[run_id] = trunk.run_id
        elif trunk is None:
            section = "fork" if run.fork else "init"
            raise OrchestrateError(
                f"{section}: no finished run {run.origin} in {sweep_dir.results} or a library",
                hint=f"sync it, or name its tree as library: ({section}: {run.fork or run.init})",
            )
    return Prefixes(found, waiting=waiting, cannot=cannot, alone=alone)


def _found(run: Run, library: Library, source: RunDir, result: Result, *, is_trunk: bool) -> FoundPrefix:
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
        raise OrchestrateError(f"fork: the last checkpoint of {name} is not in {library.text}")
    place = run.fork.partition("@")[2]
    if place and not is_trunk and float(place) != prefix.frames:
        raise OrchestrateError(
            f"fork: {name} has no checkpoint at {place} frames; the nearest is at its end, {prefix.frames:_}",
            hint=f"write at: {prefix.frames:_}, or {{for: …, at: {place}}}, which trains so much first",
        )
    total = get_trainer(run.trainer).frames_of(run) or 0
    prefix = replace(prefix, fork=before.point)
    return FoundPrefix(library, source, prefix, max(total, prefix.frames + 1))

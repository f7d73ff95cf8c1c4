"""Commands at the places that were assigned runs of a sweep, as its ledger at home has them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.config.profiles import Profile, find_profile
from orchestrator.control.remote.delegated import Decision
from orchestrator.control.remote.program import PATIENCE_S, CodeMissingError, RemoteProgram
from orchestrator.control.remote.push_code import look_there, push
from orchestrator.control.remote.status_cache import expire
from orchestrator.core.errors import HostError, NotFoundError, OrchestrateError, ProfileError
from orchestrator.rundir import CodeDir, SweepDir
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.records.ledger_entries import TreePlace
from orchestrator.status.ownership import TreeAssignment, assigned, home_of

# Status is read again and again: a long wait would show an old state as if it were today's.
_STATUS_PATIENCE_S = 60.0


def run_there(
    sweep_dir: SweepDir, one: TreeAssignment, command: Sequence[str], decision: bytes = b""
) -> tuple[Any, tuple[str, ...]]:
    """Run a command of a place's program; where its code is missing or damaged, send it again.

    A command that carries out a ``decision`` outdates what was last heard of the place. A place that
    ``accepted`` runs and has nothing of the sweep now is no proof of anything: a file system may be away.
    """
    program, patience = program_of(sweep_dir, one), PATIENCE_S if decision else _STATUS_PATIENCE_S
    place = one.place
    try:
        return program.run(command, decision, patience)
    except CodeMissingError:
        as_given = replace(program.profile, ssh=place.ssh, folder=place.folder)
        if one.accepted and not look_there(as_given, sweep_dir.name).known:
            raise not_there(place, sweep_dir.name) from None
        if not CodeDir.of(sweep_dir, program.code.id).exists():
            raise
        push(place, sweep_dir, program.code.id, replace=True)
        return program.run(command, decision, patience)
    finally:
        if decision:
            expire(sweep_dir, place)


def decide(
    sweep_dir: SweepDir, one: TreeAssignment, command: Sequence[str], run_ids: Iterable[str] = ()
) -> Any:
    """Have a place carry out the latest decision about its runs; return the JSON of the command there.

    Raises what :meth:`RemoteProgram.run` does.
    """
    decision = Decision(**decision_facts(sweep_dir, one.number), run_ids=tuple(run_ids)).to_bytes()
    return run_there(sweep_dir, one, command, decision)[0]


def status_there(sweep_dir: SweepDir, one: TreeAssignment) -> Mapping[str, Any]:
    """Return the sweep as `status --json` prints it at the place; no runs if it has not taken any up yet."""
    command = ["status", sweep_dir.name, "--json"]
    answer: Mapping[str, Any]
    if one.accepted:
        (answer,), _ = run_there(sweep_dir, one, command)
        return answer
    program = program_of(sweep_dir, one)
    try:
        (answer,), _ = program.run(command, patience=_STATUS_PATIENCE_S)  # no code is sent to ask for a state
        return answer
    except OrchestrateError as error:
        if isinstance(error, CodeMissingError) or error.exit_code == NotFoundError.exit_code:
            return {"runs": [], "jobs": {}}
        raise


def program_of(sweep_dir: SweepDir, one: TreeAssignment) -> RemoteProgram:
    """Return the pushed program at a place. Raises what :func:`profile_of` does."""
    return RemoteProgram(one.place, sweep_dir.name, one.code, profile_of(one))


def decision_facts(sweep_dir: SweepDir, number: int) -> dict[str, Any]:
    """Return the deciding tree and the number of its decision; the other side refuses earlier decisions."""
    owner = f"{socket.gethostname()}:{sweep_dir.path.absolute()}"
    return {"home": home_of(sweep_dir.read_ledger()), "owner": owner, "number": number}


def not_there(place: TreePlace, sweep: str) -> HostError:
    """The error for a place that took runs up, and where nothing of the sweep is now."""
    return HostError(
        f"{place.name}: {place.folder}/results/{sweep} was on {place.ssh} and is not there now",
        hint=f"is that disk mounted? If it is gone for good: orchestrate retry {sweep} --on TARGET --lost",
    )


def profile_of(one: TreeAssignment) -> Profile:
    """The profile that leads to the place. Raises :class:`NotFoundError`, ``ProfileError``."""
    place = one.place
    try:
        profile = find_profile(place.address)
    except ProfileError as error:
        raise NotFoundError(
            f"{place.name} has runs of this sweep, and its profile cannot be used: {error}",
            hint=f"mend it, or submit with another one that has `ssh: {place.ssh}`, `folder: {place.folder}`",
        ) from None
    if profile.ssh is None:
        raise NotFoundError(
            f"{profile.source} no longer says how {place.name} is reached, which has runs of this sweep",
            hint=f"add `ssh: {place.ssh}` to it",
        )
    return profile


def assigned_of(sweep_dir: SweepDir) -> list[TreeAssignment]:
    """Every place that has, or had, runs of the sweep."""
    if read_copy(sweep_dir.path) is not None:  # another machine's word of what to log in to
        return []
    return assigned(sweep_dir.read_ledger())

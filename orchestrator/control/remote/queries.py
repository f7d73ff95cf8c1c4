"""Questions to the trees that were given runs of a sweep, as its ledger at home has them."""

from __future__ import annotations

import socket
from dataclasses import replace

from orchestrator.config.profiles import Profile, find_profile
from orchestrator.control.remote.client import PATIENCE_S, CodeMissingError, ask, parsed
from orchestrator.control.remote.messages import A, Decision, Request, StatusRequest
from orchestrator.control.remote.push_code import look_there, push
from orchestrator.core.errors import HostError, NotFoundError, ProfileError
from orchestrator.rundir import CodeDir, FrozenCode, SweepDir
from orchestrator.rundir.ledger_entries import TreePlace
from orchestrator.rundir.synced import copy_of
from orchestrator.status.ownership import AssignedRuns, assigned, home_of


def question(
    sweep_dir: SweepDir, one: AssignedRuns, request: Request, of: type[A], patience: float = PATIENCE_S
) -> A:
    """Ask a place; one that has lost the code that answers is sent it again.

    A place that took runs up and has nothing of the sweep now is no proof of anything: a file system may be
    away. Raises what :func:`ask` does.
    """
    profile = profile_of(one)
    try:
        return parsed(of, one.place, ask(one.place, sweep_dir.name, one.code, profile, request, patience))
    except CodeMissingError:
        as_given = replace(profile, ssh=one.place.ssh, folder=one.place.folder)
        if not look_there(as_given, sweep_dir.name).known:
            if one.accepted:
                raise not_there(one.place, sweep_dir.name) from None
            if isinstance(request, StatusRequest):  # a look sends nothing
                return of(runs=())
        kept = CodeDir.of(sweep_dir, one.code.id)
        if not kept.exists():
            raise
        push(one.place, sweep_dir, FrozenCode(one.code.id, kept.path, (), kept.path, kept.path))
        return parsed(of, one.place, ask(one.place, sweep_dir.name, one.code, profile, request, patience))


def decision_of(sweep_dir: SweepDir, number: int) -> Decision:
    """Return the deciding tree and the number of its decision; the other side refuses earlier decisions."""
    owner = f"{socket.gethostname()}:{sweep_dir.path.absolute()}"
    return Decision(home_of(sweep_dir.read_ledger()), owner, number)


def not_there(place: TreePlace, sweep: str) -> HostError:
    """The error for a place that took runs up, and where nothing of the sweep is now."""
    return HostError(
        f"{place.name}: {place.folder}/results/{sweep} was on {place.ssh} and is not there now",
        hint=f"is that disk mounted? If it is gone for good: orchestrate retry {sweep} --on TARGET --lost",
    )


def profile_of(one: AssignedRuns) -> Profile:
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


def assigned_of(sweep_dir: SweepDir) -> list[AssignedRuns]:
    """Every place that has, or had, runs of the sweep."""
    if copy_of(sweep_dir) is not None:  # another machine's word of what to log in to
        return []
    return assigned(sweep_dir.read_ledger())

"""Targets by name: which backend serves them and what they offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from orchestrator.backends.base import Backend
from orchestrator.config.backends import find_backend, get_backend, load
from orchestrator.config.profiles import Profile, find_profile
from orchestrator.core.errors import GridError, OrchestrateError, ProfileError
from orchestrator.core.types import Array, JobState, JobStatus, Price, Sweep
from orchestrator.rundir import SweepDir


def target_of(sweep: Sweep, on: str | None, options: Sequence[str] = ()) -> Backend:
    """The target that was asked for, or else the grid's first; a wrong one there is the grid's fault.

    ``options`` are passed on to the backend's own submission command.
    """
    if on is not None:
        return find_target(on, options)
    try:
        return find_target(sweep.targets[0], options)
    except ProfileError as error:
        raise GridError(f"targets: {error}", file=sweep.source, hint=error.hint) from None


def behind_ssh(sweep: Sweep, on: str | None) -> Profile | None:
    """The profile of the target that was asked for, or else the grid's first, if another machine has it."""
    name = on if on is not None else sweep.targets[0]
    try:
        profile = find_profile(name)
    except ProfileError:
        return None  # :func:`target_of` says what is wrong with it
    return profile if profile.ssh is not None else None


def find_target(name: str, options: Sequence[str] = ()) -> Backend:
    """The backend behind a profile's name or path. Raises :class:`ProfileError`."""
    profile = find_profile(name)
    if options and not get_backend(profile.backend).options:
        raise OrchestrateError(
            f"found {' '.join(options)} after `--`, and {name} has nothing to pass options on to",
            hint="options after `--` are for a scheduler: add --on PROFILE, or leave them away",
        )
    if profile.ssh is not None:
        raise OrchestrateError(
            f"{name}: its jobs are submitted on {profile.ssh}, and this command works on this machine",
            hint=f"orchestrate sweep --grid GRID --on {name}",
        )
    return make_backend(profile, options)


def make_backend(profile: Profile, options: Sequence[str] = ()) -> Backend:
    """The profile's backend, on whichever machine that works."""
    made: Backend = load(get_backend(profile.backend).make)(profile, options)
    return made


def list_price(profile: Profile) -> Price | None:
    """What the backend's own price list says of the profile's machine; ``None`` where it says nothing.

    Raises :class:`BackendUnavailableError` where it cannot be asked, or has no such machine.
    """
    prices = get_backend(profile.backend).prices
    price: Price | None = load(prices)(profile) if prices else None
    return price


class AllBackends:
    """All backends at once, for jobs that were submitted some time: an id begins with its backend's kind."""

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        answers = dict.fromkeys(ids, JobStatus(JobState.UNKNOWN, "not an id of any backend"))
        for kind, own in _by_kind(ids).items():
            answers |= _any(kind).poll(own)
        return answers

    def cancel(self, ids: Sequence[str]) -> None:
        """Every backend is asked before the first error is raised."""
        problems: list[OrchestrateError] = []
        for kind, own in _by_kind(ids).items():
            try:
                _any(kind).cancel(own)
            except OrchestrateError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def find(self, kind: str, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        """As :meth:`Backend.find`, with the backend of that kind."""
        return _any(kind).find(array, sweep_dir) if find_backend(kind) is not None else {}


def _by_kind(ids: Sequence[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for one in ids:
        kind = one.partition(":")[0]
        if find_backend(kind) is not None:
            groups.setdefault(kind, []).append(one)
    return groups


@cache
def _any(kind: str) -> Backend:
    """A backend of that kind, one per process: it keeps answers for a while."""
    return make_backend(Profile(kind, "built in", backend=kind))

"""Find targets by name, and reach all backends at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import resolve_name

from orchestrator.backends.base import Backend
from orchestrator.config.backends import find_backend, get_backend
from orchestrator.config.profiles import Profile, find_profile
from orchestrator.core.errors import GridError, OrchestrateError, ProfileError
from orchestrator.core.types import Array, JobState, JobStatus, Price, Sweep
from orchestrator.rundir import SweepDir


def target_of(sweep: Sweep, on: str | None, options: Sequence[str] = ()) -> Backend:
    """Return the requested target, or else the grid's first; a wrong name there is a :class:`GridError`.

    ``options`` are passed to the backend's own submission command.
    """
    if on is not None:
        return find_target(on, options)
    try:
        return find_target(sweep.targets[0], options)
    except ProfileError as error:
        raise GridError(f"targets: {error}", file=sweep.source, hint=error.hint) from None


def behind_ssh(sweep: Sweep, on: str | None) -> Profile | None:
    """Return the profile of the requested target, or else the grid's first, if it is on another machine."""
    name = on if on is not None else sweep.targets[0]
    try:
        profile = find_profile(name)
    except ProfileError:
        return None  # :func:`target_of` raises the error
    return profile if profile.ssh is not None else None


def find_target(name: str, options: Sequence[str] = ()) -> Backend:
    """Return the backend for a profile's name or path. Raises :class:`ProfileError`."""
    profile = find_profile(name)
    if options and not get_backend(profile.backend).options:
        raise OrchestrateError(
            f"found {' '.join(options)} after `--`, but {name} has no submission command for options",
            hint="options after `--` are for a scheduler: add --on PROFILE, or remove them",
        )
    if profile.ssh is not None:
        raise OrchestrateError(
            f"{name}: its jobs are submitted on {profile.ssh}, but this command submits on this machine",
            hint=f"orchestrate sweep --grid GRID --on {name}",
        )
    return make_backend(profile, options)


def make_backend(profile: Profile, options: Sequence[str] = ()) -> Backend:
    """Create the profile's backend, wherever it must run."""
    made: Backend = resolve_name(get_backend(profile.backend).make)(profile, options)
    return made


def list_price(profile: Profile) -> Price | None:
    """Return the list price of the profile's machine; ``None`` without one.

    Raises :class:`BackendUnavailableError` if the list is unavailable or has no such machine.
    """
    prices = get_backend(profile.backend).prices
    price: Price | None = resolve_name(prices)(profile) if prices else None
    return price


class AllBackends:
    """All backends at once, for submitted jobs: an id begins with its backend's kind."""

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the status of each of these jobs."""
        answers = dict.fromkeys(ids, JobStatus(JobState.UNKNOWN, "not an id of any backend"))
        for kind, own in _by_kind(ids).items():
            answers |= _backend_of_kind(kind).poll(own)
        return answers

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs of all backends before the first error is raised."""
        problems: list[OrchestrateError] = []
        for kind, own in _by_kind(ids).items():
            try:
                _backend_of_kind(kind).cancel(own)
            except OrchestrateError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def find(self, kind: str, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        """Call :meth:`Backend.find` of the backend of that kind."""
        return _backend_of_kind(kind).find(array, sweep_dir) if find_backend(kind) is not None else {}


def _by_kind(ids: Sequence[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for one in ids:
        kind = one.partition(":")[0]
        if find_backend(kind) is not None:
            groups.setdefault(kind, []).append(one)
    return groups


@cache
def _backend_of_kind(kind: str) -> Backend:
    """Return the backend of that kind, one per process: it caches replies."""
    own = {name: key.default for name, key in get_backend(kind).own.items()}
    return make_backend(Profile(kind, "built in", backend=kind, own=own))

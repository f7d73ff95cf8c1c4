"""What is decided about all of a sweep's targets in one go: a submission that nobody follows, a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from orchestrator.config.check import CheckReport, check_sweep
from orchestrator.control import submit
from orchestrator.control.forecast import forecasts
from orchestrator.control.multi_target.scheduler import TargetScheduler, Tell
from orchestrator.control.multi_target.targets import SharedSweep, TargetHandle, abilities
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import TargetAssignment
from orchestrator.planning.distribute import assign_runs, split
from orchestrator.planning.plan import to_do


def check(matter: SharedSweep, parties: Sequence[TargetHandle]) -> CheckReport | None:
    """What is amiss with the runs that are to be done, if any are. With a problem nothing is to be submitted.

    Raises :class:`OrchestrateError` where a target lacks what its profile requires.
    """
    sweep, (_, skipped) = matter.sweep, abilities(matter.sweep, parties)
    seen = poll_sweep(matter.sweep_dir, submit.rows_of(sweep, matter.sweep_dir))
    todo = tuple(run for run in to_do(sweep, seen) if run.run_id not in skipped)
    if not todo:
        return None
    if blocking := next((party.blocked for party in parties if party.blocked is not None), None):
        raise OrchestrateError(blocking.text, hint=blocking.hint)
    return check_sweep(replace(sweep, runs=todo))


def submit_all(matter: SharedSweep, parties: Sequence[TargetHandle], tell: Tell) -> None:
    """Submit the whole sweep, shared out once. A target that cannot be submitted to loses its part."""
    table = TargetScheduler(matter, parties, tell)
    table.open()
    speeds = _speeds(matter, parties)
    while True:
        sight = table.take_snapshot()
        seats = table.seats(sight)
        hands = split(table.todo(sight), seats, speeds)
        if not hands:
            return
        for seat in seats:
            if run_ids := hands.get(seat.name):
                table.submit(seat, run_ids, sight)


def rehearse(matter: SharedSweep, parties: Sequence[TargetHandle], *, detach: bool) -> Mapping[str, Any]:
    """What would be submitted first, or with ``detach`` at all, as :func:`dry_run.planned` tells it.

    Each array says its target. What would be dealt later counts as waiting. Writes nothing.
    """
    table = TargetScheduler(matter, parties, lambda _: None)
    sight = table.take_snapshot()
    todo, seats = table.todo(sight), table.seats(sight)
    hands = split(todo, seats, _speeds(matter, parties)) if detach else assign_runs(todo, seats)
    arrays: list[Mapping[str, Any]] = []
    notes: list[str] = []
    waiting, later = len(todo), 0
    for seat, party in zip(seats, parties, strict=True):
        if run_ids := hands.get(seat.name):
            plan = party.rehearse(TargetAssignment(frozenset(run_ids)), seat.free, later)
            arrays += [{**array, "target": party.name} for array in plan["arrays"]]
            notes += [f"{party.name}: {note}" for note in plan.get("notes", ())]
            waiting, later = waiting - len(run_ids) + plan["waiting"], later + 1
    names = ", ".join(party.name for party in parties)
    return {"target": names, "arrays": arrays, "skipped": table.skipped, "waiting": waiting, "notes": notes}


def _speeds(matter: SharedSweep, parties: Sequence[TargetHandle]) -> dict[str, float] | None:
    """Runs per second and place that each target is predicted to do; ``None`` if that of one is not known."""
    try:
        found = forecasts(matter.sweep, matter.sweep_dir, [party.address for party in parties], matter.wish)
    except OrchestrateError:
        return None
    speeds = {}
    for party, one in zip(parties, found, strict=True):
        times = [run.seconds.mid for run in one.runs if run.seconds is not None and run.seconds.mid > 0]
        if not times or len(times) < len(one.runs):
            return None
        speeds[party.name] = 1 / fmean(times)
    return speeds

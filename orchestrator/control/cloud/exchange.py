"""Exchange with a sweep's cloud instances: results here, decisions there, finished instances ended.

Commands that follow or decide call this. Looking never does: ``status`` and ``top`` only on request, by
:func:`fleet.exchange`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from orchestrator.control.cloud import cloud_instances
from orchestrator.core.formatting import moment
from orchestrator.rundir import SweepDir
from orchestrator.rundir.copies.parcel import fetched_at

# Takes a line for the person at the terminal.
Tell = Callable[[str], None]

# Time given to finished instances to hand over their results and terminate.
_DRAIN_S = 1800.0
# A command that follows exchanges more often than this; then the age of the state is not shown.
_RECENT_S = 60.0


def quietly(_: str) -> None:
    """Print nothing."""


def exchange_with_instances(
    sweep_dir: SweepDir, tell: Tell, not_within: float = cloud_instances.EXCHANGE_S, *, orphans: bool = False
) -> bool:
    """Fetch results from cloud instances, send decisions, terminate finished instances.

    ``False`` if there were problems; ``tell`` gets them and what was done.
    ``not_within`` and ``orphans`` as for :func:`cloud_instances.exchange`.
    """
    done = cloud_instances.exchange(sweep_dir, not_within, orphans=orphans)
    for line in done.lines:
        tell(line)
    return not done.problems


def drain_instances(sweep_dir: SweepDir, tell: Tell) -> Iterator[None]:
    """Exchange until the sweep's instances, if any, have handed over their results and terminated."""
    if cloud_instances.sent_jobs(sweep_dir):
        for done in cloud_instances.drain_instances(sweep_dir, _DRAIN_S):
            for line in done.lines:
                tell(line)
            yield


def age_note(sweep_dir: SweepDir) -> tuple[str, ...]:
    """Say when the sweep's open instances were last fetched from; empty if just now, or without any."""
    times = [fetched_at(sweep_dir, job.token) for job in cloud_instances.sent_jobs(sweep_dir)]
    oldest, now = min((at or 0.0 for at in times), default=time.time()), time.time()
    if now - oldest < _RECENT_S:
        return ()
    age = (
        f"as of {moment(oldest, now)}, {_ago(now - oldest)} ago"
        if oldest
        else "nothing fetched from instances yet"
    )
    return (f"{age}; {command(sweep_dir)} asks the instances",)


def command(sweep_dir: SweepDir) -> str:
    """The command that exchanges on request, for messages."""
    return f"`orchestrate status {sweep_dir.name} --exchange`"


def follow_command(sweep_dir: SweepDir) -> str:
    """The command that follows a sweep; with instances also fetches from them, for messages."""
    exchanges = " --exchange" if cloud_instances.sent_jobs(sweep_dir) else ""
    return f"orchestrate status {sweep_dir.name} --watch{exchanges}"


def _ago(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"

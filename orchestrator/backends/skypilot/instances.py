"""SkyPilot's instances: what :class:`~orchestrator.backends.instances.Instances` asks for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from orchestrator.backends.instances import Instance, InstanceState, RecordedState
from orchestrator.backends.skypilot import client
from orchestrator.backends.skypilot.task import cluster_name
from orchestrator.core.errors import RefusedError
from orchestrator.core.machine.ssh import Host
from orchestrator.core.types import JobState, JobStatus, Reason
from orchestrator.rundir import SweepDir
from orchestrator.rundir.copies.parcel import RESULTS

# Where SkyPilot copies a task's `workdir`, which holds the results tree; relative to the home folder.
RESULTS_THERE = f"sky_workdir/{RESULTS}"
PREFIX = "skypilot:"
RESTART = "sky start {0}; sky down gives it up"
# Seconds for which the existence of an instance, and the state of its task, are not queried again.
_SURE_S = 120.0
_TASK_FRESH_S = 60.0
# Prints the ends of all of SkyPilot's logs, without colours.
_READ = """
for one in ~/sky_logs/*/*.log; do printf "== %s\\n" "${one##*/}"; tail -c 8192 "$one"; done |
sed "s/\\x1b\\[[0-9;]*m//g"
"""


@dataclass(frozen=True)
class JobId:
    """The parts of a job id: its instance, its sweep and token there, and the launch request."""

    cluster: str
    sweep: str
    token: str
    request: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.cluster}/{self.sweep}/{self.token}/{self.request}"

    @classmethod
    def of(cls, job_id: str) -> Self:
        return cls(*job_id.removeprefix(PREFIX).split("/"))


def instance_of(job_id: str) -> str:
    """Return the name of a job's instance, as known to ssh and SkyPilot."""
    return JobId.of(job_id).cluster


def standing_of(ids: Sequence[str], found: Mapping[str, Instance]) -> dict[str, InstanceState]:
    """Return the states of these jobs' instances, of which :func:`up` has ``found`` these.

    Raises :class:`BackendUnavailableError` if they are unknown.
    """
    return {one: _standing(JobId.of(one), found.get(instance_of(one))) for one in ids}


def _standing(job: JobId, cluster: Instance | None) -> InstanceState:
    launch = _launch(job)
    if (
        launch is client.RequestState.RUNNING
    ):  # also while files are still being copied to an instance that is up
        return InstanceState.STARTING
    never_was = launch in (client.RequestState.FAILED, client.RequestState.CANCELLED)
    if cluster is None or (never_was and cluster.state is RecordedState.STARTING):
        return InstanceState.GONE
    if launch is not client.RequestState.SUCCEEDED and not cluster.autodown:
        return InstanceState.ORPHAN
    if cluster.state is RecordedState.STOPPED:
        return InstanceState.STOPPED
    return InstanceState.UP  # a broken one may still hold results


def _launch(job: JobId) -> client.RequestState:
    """Return the state of a job's launch, also after a restart of SkyPilot's server lost the request."""
    state = client.request_state(job.request).state
    if state is client.RequestState.UNKNOWN and client.launching(job.cluster) is not None:
        return client.RequestState.RUNNING
    return state


def is_orphan(job_id: str, cluster: Instance) -> bool:
    """Return whether a job's instance is an orphan according to SkyPilot's records."""
    return not cluster.autodown and _standing(JobId.of(job_id), cluster) is InstanceState.ORPHAN


def never_sent(job_id: str) -> bool:
    """Return whether the job of an orphan was never sent.

    Raises :class:`BackendUnavailableError` if the instance does not answer. An instance without automatic
    termination may also be a working one with its timer removed by a user.
    """
    job = JobId.of(job_id)
    cluster = up([job_id]).get(job.cluster)
    if cluster is None or cluster.state is not RecordedState.UP:
        return True  # a job is only sent to an instance that is up
    try:
        return job.token not in client.tasks(job.cluster)
    except RefusedError:
        return True  # its set-up never got far enough to run tasks


def launch_failure(job_id: str) -> str | None:
    """Return why a job's launch failed; ``None`` if it did not, or its server died."""
    launch = client.request_state(JobId.of(job_id).request)
    return launch.text if launch.state is client.RequestState.FAILED else None


def launch_over(job_id: str) -> float | None:
    """Return when a job's launch failed or was cancelled (epoch seconds); ``None`` if that is unknown."""
    launch = client.request_state(JobId.of(job_id).request)
    unsuccessful = launch.state in (client.RequestState.FAILED, client.RequestState.CANCELLED)
    return launch.finished if unsuccessful else None


def unrecorded_id(sweep: SweepDir, token: str) -> str:
    """Return the id of a job with an unrecorded launch, if it exists."""
    return str(JobId(cluster_name(sweep, token), sweep.name, token, ""))


def trust(job_id: str) -> None:
    """Record that a job's instance answered."""
    _confirmed_at[instance_of(job_id)] = time.monotonic()


def doubt(job_id: str) -> None:
    """Check with the cloud next time whether a job's instance still exists: it does not answer."""
    _confirmed_at.pop(instance_of(job_id), None)


# When an instance last answered, or was last confirmed by its cloud (monotonic).
_confirmed_at: dict[str, float] = {}


def up(ids: Sequence[str]) -> dict[str, Instance]:
    """Return the existing instances of these jobs, by name; the cloud is queried only if needed.

    Cloud queries are slow, most of all for an instance that was never up; SkyPilot's records show whether
    such a one is being launched.
    """
    found, now = client.clusters({instance_of(one) for one in ids}, refresh=False), time.monotonic()
    unsure = {
        name
        for name, cluster in found.items()
        if now - _confirmed_at.get(name, -math.inf) > _SURE_S
        and (cluster.autodown or cluster.state is not RecordedState.STARTING)
    }
    if not unsure:
        return found
    _confirmed_at.update(dict.fromkeys(unsure, now))
    known = {name: cluster for name, cluster in found.items() if name not in unsure}
    return known | client.clusters(unsure, refresh=True)


def reach(job_id: str) -> Host:
    """Return a job's instance as an ssh host, with its results tree at ``RESULTS_THERE``."""
    cluster = JobId.of(job_id).cluster
    client.ssh_config(cluster)
    return Host(cluster)


def last_words(job_id: str) -> str:
    """Return the end of the output of a job's set-up and program, from its instance."""
    return reach(job_id).run(["sh", "-c", _READ]).output


def over(job_id: str) -> str | None:
    """Return SkyPilot's description of a job that ended on a running instance; ``None`` while it has not.

    SkyPilot is queried rarely, and not at first: jobs report their own progress.
    """
    job, now = JobId.of(job_id), time.monotonic()
    if now - _queried_at.setdefault(job_id, now) < _TASK_FRESH_S:
        return None
    _queried_at[job_id] = now
    task = client.tasks(job.cluster).get(job.token)
    if task is not None:
        return task.text if task.state.final else None
    launched = client.request_state(job.request)
    return None if launched.state is client.RequestState.RUNNING else launched.text or "its task never began"


# When SkyPilot was last queried for a job's task, which is slow (monotonic).
_queried_at: dict[str, float] = {}
# Final states of jobs with terminated instances: nothing else records them.
final_states: dict[str, JobStatus] = {}


def take_down(job_id: str, said: str | None = None) -> None:
    """Terminate a job's instance and verify that. ``said``: how its job ended, if it ended by itself."""
    client.down(instance_of(job_id))
    if said is not None:
        final_states[job_id] = JobStatus(JobState.ENDED, said, Reason.KILLED)

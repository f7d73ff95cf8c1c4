"""The SkyPilot backend: each job is a task on its own cloud instance, which terminates by itself."""

from __future__ import annotations

import enum
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from orchestrator.backends.script import Script, Setting
from orchestrator.backends.skypilot import client
from orchestrator.backends.skypilot.client import Cluster, ClusterState
from orchestrator.backends.skypilot.task import (
    RESULTS_THERE,
    boot_commands,
    cluster_name,
    secret_names,
    task_file,
)
from orchestrator.backends.waste import idle_gpus
from orchestrator.config.command import COMMAND_KEY, program_file
from orchestrator.config.profiles import Profile
from orchestrator.config.worktree import NoWorkTree, read_worktree
from orchestrator.core.errors import BackendUnavailableError, OrchestrateError, RefusedError
from orchestrator.core.ssh import Host
from orchestrator.core.types import Array, Capacity, Concern, JobState, JobStatus, Plan, Reason
from orchestrator.rundir import CodeDir, SweepDir
from orchestrator.rundir.parcel import discard, keep_store, pack

__all__ = [
    "RESULTS_THERE",
    "Cluster",
    "ClusterState",
    "InstanceState",
    "SkyPilotBackend",
    "doubt",
    "instance_of",
    "is_named_here",
    "is_orphan",
    "last_words",
    "launch_failure",
    "never_sent",
    "over",
    "reach",
    "standing_of",
    "take_down",
    "trust",
    "unrecorded_id",
    "up",
]

PREFIX = "skypilot:"
_ORPHAN = "its launch died before its job began, and its instance has no automatic termination"
# Seconds for which the existence of an instance, and the state of its task, are not queried again.
_SURE_S = 120.0
_TASK_FRESH_S = 60.0
# Appends a stop request to a worker's mailbox $1.
_WRITE = 'printf "TERM\\n" >> "$1"'
# Prints the ends of all of SkyPilot's logs, without colours.
_READ = """
for one in ~/sky_logs/*/*.log; do printf "== %s\\n" "${one##*/}"; tail -c 8192 "$one"; done |
sed "s/\\x1b\\[[0-9;]*m//g"
"""
# SkyPilot skips files named in this file; without it, those in .gitignore.
_IGNORE = ".skyignore"


class InstanceState(enum.Enum):
    """State of an instance. UP: reachable. STOPPED: stopped by a user, its disk still exists.

    GONE: it does not exist, or never became usable. ORPHAN: its launch died before its job was sent, so that
    no launch is active and no automatic termination is set.
    """

    STARTING = "starting"
    UP = "up"
    STOPPED = "stopped"
    ORPHAN = "orphan"
    GONE = "gone"


class SkyPilotBackend:
    """Cloud instances, started through SkyPilot."""

    kind: ClassVar[str] = "skypilot"
    queues: ClassVar[bool] = True
    leaves: ClassVar[bool] = False

    def __init__(self, profile: Profile, options: Sequence[str] = ()) -> None:
        self._profile, self.address, self.options = profile, profile.address, options

    def capacity(self, ask: bool = True) -> Capacity:
        """Return the resources of one instance, and the most instances at once."""
        profile = self._profile
        return Capacity(
            profile.name,
            profile.cpus_per_task,
            profile.gpus or 0,
            no_gpu=f"needs a GPU, and instances of {profile.name} have none (no accelerators in its profile)",
            mem=profile.mem,
            pack=profile.pack,
            array_size=1,
            apart=True,
            most=profile.instances,
        )

    def concerns(self, plan: Plan, ask: bool = True) -> tuple[Concern, ...]:
        """Warn of unused GPUs, and of programs that are not copied to an instance: only git work
        trees are.
        """
        return (*idle_gpus(plan, self._profile), *_unsent(plan))

    def render(self, array: Array, setting: Setting) -> str:
        """Return the task file of the job."""
        (job,) = array.jobs
        return task_file(job, setting, self._profile)

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        """Pack the job's files and launch its instance."""
        (job,), setting = script.array.jobs, script.setting
        folder = pack(setting.sweep_dir, job, CodeDir.of(setting.sweep_dir, setting.code.id))
        (folder / _IGNORE).touch()
        if self._profile.store is not None:
            keep_store(setting.sweep_dir, job.token, self._profile.store)
        secrets = {name: os.environ[name] for name in secret_names(self._profile)}
        cluster = cluster_name(setting.sweep_dir, job.token)
        try:
            boot = boot_commands(self._profile)
            request = client.launch(cluster, script.text, secrets=secrets, boot=boot)
        except RefusedError:
            discard(setting.sweep_dir, job.token)
            raise
        return {job.token: str(_Id(cluster, setting.sweep_dir.name, job.token, request))}

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        """Return the id of a job launched with a lost reply."""
        token = array.jobs[0].token
        cluster = cluster_name(sweep_dir, token)
        request = client.launching(cluster)
        if request is None and cluster not in client.clusters([cluster], refresh=False):
            return {}
        return {token: str(_Id(cluster, sweep_dir.name, token, request or ""))}

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the status of each of these jobs."""
        try:
            clusters = _clusters(ids)
            return {one: self._status(one, clusters) for one in ids}
        except BackendUnavailableError as error:
            return dict.fromkeys(ids, JobStatus(JobState.UNKNOWN, f"SkyPilot: {error}"))

    def _status(self, job_id: str, clusters: Mapping[str, Cluster]) -> JobStatus:
        if job_id in _final_states:
            return _final_states[job_id]
        job = _Id.of(job_id)
        cluster = clusters.get(job.cluster)
        if cluster is not None and is_orphan(job_id, cluster):
            return JobStatus(JobState.UNKNOWN, _ORPHAN, place=job.cluster)
        if cluster is not None and cluster.state is ClusterState.UP:
            return JobStatus(JobState.RUNNING, "its instance is up", place=job.cluster)
        return _not_up(cluster, client.request_state(job.request))

    def cancel(self, ids: Sequence[str]) -> None:
        """Write a stop request to each worker's mailbox: SkyPilot's own cancel leaves no time to save.

        An instance that is still starting, or is an orphan, is terminated. All are tried before the first
        error is raised.
        """
        problems: list[OrchestrateError] = []
        for one, standing in standing_of(ids).items():
            try:
                if standing is InstanceState.UP:
                    job = _Id.of(one)
                    letter = SweepDir(Path(RESULTS_THERE), job.sweep).mailbox(job.token)
                    reach(one).run(["sh", "-c", _WRITE, "sh", str(letter)])
                elif standing in (InstanceState.STARTING, InstanceState.ORPHAN):
                    take_down(one)
            except OrchestrateError as error:
                problems.append(error)
        if problems:
            raise problems[0]


def _unsent(plan: Plan) -> Iterator[Concern]:
    """Warn of programs in a project that is no git work tree."""
    commands = (run.overrides.get(COMMAND_KEY) for run in plan.sweep.runs)
    argvs = ([str(item) for item in one] for one in commands if isinstance(one, list | tuple))
    files = (program_file(argv) for argv in argvs)
    file = next((file for file in files if file and not file.startswith(("/", "~", "$"))), None)
    try:
        if file is not None:
            read_worktree(Path.cwd().resolve())
    except NoWorkTree as error:
        yield Concern(
            f"no file of {Path.cwd()} is sent to an instance ({error}), but `command` starts {file}",
            "run `git init` there, or give the program's absolute path on the instance",
        )


@dataclass(frozen=True)
class _Id:
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
    return _Id.of(job_id).cluster


def standing_of(ids: Sequence[str]) -> dict[str, InstanceState]:
    """Return the states of these jobs' instances. Raises :class:`BackendUnavailableError` if they are
    unknown.
    """
    clusters = _clusters(ids)
    return {one: _standing(_Id.of(one), clusters.get(instance_of(one))) for one in ids}


def _standing(job: _Id, cluster: Cluster | None) -> InstanceState:
    launch = _launch(job)
    if (
        launch is client.RequestState.RUNNING
    ):  # also while files are still being copied to an instance that is up
        return InstanceState.STARTING
    never_was = launch in (client.RequestState.FAILED, client.RequestState.CANCELLED)
    if cluster is None or (never_was and cluster.state is ClusterState.STARTING):
        return InstanceState.GONE
    if launch is not client.RequestState.SUCCEEDED and not cluster.autodown:
        return InstanceState.ORPHAN
    if cluster.state is ClusterState.STOPPED:
        return InstanceState.STOPPED
    return InstanceState.UP  # a broken one may still hold results


def _launch(job: _Id) -> client.RequestState:
    """Return the state of a job's launch, also after a restart of SkyPilot's server lost the request."""
    state = client.request_state(job.request).state
    if state is client.RequestState.UNKNOWN and client.launching(job.cluster) is not None:
        return client.RequestState.RUNNING
    return state


def is_orphan(job_id: str, cluster: Cluster) -> bool:
    """Return whether a job's instance is an orphan according to SkyPilot's records."""
    return not cluster.autodown and _standing(_Id.of(job_id), cluster) is InstanceState.ORPHAN


def never_sent(job_id: str) -> bool:
    """Return whether the job of an orphan was never sent.

    Raises :class:`BackendUnavailableError` if the instance does not answer. An instance without automatic
    termination may also be a working one with its timer removed by a user.
    """
    job = _Id.of(job_id)
    cluster = _clusters([job_id]).get(job.cluster)
    if cluster is None or cluster.state is not ClusterState.UP:
        return True  # a job is only sent to an instance that is up
    try:
        return job.token not in client.tasks(job.cluster)
    except RefusedError:
        return True  # its set-up never got far enough to run tasks


def launch_failure(job_id: str) -> str | None:
    """Return why a job's launch failed; ``None`` if it did not, or its server died."""
    launch = client.request_state(_Id.of(job_id).request)
    return launch.text if launch.state is client.RequestState.FAILED else None


def unrecorded_id(sweep: SweepDir, token: str) -> str:
    """Return the id of a job with an unrecorded launch, if it exists."""
    return str(_Id(cluster_name(sweep, token), sweep.name, token, ""))


def is_named_here(job_id: str, sweep: SweepDir, token: str) -> bool:
    """Return whether a job's instance is named as if launched from this machine and folder."""
    return instance_of(job_id) == cluster_name(sweep, token)


def up(ids: Sequence[str]) -> dict[str, Cluster]:
    """Return the existing instances of these jobs, by name."""
    return _clusters(ids)


def trust(job_id: str) -> None:
    """Record that a job's instance answered."""
    _confirmed_at[instance_of(job_id)] = time.monotonic()


def doubt(job_id: str) -> None:
    """Check with the cloud next time whether a job's instance still exists: it does not answer."""
    _confirmed_at.pop(instance_of(job_id), None)


# When an instance last answered, or was last confirmed by its cloud (monotonic).
_confirmed_at: dict[str, float] = {}


def _clusters(ids: Sequence[str]) -> dict[str, Cluster]:
    """Return the existing instances of these jobs, by name; the cloud is queried only if needed.

    Cloud queries are slow, most of all for an instance that was never up; SkyPilot's records show whether
    such a one is being launched.
    """
    found, now = client.clusters({instance_of(one) for one in ids}, refresh=False), time.monotonic()
    unsure = {
        name
        for name, cluster in found.items()
        if now - _confirmed_at.get(name, -math.inf) > _SURE_S
        and (cluster.autodown or cluster.state is not ClusterState.STARTING)
    }
    if not unsure:
        return found
    _confirmed_at.update(dict.fromkeys(unsure, now))
    known = {name: cluster for name, cluster in found.items() if name not in unsure}
    return known | client.clusters(unsure, refresh=True)


def reach(job_id: str) -> Host:
    """Return a job's instance as an ssh host, with its results tree at ``RESULTS_THERE``."""
    cluster = _Id.of(job_id).cluster
    client.ssh_config(cluster)
    return Host(cluster)


def last_words(job_id: str) -> str:
    """Return the end of the output of a job's set-up and program, from its instance."""
    return reach(job_id).run(["sh", "-c", _READ]).output


def over(job_id: str) -> str | None:
    """Return SkyPilot's description of a job that ended on a running instance; ``None`` while it has not.

    SkyPilot is queried rarely, and not at first: jobs report their own progress.
    """
    job, now = _Id.of(job_id), time.monotonic()
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
_final_states: dict[str, JobStatus] = {}


def take_down(job_id: str, said: str | None = None) -> None:
    """Terminate a job's instance and verify that. ``said``: how its job ended, if it ended by itself."""
    client.down(instance_of(job_id))
    if said is not None:
        _final_states[job_id] = JobStatus(JobState.ENDED, said, Reason.KILLED)


def _not_up(cluster: Cluster | None, launch: client.Request) -> JobStatus:
    """Return the status of a job without a running instance."""
    if launch.state is client.RequestState.FAILED:
        return JobStatus(JobState.ENDED, f"{launch.text} ({launch.hint})" if launch.hint else launch.text)
    if launch.state is client.RequestState.CANCELLED:
        return JobStatus(JobState.ENDED, "its launch was cancelled")
    if launch.state is client.RequestState.RUNNING:
        return JobStatus(JobState.QUEUED, "its instance is being started")
    if cluster is None:
        return JobStatus(JobState.ENDED, "its instance is gone", Reason.PREEMPTED)
    return JobStatus(JobState.UNKNOWN, f"its instance is {cluster.state.value}")

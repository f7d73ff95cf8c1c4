"""SkyPilot: jobs are tasks on machines of a cloud, one machine for each job, which go down by themselves."""

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
_ORPHAN = "its launch died before its job began, and nothing would ever stop its instance"
# How long it is good that an instance answered, or its cloud said so, and what SkyPilot said of a task there.
_SURE_S = 120.0
_TASK_FRESH_S = 60.0
# Leaves word for a worker, whose mailbox is $1.
_WRITE = 'printf "TERM\\n" >> "$1"'
# Prints the ends of all that SkyPilot wrote down, without colours.
_READ = """
for one in ~/sky_logs/*/*.log; do printf "== %s\\n" "${one##*/}"; tail -c 8192 "$one"; done |
sed "s/\\x1b\\[[0-9;]*m//g"
"""
# SkyPilot leaves alone what is not named in this file, and what a .gitignore names where there is none.
_IGNORE = ".skyignore"


class InstanceState(enum.Enum):
    """How an instance stands. UP: it may be reached. STOPPED: somebody did that, and its disk is still there.

    GONE: there is none, or one that never was of any use. ORPHAN: it is there, nothing is starting it any
    more, and SkyPilot has no time set at which it goes: its launch died before its job was sent.
    """

    STARTING = "starting"
    UP = "up"
    STOPPED = "stopped"
    ORPHAN = "orphan"
    GONE = "gone"


class SkyPilotBackend:
    """Machines of a cloud, by SkyPilot."""

    kind: ClassVar[str] = "skypilot"
    queues: ClassVar[bool] = True
    leaves: ClassVar[bool] = False

    def __init__(self, profile: Profile, options: Sequence[str] = ()) -> None:
        self._profile, self.address, self.options = profile, profile.address, options

    def capacity(self, ask: bool = True) -> Capacity:
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
        """GPUs that no run uses, and programs that no instance gets: sent is the copy of a git work tree, or
        nothing.
        """
        return (*idle_gpus(plan, self._profile), *_unsent(plan))

    def render(self, array: Array, setting: Setting) -> str:
        (job,) = array.jobs
        return task_file(job, setting, self._profile)

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
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
        token = array.jobs[0].token
        cluster = cluster_name(sweep_dir, token)
        request = client.launching(cluster)
        if request is None and cluster not in client.clusters([cluster], refresh=False):
            return {}
        return {token: str(_Id(cluster, sweep_dir.name, token, request or ""))}

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        try:
            clusters = _clusters(ids)
            return {one: self._status(one, clusters) for one in ids}
        except BackendUnavailableError as error:
            return dict.fromkeys(ids, JobStatus(JobState.UNKNOWN, f"SkyPilot: {error}"))

    def _status(self, job_id: str, clusters: Mapping[str, Cluster]) -> JobStatus:
        if job_id in _over:
            return _over[job_id]
        job = _Id.of(job_id)
        cluster = clusters.get(job.cluster)
        if cluster is not None and is_orphan(job_id, cluster):
            return JobStatus(JobState.UNKNOWN, _ORPHAN, place=job.cluster)
        if cluster is not None and cluster.state is ClusterState.UP:
            return JobStatus(JobState.RUNNING, "its instance is up", place=job.cluster)
        return _not_up(cluster, client.request_state(job.request))

    def cancel(self, ids: Sequence[str]) -> None:
        """Have the workers leave, by letter: SkyPilot's own way gives no time to save anything.

        An instance that is only being started, or whose launch died, is taken down. All are tried before the
        first error is raised.
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
    """Programs of a project that is no git work tree."""
    commands = (run.overrides.get(COMMAND_KEY) for run in plan.sweep.runs)
    argvs = ([str(item) for item in one] for one in commands if isinstance(one, list | tuple))
    files = (program_file(argv) for argv in argvs)
    file = next((file for file in files if file and not file.startswith(("/", "~", "$"))), None)
    try:
        if file is not None:
            read_worktree(Path.cwd().resolve())
    except NoWorkTree as error:
        yield Concern(
            f"no file of {Path.cwd()} is sent to an instance ({error}), and `command` starts {file}",
            "`git init` there, or name the program by its absolute path on the instance",
        )


@dataclass(frozen=True)
class _Id:
    """How a job is found again: its instance, its sweep and token there, the request that started it."""

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
    """The instance of a job of this backend, as ssh and SkyPilot know it."""
    return _Id.of(job_id).cluster


def standing_of(ids: Sequence[str]) -> dict[str, InstanceState]:
    """How the instances of these jobs stand. Raises :class:`BackendUnavailableError` where nobody can say."""
    clusters = _clusters(ids)
    return {one: _standing(_Id.of(one), clusters.get(instance_of(one))) for one in ids}


def _standing(job: _Id, cluster: Cluster | None) -> InstanceState:
    launch = _launch(job)
    if launch is client.RequestState.RUNNING:  # also while things are still on their way to one that is up
        return InstanceState.STARTING
    never_was = launch in (client.RequestState.FAILED, client.RequestState.CANCELLED)
    if cluster is None or (never_was and cluster.state is ClusterState.STARTING):
        return InstanceState.GONE
    if launch is not client.RequestState.SUCCEEDED and not cluster.autodown:
        return InstanceState.ORPHAN
    if cluster.state is ClusterState.STOPPED:
        return InstanceState.STOPPED
    return InstanceState.UP  # one that SkyPilot finds in disorder may have results all the same


def _launch(job: _Id) -> client.RequestState:
    """How a job's launch stands. A request is forgotten when SkyPilot's server ends, and may not be known."""
    state = client.request_state(job.request).state
    if state is client.RequestState.UNKNOWN and client.launching(job.cluster) is not None:
        return client.RequestState.RUNNING
    return state


def is_orphan(job_id: str, cluster: Cluster) -> bool:
    """Whether a job's instance is an orphan, as far as SkyPilot's records tell."""
    return not cluster.autodown and _standing(_Id.of(job_id), cluster) is InstanceState.ORPHAN


def never_sent(job_id: str) -> bool:
    """Whether an orphan never got its job. Raises :class:`BackendUnavailableError` where it does not answer.

    A person may have lifted the timer of one that works.
    """
    job = _Id.of(job_id)
    cluster = _clusters([job_id]).get(job.cluster)
    if cluster is None or cluster.state is not ClusterState.UP:
        return True  # no job is sent to one that was never up
    try:
        return job.token not in client.tasks(job.cluster)
    except RefusedError:
        return True  # it was never set up so far that it could be asked, whatever the record says


def launch_failure(job_id: str) -> str | None:
    """Why a job's launch failed; ``None`` if it did not, or died with its server."""
    launch = client.request_state(_Id.of(job_id).request)
    return launch.text if launch.state is client.RequestState.FAILED else None


def unrecorded_id(sweep: SweepDir, token: str) -> str:
    """The id that a job has whose launch was not put on record, should there be one."""
    return str(_Id(cluster_name(sweep, token), sweep.name, token, ""))


def is_named_here(job_id: str, sweep: SweepDir, token: str) -> bool:
    """Whether a job's instance has the name that one sent from this machine and folder has."""
    return instance_of(job_id) == cluster_name(sweep, token)


def up(ids: Sequence[str]) -> dict[str, Cluster]:
    """The instances of these jobs that there are, by name."""
    return _clusters(ids)


def trust(job_id: str) -> None:
    """Take note that a job's instance answers."""
    _sure[instance_of(job_id)] = time.monotonic()


def doubt(job_id: str) -> None:
    """Have the cloud itself asked next time whether a job's instance is still there: it does not answer."""
    _sure.pop(instance_of(job_id), None)


# When an instance was last known to be there by more than SkyPilot's records.
_sure: dict[str, float] = {}


def _clusters(ids: Sequence[str]) -> dict[str, Cluster]:
    """The instances of these jobs that there are, by name; the cloud is asked only where nothing else tells.

    It takes a while to answer, and longest about one that was never up: of that, SkyPilot's records tell
    whether it is being launched.
    """
    found, now = client.clusters({instance_of(one) for one in ids}, refresh=False), time.monotonic()
    unsure = {
        name
        for name, cluster in found.items()
        if now - _sure.get(name, -math.inf) > _SURE_S
        and (cluster.autodown or cluster.state is not ClusterState.STARTING)
    }
    if not unsure:
        return found
    _sure.update(dict.fromkeys(unsure, now))
    known = {name: cluster for name, cluster in found.items() if name not in unsure}
    return known | client.clusters(unsure, refresh=True)


def reach(job_id: str) -> Host:
    """A job's instance, as ssh knows it from now on; its results tree is at ``RESULTS_THERE``."""
    cluster = _Id.of(job_id).cluster
    client.ssh_config(cluster)
    return Host(cluster)


def last_words(job_id: str) -> str:
    """The end of what a job's set-up and its program printed, as its instance has it."""
    return reach(job_id).run(["sh", "-c", _READ]).output


def over(job_id: str) -> str | None:
    """What SkyPilot says of a job that ended on an instance that is up; ``None`` while it has not.

    SkyPilot is asked once in a while, and not at first: jobs tell by themselves how they get on.
    """
    job, now = _Id.of(job_id), time.monotonic()
    if now - _asked.setdefault(job_id, now) < _TASK_FRESH_S:
        return None
    _asked[job_id] = now
    task = client.tasks(job.cluster).get(job.token)
    if task is not None:
        return task.text if task.state.final else None
    launched = client.request_state(job.request)
    return None if launched.state is client.RequestState.RUNNING else launched.text or "it was never begun"


# When SkyPilot was last asked for a job's task, which takes it long.
_asked: dict[str, float] = {}
# How jobs ended whose instances were taken down: afterwards nobody else knows.
_over: dict[str, JobStatus] = {}


def take_down(job_id: str, said: str | None = None) -> None:
    """End a job's instance, and make sure that it is gone. ``said``: how its job ended, if by itself."""
    client.down(instance_of(job_id))
    if said is not None:
        _over[job_id] = JobStatus(JobState.ENDED, said, Reason.KILLED)


def _not_up(cluster: Cluster | None, launch: client.Request) -> JobStatus:
    """Of a job whose instance is being started, could not be, or is gone."""
    if launch.state is client.RequestState.FAILED:
        return JobStatus(JobState.ENDED, f"{launch.text} ({launch.hint})" if launch.hint else launch.text)
    if launch.state is client.RequestState.CANCELLED:
        return JobStatus(JobState.ENDED, "its instance was given up while it was being started")
    if launch.state is client.RequestState.RUNNING:
        return JobStatus(JobState.QUEUED, "its instance is being started")
    if cluster is None:
        return JobStatus(JobState.ENDED, "its instance is gone", Reason.PREEMPTED)
    return JobStatus(JobState.UNKNOWN, f"its instance is {cluster.state.value}")

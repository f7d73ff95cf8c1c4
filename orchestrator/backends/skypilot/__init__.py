"""The SkyPilot backend: each job is a task on its own cloud instance, which terminates by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from orchestrator.backends.instances import Instance, Instances, InstanceState, RecordedState
from orchestrator.backends.script import Script, Setting
from orchestrator.backends.skypilot import client, instances
from orchestrator.backends.skypilot.instances import JobId
from orchestrator.backends.skypilot.task import (
    SECRET_FILE,
    boot_commands,
    cluster_name,
    new_secret,
    refuse_shown_secrets,
    secret_names,
    task_file,
)
from orchestrator.backends.waste import idle_gpus
from orchestrator.config.code.worktree import NoWorkTree, list_files
from orchestrator.config.command_line.command import COMMAND_KEY, program_file
from orchestrator.config.profiles import Profile
from orchestrator.core.errors import BackendUnavailableError, OrchestrateError, RefusedError
from orchestrator.core.types import Array, Capacity, Concern, JobState, JobStatus, Plan, Reason
from orchestrator.rundir import CodeDir, SweepDir
from orchestrator.rundir.copies.parcel import add_private, discard, keep_store, pack

# The module is the interface of control, which the type checker holds it to.
INSTANCES: Instances = instances

_ORPHAN = "its launch died before its job began, and its instance has no automatic termination"
# Appends a stop request to a worker's mailbox $1.
_WRITE = 'printf "TERM\\n" >> "$1"'
# SkyPilot skips files named in this file; without it, those in .gitignore.
_IGNORE = ".skyignore"


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
            several_nodes=True,
        )

    def concerns(self, plan: Plan, ask: bool = True) -> tuple[Concern, ...]:
        """Warn of unused GPUs, and of programs that are not copied to an instance: only git work
        trees are.
        """
        return (*idle_gpus(plan, self._profile), *_unsent(plan))

    def render(self, array: Array, setting: Setting) -> str:
        """Return the task file of the job."""
        (job,) = array.jobs
        refuse_shown_secrets(self._profile)
        return task_file(job, setting, self._profile)

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        """Pack the job's files and launch its instance."""
        refuse_shown_secrets(self._profile, client.enabled_clouds)
        (job,), setting = script.array.jobs, script.setting
        folder = pack(setting.sweep_dir, job, CodeDir.of(setting.sweep_dir, setting.code.id))
        (folder / _IGNORE).touch()
        if self._profile.store is not None:
            keep_store(setting.sweep_dir, job.token, self._profile.store)
        secrets = {name: os.environ[name] for name in secret_names(self._profile)}
        if job.resources.nodes > 1:
            add_private(setting.sweep_dir, job.token, SECRET_FILE, new_secret())
        cluster = cluster_name(setting.sweep_dir, job.token)
        try:
            boot = boot_commands(self._profile)
            request = client.launch(cluster, script.text, secrets=secrets, boot=boot)
        except RefusedError:
            discard(setting.sweep_dir, job.token)
            raise
        return {job.token: str(JobId(cluster, setting.sweep_dir.name, job.token, request))}

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        """Return the id of a job launched with a lost reply."""
        token = array.jobs[0].token
        cluster = cluster_name(sweep_dir, token)
        request = client.launching(cluster)
        if request is None and cluster not in client.clusters([cluster], refresh=False):
            return {}
        return {token: str(JobId(cluster, sweep_dir.name, token, request or ""))}

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the status of each of these jobs."""
        try:
            clusters = instances.up(ids)
            return {one: self._status(one, clusters) for one in ids}
        except BackendUnavailableError as error:
            return dict.fromkeys(ids, JobStatus(JobState.UNKNOWN, f"SkyPilot: {error}"))

    def _status(self, job_id: str, clusters: Mapping[str, Instance]) -> JobStatus:
        if job_id in instances.final_states:
            return instances.final_states[job_id]
        job = JobId.of(job_id)
        cluster = clusters.get(job.cluster)
        if cluster is not None and instances.is_orphan(job_id, cluster):
            return JobStatus(JobState.UNKNOWN, _ORPHAN, place=job.cluster)
        if cluster is not None and cluster.state is RecordedState.UP:
            return JobStatus(JobState.RUNNING, "its instance is up", place=job.cluster)
        return _not_up(cluster, client.request_state(job.request))

    def cancel(self, ids: Sequence[str]) -> None:
        """Write a stop request to each worker's mailbox: SkyPilot's own cancel leaves no time to save.

        An instance that is still starting, or is an orphan, is terminated. All are tried before the first
        error is raised.
        """
        problems: list[OrchestrateError] = []
        for one, standing in instances.standing_of(ids, instances.up(ids)).items():
            try:
                if standing is InstanceState.UP:
                    job = JobId.of(one)
                    letter = SweepDir(Path(instances.RESULTS_THERE), job.sweep).mailbox(job.token)
                    instances.reach(one).run(["sh", "-c", _WRITE, "sh", str(letter)])
                elif standing in (InstanceState.STARTING, InstanceState.ORPHAN):
                    instances.take_down(one)
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
            list_files(Path.cwd().resolve(), any_owner=True)
    except NoWorkTree as error:
        yield Concern(
            f"no file of {Path.cwd()} is sent to an instance ({error}), but `command` starts {file}",
            "run `git init` there, or give the program's absolute path on the instance",
        )


def _not_up(cluster: Instance | None, launch: client.Request) -> JobStatus:
    """Return the status of a job without a running instance."""
    if launch.state is client.RequestState.FAILED:
        lost = cluster is None and not launch.refused  # a machine taken away while it was set up
        text = f"{launch.text} ({launch.hint})" if launch.hint else launch.text
        return JobStatus(JobState.ENDED, text, Reason.PREEMPTED if lost else None)
    if launch.state is client.RequestState.CANCELLED:
        return JobStatus(JobState.ENDED, "its launch was cancelled")
    if launch.state is client.RequestState.RUNNING:
        return JobStatus(JobState.QUEUED, "its instance is being started")
    if cluster is None:
        return JobStatus(JobState.ENDED, "its instance is gone", Reason.PREEMPTED)
    return JobStatus(JobState.UNKNOWN, f"its instance is {cluster.state.value}")

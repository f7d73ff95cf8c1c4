"""The local backend: jobs are processes on this machine that outlive the command."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import ClassVar

from orchestrator.backends.script import Script, Setting, python_path, worker_argv
from orchestrator.config.profiles import Profile
from orchestrator.core.errors import BackendUnavailableError
from orchestrator.core.machine import hardware
from orchestrator.core.types import Array, Capacity, Concern, JobState, JobStatus, Plan
from orchestrator.rundir import Holder, SweepDir
from orchestrator.rundir.files.atomic import storage_errors
from orchestrator.rundir.files.plain_files import open_to_write

# Boot, pid namespace, pid, start time in ticks: unique for every process.
_ID = re.compile(r"local:(?P<boot>[0-9a-f]{8}):(?P<namespace>\d+):(?P<pid>\d+):(?P<started>\d+)")


class LocalBackend:
    """Starts workers as detached processes, each in its own session."""

    kind: ClassVar[str] = "local"
    queues: ClassVar[bool] = False
    leaves: ClassVar[bool] = False
    # Child processes of all instances, to reap while this command runs.
    _children: ClassVar[list[int]] = []

    def __init__(self, profile: Profile | None = None, options: Sequence[str] = ()) -> None:
        self._name = profile.name if profile else "local"
        self._pack = profile.pack if profile else None
        self.address = profile.address if profile else "local"
        self.options = options

    def capacity(self, ask: bool = True) -> Capacity:
        """Return this machine's cores, GPUs and memory."""
        memory = hardware.memory_mb()
        return Capacity(
            self._name,
            hardware.whole_cores(),
            len(hardware.gpus()),
            mem=f"{memory}M" if memory else None,
            pack=self._pack,
        )

    def concerns(self, plan: Plan, ask: bool = True) -> tuple[Concern, ...]:
        """Return no warnings."""
        return ()

    def render(self, array: Array, setting: Setting) -> str:
        """Return the job's command line, quoted for a shell."""
        (job,) = array.jobs
        code = setting.code
        variables = [f"PYTHONPATH={python_path(setting)}", f"ORCHESTRATE_SUBMIT_DIR={code.submit_dir}"]
        return shlex.join(["env", f"--chdir={code.cwd}", *variables, *worker_argv(setting, job.token)])

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        """Start the job as a detached process."""
        token, argv = script.array.token, shlex.split(script.text)
        output = script.setting.sweep_dir.worker_output(token)
        with storage_errors(output), open_to_write(output, "ab") as stream:
            try:
                pid = _spawn_detached(argv, stream.fileno())
            except OSError as error:
                raise BackendUnavailableError(f"cannot start job {token}: {argv[0]}: {error}") from error
        self._children.append(pid)
        return {token: _id_of(Holder.of(pid))}  # not reaped yet, so the pid cannot be reused

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        """Return nothing: a process claims its token at once or never."""
        return {}

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return whether the processes with these ids still run."""
        self._reap()
        return {job_id: _status(job_id) for job_id in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """Send SIGTERM to jobs that still run."""
        self._reap()
        for job_id in ids:
            holder = _process(job_id)
            if holder is not None:
                holder.signal(signal.SIGTERM)

    def _reap(self) -> None:
        self._children[:] = [pid for pid in self._children if os.waitpid(pid, os.WNOHANG)[0] == 0]


def _spawn_detached(argv: Sequence[str], output: int) -> int:
    """Start a process in its own session, with empty standard input; return its pid."""
    return os.posix_spawnp(
        argv[0],
        list(argv),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # which Python ignores
    )


def _id_of(holder: Holder) -> str:
    return f"local:{holder.boot_id[:8]}:{_digits(holder.pid_namespace)}:{holder.pid}:{holder.started}"


def _process(job_id: str) -> Holder | None:
    """Return the process with this id if it is alive; ``None`` if its pid belongs to another one now."""
    match = _ID.fullmatch(job_id)
    if match is None:
        return None
    try:
        holder = Holder.of(int(match["pid"]))
    except ProcessLookupError:
        return None
    return holder if _id_of(holder) == job_id and holder.alive() else None


def _status(job_id: str) -> JobStatus:
    match = _ID.fullmatch(job_id)
    if match is None:
        return JobStatus(JobState.UNKNOWN, "not an id of this backend")
    here = Holder.current()
    if not here.boot_id.startswith(match["boot"]) or match["namespace"] != _digits(here.pid_namespace):
        return JobStatus(
            JobState.UNKNOWN, "started on another machine, in another container or before a reboot"
        )
    return JobStatus(JobState.RUNNING if _process(job_id) else JobState.ENDED)


def _digits(namespace: str) -> str:
    """Return ``4026531836`` for ``pid:[4026531836]``."""
    return re.sub(r"\D", "", namespace)

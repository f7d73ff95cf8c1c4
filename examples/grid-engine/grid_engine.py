"""A backend for Grid Engine: jobs are tasks of array jobs, submitted by `qsub`."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self
from xml.etree import ElementTree

from jobs.worker.scheduler_job import SchedulerJob, number_in
from orchestrator.backends.script import JobShell, Script, Setting, job_script
from orchestrator.config.backends import BackendSpec, ProfileKey
from orchestrator.config.profiles import Profile
from orchestrator.config.profiles.readers import read_text
from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.findings import Finding, ok, problem
from orchestrator.core.types import Array, Capacity, Concern, JobState, JobStatus, Plan, index_of
from orchestrator.core.units import megabytes, seconds
from orchestrator.rundir import SweepDir

BACKEND = BackendSpec(
    name="gridengine",
    make="grid_engine:GridEngineBackend",
    keys=(
        "backend",
        "description",
        "pack",
        "price_per_hour",
        "cpus_per_task",
        "mem",
        "time",
        "modules",
        "setup",
        "python",
        "environment",
        "scratch",
        "array_limit",
        "max_jobs",
        "signal",
        "requeue",
        "feed",
    ),
    own={
        "queue": ProfileKey(read_text, "the queue that jobs go into"),
        "project": ProfileKey(read_text, "the project that jobs are charged to"),
        "parallel_environment": ProfileKey(read_text, "gives a job several slots of one host"),
        "memory_resource": ProfileKey(read_text, "the resource that `mem` is requested as", "mem_free"),
    },
    options="qsub",
    parallel=lambda profile: profile.array_limit,
    doctor="grid_engine:examined",
    scheduler="grid_engine:GridEngineJob",
)

_PREFIX, _NAME = "gridengine:", "orchestrate"
_ARRAY_SIZE = 1000
_TIMEOUT_S = 60.0
# Set by the script: when this start of the job began, which tells it from an earlier one.
_STARTED = "GRID_ENGINE_STARTED"
# The task's number counts from 1, a job's index can be any.
_INDEX = "${indices[SGE_TASK_ID-1]}"


class GridEngineJob(SchedulerJob):
    """A job of Grid Engine, seen from inside."""

    kind = "gridengine"

    @classmethod
    def from_environment(cls) -> Self:
        job_id = f"{os.environ['JOB_ID']}.{os.environ['SGE_TASK_ID']}"
        cores, node = int(number_in("NSLOTS") or 1), os.environ.get("HOSTNAME")
        return cls.of_script(job_id, int(number_in(_STARTED) or 0), cores, node)


@dataclass(frozen=True)
class _Listed:
    """A line of the queue: a job with one task that was started, or with all tasks that wait."""

    job: str
    name: str
    tasks: frozenset[int]
    status: JobStatus


class GridEngineBackend:
    """One cluster, reached by its commands on this machine."""

    kind: ClassVar[str] = "gridengine"
    queues: ClassVar[bool] = True
    leaves: ClassVar[bool] = True

    def __init__(self, profile: Profile, options: Sequence[str] = ()) -> None:
        self._profile, self.address, self.options = profile, profile.address, tuple(options)

    def capacity(self, ask: bool = True) -> Capacity:
        profile = self._profile
        return Capacity(
            profile.name,
            profile.cpus_per_task,
            0,
            no_gpu=f"needs a GPU, and jobs of {profile.name} have none",
            mem=profile.mem,
            time=profile.time,
            pack=profile.pack,
            array_size=_ARRAY_SIZE,
            room=self._room() if ask and profile.max_jobs else None,
            most=profile.max_jobs,
            at_once=profile.array_limit,
            no_feed=None if profile.feed else "its profile says `feed: false`",
        )

    def _room(self) -> int:
        """How many more jobs the profile's ``max_jobs`` allows in the queue."""
        there = sum(len(one.tasks) for one in _queue() if one.name.startswith(_NAME))
        return max(0, (self._profile.max_jobs or 0) - there)

    def render(self, array: Array, setting: Setting) -> str:
        profile, own, needs = self._profile, self._profile.own, array.allocation
        options = [f"-N {_name(array, setting.sweep_dir)}", f"-t 1-{len(array.jobs)}"]
        options += ["-S /bin/bash", "-o /dev/null", "-j y", "-notify", "-r y" if profile.requeue else "-r n"]
        if profile.array_limit:
            options.append(f"-tc {profile.array_limit}")
        if needs.cpus_per_task > 1:
            options.append(f"-pe {own.get('parallel_environment')} {needs.cpus_per_task}")
        if needs.mem is not None:
            options.append(f"-l {own.get('memory_resource')}={megabytes(needs.mem) // needs.cpus_per_task}M")
        if needs.time is not None:
            limit = seconds(needs.time)
            options.append(f"-l h_rt={limit},s_rt={limit - profile.signal}")
        named = (("-q", own.get("queue")), ("-P", own.get("project")))
        options += [f"{option} {shlex.quote(value)}" for option, value in named if value]
        options += [shlex.join(self.options)] if self.options else []
        output = str(setting.sweep_dir.worker_output(array.token)).removesuffix(".log")
        lines = [
            *(f"#$ {option}" for option in options),
            f"indices=({' '.join(str(index_of(job.token)) for job in array.jobs)})",
            f'exec >>{shlex.quote(output)}."{_INDEX}".log 2>&1',
            f"export {_STARTED}=$(date +%s)",
        ]
        again = "exit 99" if profile.requeue else "code=0"  # 99 puts the job back into the queue
        # qdel sends SIGUSR2 (-notify), the soft time limit SIGUSR1.
        return job_script(array, setting, profile, lines, JobShell(_INDEX, again, stop="TERM USR2"))

    def concerns(self, plan: Plan, ask: bool = True) -> tuple[Concern, ...]:
        most = max((array.allocation.cpus_per_task for array in plan.arrays), default=1)
        if most == 1 or self._profile.own.get("parallel_environment"):
            return ()
        text = f"jobs ask for {most} cores, and {self._profile.name} names no parallel environment"
        return (Concern(text, "set `parallel_environment:` in the profile", blocks=True),)

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        answer = _run("qsub", "-terse", str(script.path))
        submitted = re.search(r"^(\d+)", answer.stdout, re.MULTILINE)
        if answer.returncode == 0 and submitted:
            return _ids(script.array, submitted[1])
        if found := self.find(script.array, script.setting.sweep_dir):
            return found
        raise RefusedError(f"qsub refused {script.array.token}: {_complaint(answer)}")

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        name = _name(array, sweep_dir)
        job = next((one.job for one in _queue() if one.name == name), None)
        return {} if job is None else _ids(array, job)

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        try:
            listed = _queue()
        except BackendUnavailableError as error:
            return dict.fromkeys(ids, JobStatus(JobState.UNKNOWN, str(error)))
        known = {f"{_PREFIX}{one.job}.{task}": one.status for one in listed for task in one.tasks}
        return {one: known.get(one, JobStatus(JobState.ENDED, "left the queue")) for one in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        answer = _run("qdel", *(one.removeprefix(_PREFIX) for one in ids))
        if answer.returncode != 0 and "does not exist" not in answer.stdout + answer.stderr:
            raise BackendUnavailableError(f"qdel: {_complaint(answer)}")


def examined(*_: object) -> Iterator[Finding]:
    """Findings of the doctor about the cluster."""
    try:
        yield ok("Grid Engine", f"qstat answers: {len(_queue())} entries are yours")
    except BackendUnavailableError as error:
        yield problem("Grid Engine", str(error), error.hint or "try again on a submit host")


def _name(array: Array, sweep_dir: SweepDir) -> str:
    """Name of an array job, by which a submission is found again after a lost reply."""
    tree = hashlib.sha256(str(sweep_dir.path.absolute()).encode()).hexdigest()[:12]
    return f"{_NAME}.{tree}.{array.token}"


def _ids(array: Array, job: str) -> dict[str, str]:
    return {one.token: f"{_PREFIX}{job}.{task}" for task, one in enumerate(array.jobs, 1)}


def _queue() -> list[_Listed]:
    """All jobs of the user that wait or run."""
    answer = _run("qstat", "-xml", "-u", getpass.getuser())
    if answer.returncode != 0:
        raise BackendUnavailableError(f"qstat: {_complaint(answer)}")
    found = ElementTree.fromstring(answer.stdout)  # noqa: S314 (the cluster's own)
    return [_listed(entry) for entry in found.iter("job_list")]


def _listed(entry: ElementTree.Element) -> _Listed:
    state, place = entry.findtext("state", ""), entry.findtext("queue_name", "").partition("@")[2]
    # Started tasks are r, t, and with a letter more suspended, restarted or being deleted; others have a w.
    job_state = JobState.QUEUED if "w" in state else JobState.RUNNING
    return _Listed(
        entry.findtext("JB_job_number", ""),
        entry.findtext("JB_name", ""),
        _tasks(entry.findtext("tasks", "1")),
        JobStatus(job_state, state, place=place),
    )


def _tasks(text: str) -> frozenset[int]:
    """``1-5:2,9`` → 1, 3, 5, 9."""
    found: set[int] = set()
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text):
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise BackendUnavailableError(f"no program {argv[0]!r} on PATH: this is no submit host") from None
    except subprocess.TimeoutExpired:
        raise BackendUnavailableError(f"{argv[0]}: no answer within {_TIMEOUT_S:.0f} s") from None


def _complaint(answer: subprocess.CompletedProcess[str]) -> str:
    return " ".join((answer.stderr or answer.stdout).split()) or f"exit code {answer.returncode}"

"""The Slurm backend: jobs are elements of job arrays, submitted with plain `sbatch`."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from orchestrator.backends.script import Script, Setting
from orchestrator.backends.slurm.commands import (
    PAUSES_S,
    Commands,
    is_refusal,
    is_unclear,
    refusal,
    run_with_retries,
    unanswered,
)
from orchestrator.backends.slurm.concerns import Partitions, concerns, is_exclusive, node_cores, time_limits
from orchestrator.backends.slurm.finished_jobs import FinishedJobs
from orchestrator.backends.slurm.limits import COUNTED, Limit, SubmitLimits
from orchestrator.backends.slurm.parse import (
    LISTED,
    QueueEntry,
    array_of,
    array_size,
    join_elements,
    queue_entries,
    settings,
    submitted_id,
)
from orchestrator.backends.slurm.script import sbatch_script
from orchestrator.config.profiles import Profile
from orchestrator.core.errors import BackendUnavailableError
from orchestrator.core.types import (
    Array,
    Capacity,
    CommandAnswer,
    Concern,
    JobState,
    JobStatus,
    Plan,
    RunCommand,
    index_of,
)
from orchestrator.rundir import SweepDir

PREFIX = "slurm:"

# Seconds for which a reply of the shared controller is reused.
_FRESH_S = 10.0
# ... and if a job is missing in it.
_RECENT_S = 2.0


class SlurmBackend:
    """One cluster, used through its commands on this machine."""

    kind: ClassVar[str] = "slurm"
    queues: ClassVar[bool] = True
    leaves: ClassVar[bool] = True

    def __init__(
        self,
        profile: Profile,
        options: Sequence[str] = (),
        runner: RunCommand | None = None,
        pauses: Sequence[float] = PAUSES_S,
    ) -> None:
        self._profile, self._run, self._pauses = profile, runner or Commands(), pauses
        self.options: Sequence[str] = tuple(options)
        self.address = profile.address
        self._queue: tuple[float, list[QueueEntry] | CommandAnswer] | None = None
        self._departed = FinishedJobs(self._ask)
        self._limits = SubmitLimits(self._ask, profile, self.options)
        self._mine = "--me"

    def capacity(self, ask: bool = True) -> Capacity:
        """Return the resources of a job, and how many more jobs the queue accepts."""
        profile, config = self._profile, self._config() if ask else {}
        size, limits = array_size(config), self._limits.limits(config) if ask else ()
        if size == 0:
            raise BackendUnavailableError(
                "job arrays switched off on this cluster (found MaxArraySize=0, expected at least 1)",
                hint="ask its support to enable job arrays, or train on one machine: --on local",
            )
        return Capacity(
            profile.name,
            profile.cpus_per_task,
            profile.gpus or 0,
            no_gpu=f"needs a GPU, and jobs of {profile.name} have none (no `gpus` in its profile)",
            mem=profile.job_mem,
            time=profile.time,
            pack=profile.pack,
            array_size=size,
            room=self._room(limits) if ask else None,
            no_feed=self._no_feed(limits),
            most=profile.max_jobs,
            chain=1 if profile.requeue else profile.chain,
            max_mem=None if "mem" in profile.forbid else profile.max_mem,
            at_once=profile.array_limit,
            can_avoid="exclude" not in profile.forbid,
            several_nodes=True,
        )

    def render(self, array: Array, setting: Setting) -> str:
        """Return the sbatch script of the array."""
        return sbatch_script(array, setting, self._profile, _comment(array, setting.sweep_dir), self.options)

    def concerns(self, plan: Plan, ask: bool = True) -> tuple[Concern, ...]:
        """Return warnings about the plan's jobs, with ``ask`` also from the cluster's partitions."""
        there = self._partitions() if ask and plan.arrays else Partitions()
        return concerns(plan, self._profile, self.options, there)

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        """Submit the array with `sbatch`."""
        array = script.array
        argv = ["sbatch", "--parsable"]
        if after:
            argv += [f"--dependency=aftercorr:{array_of(_slurm_id(after[0]))}", "--kill-on-invalid-dep=yes"]
        answer = self._run([*argv, str(script.path)])
        self._queue = None
        if answer.code == 0 and (job_id := submitted_id(answer.output)):
            return _ids(array, job_id)
        # The jobs may have been submitted despite the error, also by a site's own wrapper of sbatch.
        try:
            # Jobs that Slurm created and ended at once, as for a missing node, count as refused.
            found = self._find(array, script.setting.sweep_dir, over=not is_refusal(answer))
        except BackendUnavailableError:
            if not is_refusal(answer):
                raise
            found = {}
        if found:
            return found
        if answer.code != 0 and not is_unclear(answer):
            raise refusal(f"sbatch refused {array.token}", answer)
        raise BackendUnavailableError(
            f"sbatch gave no clear answer about {array.token}, which may have been submitted or not: "
            f"{answer.complaint if answer.code != 0 else 'it printed no job id'}",
            hint="repeat the command: it looks for the jobs, and never runs one twice",
        )

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        """Return the ids of an array submitted with a lost reply."""
        return self._find(array, sweep_dir, over=True)

    def _find(self, array: Array, sweep_dir: SweepDir, *, over: bool) -> Mapping[str, str]:
        """Find a submission's jobs by their comment; ``over``: also ended ones."""
        self._queue = None
        queue = self._ask_queue()
        comment = _comment(array, sweep_dir)
        if isinstance(queue, CommandAnswer):
            raise unanswered(f"cannot look for {array.token}: squeue", queue)
        own = (
            entry for entry in queue if entry.comment == comment and (over or not entry.status.state.final)
        )
        found = next((array_of(entry.job_id) for entry in own), None)
        return {} if found is None else _ids(array, found)

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the status of each of these jobs."""
        queue = self._ask_queue()
        asked = {*map(_slurm_id, ids)}
        if (
            not isinstance(queue, CommandAnswer)
            and asked - {one.job_id for one in queue} - self._departed.settled
        ):
            queue = self._ask_queue(_RECENT_S)  # the job may have been submitted since
        if isinstance(queue, CommandAnswer):
            said = JobStatus(JobState.UNKNOWN, f"squeue: {queue.complaint}")
            return dict.fromkeys(ids, said)
        present = {entry.job_id: entry.status for entry in queue}
        present |= self._departed.statuses(asked - present.keys())
        return {one: present[_slurm_id(one)] for one in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs as `scancel` does by default: SIGTERM, then SIGKILL after the site's KillWait."""
        if not ids:
            return
        answer = run_with_retries(self._run, ["scancel", *join_elements(map(_slurm_id, ids))], self._pauses)
        self._queue = None
        if answer.code != 0 and "invalid job id" not in answer.complaint.lower():
            raise unanswered("scancel", answer)

    def _ask_queue(self, not_older: float = _FRESH_S) -> list[QueueEntry] | CommandAnswer:
        """Return all jobs of the user in the queue, from one request; or the failed reply."""
        if self._queue is None or time.monotonic() - self._queue[0] > not_older:
            answer = self._ask(["squeue", *LISTED, self._mine])
            if answer.code != 0 and "unrecognized option" in answer.complaint and self._mine == "--me":
                self._mine = f"--user={os.getuid()}"  # before Slurm 20.02
                answer = self._ask(["squeue", *LISTED, self._mine])
            self._queue = (time.monotonic(), queue_entries(answer.output) if answer.code == 0 else answer)
        return self._queue[1]

    def _ask(self, argv: Sequence[str]) -> CommandAnswer:
        """Run an optional command: a missing program gives a failed reply instead of an error."""
        try:
            return run_with_retries(self._run, argv, self._pauses if argv[0] == "squeue" else ())
        except BackendUnavailableError as error:
            return CommandAnswer(127, "", str(error))

    def _partitions(self) -> Partitions:
        typed = [one.partition("=")[2] for one in self.options if one.startswith("--partition=")]
        chosen = typed[-1] if typed else self._profile.partition or os.environ.get("SBATCH_PARTITION", "")
        answer = self._ask(["scontrol", "--oneliner", "show", "partition"])
        limits = time_limits(answer.output, chosen) if answer.code == 0 else {}
        if not is_exclusive(self._profile, self.options):
            return Partitions(limits)
        nodes = self._ask(["sinfo", "-h", "-o", "%R|%c"])
        return Partitions(limits, node_cores(nodes.output, limits) if nodes.code == 0 else {})

    def _config(self) -> dict[str, str]:
        answer = run_with_retries(self._run, ["scontrol", "show", "config"], self._pauses)
        if answer.code != 0:
            raise unanswered("scontrol show config", answer)
        return settings(answer.output)

    def _room(self, limits: Sequence[Limit]) -> int | None:
        """Return how many more jobs these limits allow in the queue.

        A job counts until it has ended, even while it submits others as its last step.
        """
        queue = self._ask_queue(_RECENT_S)  # commands that wait for room poll repeatedly
        if isinstance(queue, CommandAnswer):
            raise unanswered("cannot see what is in the queue: squeue", queue)
        counted = ""
        if not all(limit.counts_all for limit in limits):
            answer = self._ask(["squeue", *COUNTED, self._mine])
            if answer.code != 0:
                raise unanswered("cannot see what is in the queue: squeue", answer)
            counted = answer.output
        there = sum(not entry.status.state.final for entry in queue)
        left = (one.most - (there if one.counts_all else one.count(counted)) for one in limits)
        return max(0, least_room) if (least_room := min(left, default=None)) is not None else None

    def _no_feed(self, limits: Sequence[Limit]) -> str | None:
        """Return why ending jobs cannot submit the runs that wait for room."""
        if not self._profile.feed:
            return "its profile sets `feed: false`"
        if any(limit.most == 1 for limit in limits):
            return "your limit there is one job, and an ending job still counts"
        return None


def _ids(array: Array, job_id: str) -> dict[str, str]:
    return {job.token: f"{PREFIX}{job_id}_{index_of(job.token)}" for job in array.jobs}


def _slurm_id(job_id: str) -> str:
    return job_id.removeprefix(PREFIX)


def _comment(array: Array, sweep_dir: SweepDir) -> str:
    """Return the job comment that identifies a submission after a lost reply."""
    tree = hashlib.sha256(str(sweep_dir.path.absolute()).encode()).hexdigest()[:12]
    return f"orchestrate {tree} {array.token}"

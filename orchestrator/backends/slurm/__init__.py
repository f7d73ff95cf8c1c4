"""Slurm: jobs are elements of job arrays, submitted by plain `sbatch`."""

from __future__ import annotations

import hashlib
import os
import pwd
import time
from collections.abc import Container, Mapping, Sequence
from typing import ClassVar

from orchestrator.backends.slurm.commands import Answer, Runner, is_unclear, refusal, run, unanswered
from orchestrator.backends.slurm.departed import Departed
from orchestrator.backends.slurm.parse import (
    LISTED,
    QueueEntry,
    array_of,
    least,
    queue_entries,
    settings,
    submit_limit,
    submitted,
    together,
)
from orchestrator.backends.slurm.script import sbatch_script
from orchestrator.errors import BackendUnavailableError
from orchestrator.plan import Capacity
from orchestrator.profiles import Profile
from orchestrator.render import Script, Setting
from orchestrator.rundir import SweepDir
from orchestrator.types import Array, JobState, JobStatus, index_of

PREFIX = "slurm:"

# MaxArraySize where a site says nothing else.
_DEFAULT_ARRAY_SIZE = 1001

# The controller serves everybody: an answer is good for this long.
_FRESH_S = 10.0
# ... and for this long where it lacks a job.
_RECENT_S = 2.0


class SlurmBackend:
    """One cluster, reached by its commands on this machine."""

    kind: ClassVar[str] = "slurm"
    queues: ClassVar[bool] = True
    leaves: ClassVar[bool] = True

    def __init__(self, profile: Profile, options: Sequence[str] = (), runner: Runner = run) -> None:
        self._profile, self._run = profile, runner
        self.options: Sequence[str] = tuple(options)
        self.address = profile.address
        self._queue: tuple[float, list[QueueEntry] | Answer] | None = None
        self._departed = Departed(self._ask)
        self._mine = "--me"

    def capacity(self, ask: bool = True, leaving: Container[str] = ()) -> Capacity:
        profile, config = self._profile, self._config() if ask else {}
        array_size = int(config.get("MaxArraySize", _DEFAULT_ARRAY_SIZE))
        if array_size == 0:
            raise BackendUnavailableError(
                "this site has job arrays switched off (found MaxArraySize=0, expected at least 1)",
                hint="ask its support for job arrays, or train on one machine: --on local",
            )
        return Capacity(
            profile.name,
            profile.cpus_per_task,
            profile.gpus or 0,
            no_gpu=f"needs a GPU, and jobs of {profile.name} have none (its profile says no gpus)",
            mem=profile.job_mem,
            time=profile.time,
            pack=profile.pack,
            array_size=array_size,
            room=self._room(config, leaving) if ask else None,
            most=profile.max_jobs,
            chain=1 if profile.requeue else profile.chain,
            max_mem=None if "mem" in profile.forbid else profile.max_mem,
            at_once=profile.array_limit,
            can_avoid="exclude" not in profile.forbid,
        )

    def render(self, array: Array, setting: Setting) -> str:
        return sbatch_script(array, setting, self._profile, _comment(array, setting.sweep_dir), self.options)

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        array = script.array
        argv = ["sbatch", "--parsable"]
        if after:
            argv += [f"--dependency=aftercorr:{array_of(_bare(after[0]))}", "--kill-on-invalid-dep=yes"]
        answer = self._run([*argv, str(script.path)])
        self._queue = None
        if answer.code != 0 and not is_unclear(answer):
            raise refusal(f"sbatch refused {array.token}", answer)
        if answer.code == 0 and (job_id := submitted(answer.output)):
            return _ids(array, job_id)
        if found := self.find(array, script.setting.sweep_dir):
            return found
        raise BackendUnavailableError(
            f"sbatch gave no clear answer about {array.token}, which may have been submitted or not: "
            f"{answer.complaint if answer.code != 0 else 'it printed no job id'}",
            hint="the same command again finds out, and runs nothing twice",
        )

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        self._queue = None
        queue = self._ask_queue()
        comment = _comment(array, sweep_dir)
        if isinstance(queue, Answer):
            raise unanswered(f"cannot look for {array.token}: squeue", queue)
        found = next((array_of(entry.job_id) for entry in queue if entry.comment == comment), None)
        return {} if found is None else _ids(array, found)

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        queue = self._ask_queue()
        asked = {*map(_bare, ids)}
        if not isinstance(queue, Answer) and asked - {one.job_id for one in queue} - self._departed.settled:
            queue = self._ask_queue(_RECENT_S)  # it may have been submitted since
        if isinstance(queue, Answer):
            said = JobStatus(JobState.UNKNOWN, f"squeue: {queue.complaint}")
            return dict.fromkeys(ids, said)
        present = {entry.job_id: entry.status for entry in queue}
        present |= self._departed.statuses(asked - present.keys())
        return {one: present[_bare(one)] for one in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """As `scancel` does by itself: SIGTERM to all of a job, SIGKILL after the site's KillWait."""
        if not ids:
            return
        answer = self._run(["scancel", *together(map(_bare, ids))])
        self._queue = None
        if answer.code != 0 and "invalid job id" not in answer.complaint.lower():
            raise unanswered("scancel", answer)

    def _ask_queue(self, not_older: float = _FRESH_S) -> list[QueueEntry] | Answer:
        """All of the user's jobs that the controller still knows, in one request; or why there are none."""
        if self._queue is None or time.monotonic() - self._queue[0] > not_older:
            answer = self._ask(["squeue", *LISTED, self._mine])
            if answer.code != 0 and "unrecognized option" in answer.complaint and self._mine == "--me":
                self._mine = f"--user={os.getuid()}"  # before Slurm 20.02
                answer = self._ask(["squeue", *LISTED, self._mine])
            self._queue = (time.monotonic(), queue_entries(answer.output) if answer.code == 0 else answer)
        return self._queue[1]

    def _ask(self, argv: Sequence[str]) -> Answer:
        """What a command says that nothing depends on: one that is not there says just that."""
        try:
            return self._run(argv)
        except BackendUnavailableError as error:
            return Answer(127, "", str(error))

    def _config(self) -> dict[str, str]:
        answer = self._run(["scontrol", "show", "config"])
        if answer.code != 0:
            raise unanswered("scontrol show config", answer)
        return settings(answer.output)

    def _room(self, config: Mapping[str, str], leaving: Container[str]) -> int | None:
        """How many more jobs the controller and the user's association allow in the queue."""
        limits = [least([config.get("MaxJobCount", "")]), self._association_limit(config.get("ClusterName"))]
        limit = min((one for one in limits if one is not None), default=None)
        queue = self._ask_queue()
        if isinstance(queue, Answer):
            raise unanswered("cannot see what is in the queue: squeue", queue)
        if limit is None:
            return None
        there = [entry for entry in queue if not entry.status.state.final]
        return max(0, limit - sum(PREFIX + entry.job_id not in leaving for entry in there))

    def _association_limit(self, cluster: str | None) -> int | None:
        """MaxSubmitJobs of the user's association, if there is one and accounting answers.

        Where it is not certain which of several holds, the largest: sbatch soon says if it was another.
        """
        which = [f"user={pwd.getpwuid(os.getuid()).pw_name}"]
        if cluster:
            which.append(f"cluster={cluster}")
        if account := self._account():
            which.append(f"account={account}")
        answer = self._ask(["sacctmgr", "-n", "-P", "show", "assoc", *which, "format=Account,MaxSubmitJobs"])
        return submit_limit(answer.output) if answer.code == 0 else None

    def _account(self) -> str | None:
        """Whom jobs are charged to, if that is not left to the site; in the order in which sbatch looks."""
        typed = [option.partition("=")[2] for option in self.options if option.startswith("--account=")]
        return typed[-1] if typed else self._profile.account or os.environ.get("SBATCH_ACCOUNT")


def _ids(array: Array, job_id: str) -> dict[str, str]:
    return {job.token: f"{PREFIX}{job_id}_{index_of(job.token)}" for job in array.jobs}


def _bare(job_id: str) -> str:
    return job_id.removeprefix(PREFIX)


def _comment(array: Array, sweep_dir: SweepDir) -> str:
    """By what a submission is found again whose answer was lost."""
    tree = hashlib.sha256(str(sweep_dir.path.absolute()).encode()).hexdigest()[:12]
    return f"orchestrate {tree} {array.token}"

"""Parse the output of Slurm's commands. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.types import JobState, JobStatus, Reason
from orchestrator.core.units import seconds

# `squeue -o` of :func:`queue_entries`, `sacct --format` of :func:`sacct_jobs`.
QUEUE_FORMAT = "%i|%T|%N|%k|%r"
# One line per element of an array, including recently ended ones.
LISTED = ("-h", "--array", "--states=all", "-o", QUEUE_FORMAT)
ACCOUNTING_FIELDS = "JobID,State,NodeList"

_QUEUED = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
# States and reasons of jobs that start only once they are released: by a hold, or after a failed launch.
_HELD_STATES = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_HELD = re.compile(r"JobH[eo]ld|\bheld\b")
_RUNNING = frozenset(
    {"CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"}
)
_ENDED: dict[str, Reason | None] = {
    "COMPLETED": None,
    "FAILED": None,
    "CANCELLED": Reason.STOPPED,
    "TIMEOUT": Reason.TIME_LIMIT,
    "DEADLINE": Reason.TIME_LIMIT,
    "PREEMPTED": Reason.PREEMPTED,
    "NODE_FAIL": Reason.NODE_FAILURE,
    "BOOT_FAIL": Reason.NODE_FAILURE,
    "OUT_OF_MEMORY": Reason.OUT_OF_MEMORY,
    "REVOKED": Reason.STOPPED,
}
# Slurm's default of MaxArraySize.
_ARRAY_SIZE = 1001
_SUBMITTED = re.compile(r"(?P<id>\d+)(;\S+)?")


@dataclass(frozen=True)
class QueueEntry:
    """One job in the queue. ``job_id`` is ``123`` or, for an array's element, ``123_4``."""

    job_id: str
    status: JobStatus
    comment: str


def status_of(state: str, reason: str = "", place: str = "", job_id: str = "") -> JobStatus:
    """Return a job's status from the first word of its state (``CANCELLED by 1000``); UNKNOWN for other
    words.
    """
    word = state.split(" ")[0].rstrip("+")
    said = f"{state} ({reason})" if reason and reason != "None" else state
    if word in _QUEUED:
        held = job_id and (word in _HELD_STATES or _HELD.search(reason))
        return JobStatus(JobState.QUEUED, said, release=f"scontrol release {job_id}" if held else None)
    if word in _RUNNING:
        return JobStatus(JobState.RUNNING, said, place=place)
    if word in _ENDED:
        return JobStatus(JobState.ENDED, said, _ENDED[word], place)
    return JobStatus(JobState.UNKNOWN, said)


def queue_entries(output: str) -> list[QueueEntry]:
    """Parse the output of `squeue`."""
    entries = []
    for line in output.splitlines():
        fields = line.split("|", 4)
        if len(fields) == 5:
            job_id, state, place, comment, reason = fields
            entries.append(QueueEntry(job_id, status_of(state, reason, place, job_id), comment))
    return entries


def sacct_jobs(output: str) -> dict[str, JobStatus]:
    """Parse the output of `sacct`, by job; elements listed together, which have not begun, are left out."""
    found = {}
    for line in output.splitlines():
        fields = line.split("|")
        if len(fields) == 3:
            job_id, state, place = fields
            found[job_id] = status_of(state, place="" if place == "None assigned" else place)
    return found


def submitted_id(output: str) -> str | None:
    """Return the id printed by `sbatch --parsable`, ignoring a site's own lines around it."""
    found = (_SUBMITTED.fullmatch(line.strip()) for line in reversed(output.splitlines()))
    return next((match["id"] for match in found if match), None)


def settings(output: str) -> dict[str, str]:
    """Parse `scontrol show config` into names and values."""
    pairs = (line.partition("=") for line in output.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def array_of(job_id: str) -> str:
    """Return ``123`` for ``123_4``."""
    return job_id.partition("_")[0]


def ranges(indices: Sequence[int]) -> str:
    """Format ascending numbers as Slurm does: ``0-3,5``."""
    known = set(indices)
    starts = [one for one in indices if one - 1 not in known]
    ends = [one for one in indices if one + 1 not in known]
    pairs = zip(starts, ends, strict=True)
    return ",".join(str(start) if start == end else f"{start}-{end}" for start, end in pairs)


def join_elements(job_ids: Iterable[str]) -> list[str]:
    """Join elements of an array into one argument for Slurm's commands: ``123_[0-3,5]``."""
    arrays: dict[str, set[int]] = {}
    others = []
    for job_id in job_ids:
        array, _, index = job_id.partition("_")
        if index.isdecimal():
            arrays.setdefault(array, set()).add(int(index))
        else:
            others.append(job_id)
    return [f"{array}_[{ranges(sorted(indices))}]" for array, indices in arrays.items()] + others


def submit_limits(output: str) -> dict[str, int | None]:
    """Return the largest MaxSubmitJobs by account, from `sacctmgr show assoc
    format=Account,MaxSubmitJobs,...`.
    """
    limits: dict[str, int | None] = {}
    for line in output.splitlines():
        account, bar, rest = line.partition("|")
        text = rest.partition("|")[0]
        if bar:
            limit, before = int(text) if text.isdecimal() else None, limits.get(account, 0)
            limits[account] = None if limit is None or before is None else max(limit, before)
    return limits


def default_qos(output: str) -> dict[str, str]:
    """Return the QOS of jobs without a named one, by account; "" if uncertain.

    From `sacctmgr show assoc format=Account,MaxSubmitJobs,DefaultQOS,QOS`.
    """
    found: dict[str, str] = {}
    for line in output.splitlines():
        account, _, default, allowed = (*line.split("|"), "", "", "")[:4]
        names = allowed.split(",")
        usual = default or (names[0] if len(names) == 1 else "normal" if "normal" in names else "")
        found[account] = usual if found.get(account, usual) == usual else ""
    return found


def partition_fields(output: str, partition: str) -> dict[str, dict[str, str]]:
    """Parse `scontrol --oneliner show partition` by name: the named partitions, or the default one."""
    named = partition_names(partition)
    return {
        name: fields
        for name, fields in all_partitions(output).items()
        if name in named or (not named and fields.get("Default") == "YES")
    }


def partition_names(text: str) -> list[str]:
    """Return the names in a profile's or an option's ``partition``."""
    return [name.strip() for name in text.split(",") if name.strip()]


def all_partitions(output: str) -> dict[str, dict[str, str]]:
    """Parse `scontrol --oneliner show partition`: the fields of each partition, by its name."""
    lines = (
        dict(word.partition("=")[::2] for word in line.split() if "=" in word) for line in output.splitlines()
    )
    return {fields["PartitionName"]: fields for fields in lines if fields.get("PartitionName")}


def array_size(config: Mapping[str, str]) -> int:
    """Return the most jobs of an array with indices from 0.

    MaxArraySize is one more than the largest index; ``max_array_tasks`` may allow fewer jobs.
    """
    tasks = re.search(r"\bmax_array_tasks=(\d+)", config.get("SchedulerParameters", ""))
    size = least([config.get("MaxArraySize", ""), tasks[1] if tasks else ""])
    return _ARRAY_SIZE if size is None else size


def time_limit(text: str) -> int | None:
    """Return the seconds of a limit as Slurm prints it; ``None`` where there is none."""
    try:
        return seconds(text)
    except ValueError:
        return None


def least(numbers: Iterable[str]) -> int | None:
    """Return the smallest limit that is set."""
    return min((int(text) for text in numbers if text.isdigit()), default=None)

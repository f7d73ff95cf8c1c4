"""Run Slurm's commands by argument vectors, and explain their errors to the user."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.backends.waiting import SlowLog
from orchestrator.core.errors import BackendUnavailableError, QueueFullError, RefusedError
from orchestrator.core.types import CommandAnswer, RunCommand

# Slurm's commands themselves retry for a while if the controller is down.
TIMEOUT_S = 60.0
# Seconds until a slow command is logged.
_SLOW_S = 1.2
# A command that failed within this many seconds is repeated after each of these pauses.
_AT_ONCE_S = 5.0
PAUSES_S = (1.0, 3.0)
# Permanent failures, and the exit code of a missing program.
_CERTAIN = ("unrecognized option", "invalid option", "invalid job id", "invalid user", "configuration source")
_NOT_THERE = 127


def run(argv: Sequence[str], patience: float = TIMEOUT_S) -> CommandAnswer:
    """Run one of Slurm's commands for at most ``patience`` seconds.

    Raises :class:`BackendUnavailableError` if it is not installed.
    """
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            env=_environment(argv),
            check=False,
        )
    except FileNotFoundError:
        raise BackendUnavailableError(
            f"no program {argv[0]!r} on PATH: this machine is no login node of a Slurm cluster",
            hint="run the command on the cluster's login node, or use --on local",
        ) from None
    except subprocess.TimeoutExpired:
        return CommandAnswer(None, "", f"no answer within {patience:.0f} s")
    return CommandAnswer(done.returncode, done.stdout, done.stderr)


class Commands:
    """Runs Slurm's commands, and logs slow ones: once per series of slow commands."""

    def __init__(self) -> None:
        self._slow_log = SlowLog(logging.getLogger(__name__), _SLOW_S)

    def __call__(self, argv: Sequence[str]) -> CommandAnswer:
        text = f"waiting for {argv[0]}, for up to {TIMEOUT_S:.0f} s: the cluster is slow to answer"
        with self._slow_log.watch("Slurm", text):
            return run(argv)


def run_with_retries(
    ask: RunCommand, argv: Sequence[str], pauses: Sequence[float] = PAUSES_S
) -> CommandAnswer:
    """Run a repeatable command; after a fast failure, repeat it after each pause.

    The final complaint includes the number of tries. Slow failures are not repeated: the command itself
    retried.
    """
    first = time.monotonic()
    for pause in pauses:
        began = time.monotonic()
        answer = ask(argv)
        if answer.code == 0 or _is_certain(answer) or time.monotonic() - began > _AT_ONCE_S:
            return answer
        time.sleep(pause)
    answer = ask(argv)
    if answer.code == 0 or not pauses:
        return answer
    tried = f"asked {len(pauses) + 1} times in {time.monotonic() - first:.0f} s"
    return CommandAnswer(answer.code, answer.output, f"{answer.complaint} ({tried})")


def _is_certain(answer: CommandAnswer) -> bool:
    """Return whether the failure is permanent."""
    return answer.code == _NOT_THERE or any(text in answer.complaint.lower() for text in _CERTAIN)


# Prefixes of variables that change a command's action or output format.
_COMMANDS_OWN = ("SLURM_", "SBATCH_", "SCANCEL_", "SCONTROL_", "SQUEUE_", "SACCT_", "SINFO_")
# Defaults that users export. They override a script, so they are kept only without a line in the script.
EXPORTED = {
    "account": "SBATCH_ACCOUNT",
    "partition": "SBATCH_PARTITION",
    "qos": "SBATCH_QOS",
    "reservation": "SBATCH_RESERVATION",
}


def _environment(argv: Sequence[str]) -> dict[str, str]:
    """Return this process's environment without variables that change a command or belong to an enclosing
    job.
    """
    kept = {"SLURM_CONF", "SLURM_CLUSTERS"}
    if argv[0] == "sbatch":
        said = _options_in(Path(argv[-1]))
        kept |= {name for option, name in EXPORTED.items() if option not in said}
    foreign = [*_COMMANDS_OWN]
    if "SLURM_JOB_ID" in os.environ:
        foreign += ["ORCHESTRATE_", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"]
    return {
        name: text for name, text in os.environ.items() if name in kept or not name.startswith(tuple(foreign))
    }


def _options_in(script: Path) -> set[str]:
    """Return the names of the sbatch options set in a script of ours."""
    return set(re.findall(r"^#SBATCH --([a-z-]+)", script.read_text(encoding="utf-8"), re.MULTILINE))


# Messages of the controller, and the fix for each.
_HINTS = (
    ("submitjob", "the queue accepts no more of your jobs now: set `max_jobs:` in the profile, or wait"),
    ("configuration source", "set SLURM_CONF, or run the command on a login node of the cluster"),
    ("invalid account", "set `account:` in the profile; `sacctmgr show assoc user=$USER` lists yours"),
    ("invalid partition", "set `partition:` in the profile; `sinfo -s` lists what there is"),
    ("invalid qos", "set `qos:` in the profile; `sacctmgr show assoc user=$USER format=qos` lists yours"),
    ("invalid feature", "set `constraint:` in the profile; `sinfo -o '%n %f'` lists features"),
    ("time limit", "lower `time:` in the profile; `sinfo -o '%P %l'` lists the partitions' limits"),
    ("node configuration is not available", "the profile asks for more than any node of the partition has"),
    ("memory specification", "lower `mem:` in the profile, or remove it and add `forbid: [mem]`"),
    ("unable to contact", "the controller does not answer; try again, or check with `scontrol ping`"),
    ("unrecognized option", "remove that option, or correct it in `options:` of the profile"),
    (
        "reservation is invalid",
        "correct `reservation:` in the profile; `scontrol show reservation` lists them",
    ),
    ("kill job error", "only a job's owner or an operator of Slurm can cancel it"),
    (
        "access/permission denied",
        "the partition is for certain users or submitting nodes: `scontrol show partition`",
    ),
    ("invalid generic resource", "set `gpus:` in the profile as the site spells them (`sinfo -o '%G'`)"),
)

# Limits on the number of jobs, not on the size of one.
_FULL = ("submitjob", "job submit limit", "maxjobcount", "job queue full", "temporarily unable to accept job")

# Communication errors, after which the request may or may not have been executed.
_UNCLEAR = (
    "socket",
    "timed out",
    "unable to contact",
    "communication",
    "connection",
    "message send failure",
    "message receive failure",
    "zero bytes",
    "transport endpoint",
    "unexpected message",
)


def is_unclear(answer: CommandAnswer) -> bool:
    """Return whether a command may have succeeded despite its error."""
    if answer.code is None or answer.code < 0:
        return True
    return answer.code != 0 and any(text in answer.complaint.lower() for text in _UNCLEAR)


def is_refusal(answer: CommandAnswer) -> bool:
    """Return whether the controller refused a submission, so that certainly no job exists."""
    refused = answer.code != 0 and "batch job submission failed" in answer.complaint.lower()
    return refused and not is_unclear(answer)


def refusal(what: str, answer: CommandAnswer) -> BackendUnavailableError:
    """Return the error for a failed submission: :class:`RefusedError` if certainly no job exists."""
    if is_unclear(answer):
        return unanswered(what, answer)
    complaint = answer.complaint
    kind = QueueFullError if any(text in complaint.lower() for text in _FULL) else RefusedError
    return kind(f"{what}: {complaint}", hint=_hint(complaint))


def unanswered(what: str, answer: CommandAnswer) -> BackendUnavailableError:
    """Return the error for a failed command."""
    return BackendUnavailableError(f"{what}: {answer.complaint}", hint=_hint(answer.complaint))


def _hint(complaint: str) -> str:
    return advice(complaint) or "diagnose it: orchestrate doctor"


def advice(complaint: str) -> str | None:
    """Return the fix for a complaint; ``None`` if unknown."""
    lowered = complaint.lower()
    return next((hint for text, hint in _HINTS if text in lowered), None)

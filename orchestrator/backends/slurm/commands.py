"""Slurm's commands, started by argument vectors; what they say when they refuse, in the user's terms."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from orchestrator.backends.waiting import said_when_silent
from orchestrator.core.errors import BackendUnavailableError, QueueFullError, RefusedError

# A busy controller takes its time; one that is down is retried by the commands themselves for a while.
TIMEOUT_S = 60.0
# A request that failed at once, within so many seconds, is made again after each of these pauses.
_AT_ONCE_S = 5.0
PAUSES_S = (1.0, 3.0)
# What is the same however often it is asked; and the exit code of a program that is not there.
_CERTAIN = ("unrecognized option", "invalid option", "invalid job id", "invalid user", "configuration source")
_NOT_THERE = 127

_log = logging.getLogger(__name__)

Runner = Callable[[Sequence[str]], "CommandAnswer"]


@dataclass(frozen=True)
class CommandAnswer:
    """What a command said. ``code`` is ``None`` if it did not answer in time."""

    code: int | None
    output: str
    errors: str = ""

    @property
    def complaint(self) -> str:
        """Its errors as one line, the command's own prefix left out."""
        lines = [line.split("error: ", 1)[-1].strip() for line in self.errors.splitlines()]
        return "; ".join(dict.fromkeys(line for line in lines if line)) or f"exit code {self.code}"


def run(
    argv: Sequence[str], patience: float = TIMEOUT_S, *, tell: Callable[[str], None] | None = None
) -> CommandAnswer:
    """Run one of Slurm's commands, for ``patience`` seconds. ``tell`` hears of one that takes long.

    Raises :class:`BackendUnavailableError` if it is not installed.
    """
    try:
        text = f"waiting for {argv[0]}, for up to {patience:.0f} s: the cluster does not answer at once"
        with nullcontext() if tell is None else said_when_silent(text, tell):
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
    """Runs Slurm's commands, and logs that one takes long: once for each time that it begins to."""

    def __init__(self) -> None:
        self._slow = False

    def __call__(self, argv: Sequence[str]) -> CommandAnswer:
        told: list[str] = []

        def tell(text: str) -> None:
            told.append(text)
            if not self._slow:
                _log.warning(text)

        answer = run(argv, tell=tell)
        self._slow = bool(told)
        return answer


def asked_again(ask: Runner, argv: Sequence[str], pauses: Sequence[float] = PAUSES_S) -> CommandAnswer:
    """The answer to a request that can be repeated; one that fails at once is made again after each pause.

    Its complaint then says how often it was made. One that took its time was retried by the command itself.
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
    """Whether to ask again is in vain."""
    return answer.code == _NOT_THERE or any(text in answer.complaint.lower() for text in _CERTAIN)


# Prefixes of variables that change what a command does, or the form of its answer.
_COMMANDS_OWN = ("SLURM_", "SBATCH_", "SCANCEL_", "SCONTROL_", "SQUEUE_", "SACCT_", "SINFO_")
# What people export once for all that they submit. It beats a script, so it stays where the script is silent.
_USUAL = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
}


def _environment(argv: Sequence[str]) -> dict[str, str]:
    """Ours, without what would change a command, and without what is only of the job that we may be in."""
    kept = {"SLURM_CONF", "SLURM_CLUSTERS"}
    if argv[0] == "sbatch":
        said = _options_in(Path(argv[-1]))
        kept |= {name for name, option in _USUAL.items() if option not in said}
    foreign = [*_COMMANDS_OWN]
    if "SLURM_JOB_ID" in os.environ:
        foreign += ["ORCHESTRATE_", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"]
    return {
        name: text for name, text in os.environ.items() if name in kept or not name.startswith(tuple(foreign))
    }


def _options_in(script: Path) -> set[str]:
    """The options of sbatch, by name, for which a script of ours has a line."""
    return set(re.findall(r"^#SBATCH --([a-z-]+)", script.read_text(encoding="utf-8"), re.MULTILINE))


# What the controller says, and what a user can do about it.
_HINTS = (
    ("submitjob", "the queue takes no more of yours now: set `max_jobs:` in the profile, or wait"),
    ("configuration source", "set SLURM_CONF, or run the command on a login node of the cluster"),
    ("invalid account", "set `account:` in the profile; `sacctmgr show assoc user=$USER` lists yours"),
    ("invalid partition", "set `partition:` in the profile; `sinfo -s` lists what there is"),
    ("invalid qos", "set `qos:` in the profile; `sacctmgr show assoc user=$USER format=qos` lists yours"),
    ("invalid feature", "set `constraint:` in the profile; `sinfo -o '%n %f'` lists features"),
    ("time limit", "lower `time:` in the profile; `sinfo -o '%P %l'` lists the partitions' limits"),
    ("node configuration is not available", "the profile asks for more than any node of the partition has"),
    ("memory specification", "lower `mem:` in the profile, or leave it away and add `forbid: [mem]`"),
    ("unable to contact", "the controller does not answer; try again, or ask `scontrol ping`"),
    ("unrecognized option", "leave that option away, or correct it in `options:` of the profile"),
    (
        "reservation is invalid",
        "correct `reservation:` in the profile; `scontrol show reservation` lists them",
    ),
    (
        "access/permission denied",
        "the partition is for certain users or submitting nodes: `scontrol show partition`",
    ),
    (
        "invalid generic resource",
        "set `gpus:` in the profile as the site spells them (`sinfo -o '%G'`)",
    ),
)


# A limit on how many jobs there may be, not on what one job may ask for.
_FULL = ("submitjob", "job submit limit", "maxjobcount", "job queue full", "temporarily unable to accept job")

# The way to the controller and back, after which nobody knows whether it did what it was asked.
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
    """Whether a command may have been obeyed although it did not say so."""
    if answer.code is None or answer.code < 0:
        return True
    return answer.code != 0 and any(text in answer.complaint.lower() for text in _UNCLEAR)


def is_refusal(answer: CommandAnswer) -> bool:
    """Whether it is the controller that said no to a submission: then there is certainly none."""
    refused = answer.code != 0 and "batch job submission failed" in answer.complaint.lower()
    return refused and not is_unclear(answer)


def refusal(what: str, answer: CommandAnswer) -> BackendUnavailableError:
    """The error for a submission that failed: a :class:`RefusedError` where it is certain that it did."""
    if is_unclear(answer):
        return unanswered(what, answer)
    complaint = answer.complaint
    kind = QueueFullError if any(text in complaint.lower() for text in _FULL) else RefusedError
    return kind(f"{what}: {complaint}", hint=_hint(complaint))


def unanswered(what: str, answer: CommandAnswer) -> BackendUnavailableError:
    """The error for a command that did not do what it was asked."""
    return BackendUnavailableError(f"{what}: {answer.complaint}", hint=_hint(answer.complaint))


def _hint(complaint: str) -> str:
    return advice(complaint) or "orchestrate doctor looks into it"


def advice(complaint: str) -> str | None:
    """What a user can do about a complaint; ``None`` where that is not known."""
    lowered = complaint.lower()
    return next((hint for text, hint in _HINTS if text in lowered), None)

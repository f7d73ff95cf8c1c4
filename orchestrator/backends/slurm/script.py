"""Render a job array as an sbatch script: options, Python set-up, and the worker."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.backends.script import JobShell, Setting, job_script
from orchestrator.backends.slurm.parse import ranges
from orchestrator.config.profiles import Profile
from orchestrator.config.profiles.sbatch_options import SHORT, contradiction, meant, task_option
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Array, Resources, index_of
from orchestrator.core.units import megabytes

# Options that the plan depends on: runs per job, time limit, and nodes.
_PLANNED = frozenset({"cpus-per-task", "exclude", "gpus", "mem", "mem-per-cpu", "time"})
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=~^-]+")


def sbatch_script(
    array: Array, setting: Setting, profile: Profile, comment: str, extra: Sequence[str] = ()
) -> str:
    """Return the complete script. ``extra``: options of sbatch as the user typed them; they come last and
    win.
    """
    options = _options(array, setting, profile, comment, extra)
    lines = [f"#SBATCH {option}" for option in options]
    srun = _srun(array.allocation) if array.allocation.nodes > 1 else ""
    shell = JobShell("$SLURM_ARRAY_TASK_ID", _requeue_command(profile), on_other_nodes=srun)
    return job_script(array, setting, profile, lines, shell)


def _options(
    array: Array, setting: Setting, profile: Profile, comment: str, extra: Sequence[str]
) -> Iterable[str]:
    indices = ranges([index_of(job.token) for job in array.jobs])
    limit = f"%{profile.array_limit}" if profile.array_limit else ""
    output = _file_name(setting.sweep_dir.worker_output(array.token)).removesuffix(".log")
    ours: list[tuple[str, str | None]] = [
        ("job-name", f"{setting.sweep_dir.name}-{array.token}"),
        ("comment", comment),
        ("array", f"{indices}{limit}"),
        ("output", f"{output}.%a.log"),
        ("open-mode", "append"),
        ("requeue" if profile.requeue else "no-requeue", None),
        ("signal", f"B:USR1@{profile.signal}"),
    ]
    asked = [
        *ours,
        *_profile_options(array, profile),
        *_allocation(array.allocation, profile),
        *profile.options,
    ]
    allowed = [(name, value) for name, value in asked if name not in profile.forbid]
    typed = list(_typed_options(extra, profile))
    if array.allocation.nodes > 1:
        _refuse_one_task([*profile.options, *typed], array.allocation.nodes)
    for name, value in _merge_gres([*allowed, *typed]):
        yield f"--{name}" if value is None else f"--{name}={_quoted(name, value)}"


def _merge_gres(options: Sequence[tuple[str, str | None]]) -> Iterable[tuple[str, str | None]]:
    """Merge all generic resources into one option: of several, sbatch keeps the last."""
    together = ",".join(value for name, value in options if name == "gres" and value)
    written = False
    for name, value in options:
        if name != "gres":
            yield name, value
        elif not written:
            written = True
            yield name, together or None


def _file_name(path: Path) -> str:
    """Escape a file name for sbatch, where ``%`` begins a placeholder."""
    if "\\" in str(path):
        raise OrchestrateError(
            f"{path}: found a backslash, for which Slurm writes a job's output elsewhere",
            hint="use a results folder without one: --results DIR",
        )
    return str(path).replace("%", "%%")


def _profile_options(array: Array, profile: Profile) -> Iterable[tuple[str, str]]:
    named = {
        "account": profile.account,
        "partition": profile.partition,
        "qos": profile.qos,
        "constraint": profile.constraint,
        "reservation": profile.reservation,
        "nodelist": profile.nodelist,
        "exclude": ",".join(filter(None, [profile.exclude, *array.avoid])) or None,
        "hint": profile.hint,
        "mail-type": profile.mail_type,
        "mail-user": profile.mail_user,
    }
    return ((name, value) for name, value in named.items() if value is not None)


def _allocation(allocation: Resources, profile: Profile) -> Iterable[tuple[str, str]]:
    yield "nodes", str(allocation.nodes)
    yield ("ntasks", "1") if allocation.nodes == 1 else ("ntasks-per-node", "1")
    yield "cpus-per-task", str(allocation.cpus_per_task)
    if profile.mem_per_cpu is not None and not _exceeds_memory(allocation, profile.mem_per_cpu):
        yield "mem-per-cpu", profile.mem_per_cpu
    elif allocation.mem is not None:
        yield "mem", allocation.mem
    if allocation.gpus:
        count = f"{profile.gpu_type}:{allocation.gpus}" if profile.gpu_type else str(allocation.gpus)
        of_a_node = "gpus" if allocation.nodes == 1 else "gpus-per-node"  # the former counts all nodes'
        yield ("gres", f"gpu:{count}") if profile.gpu_option == "gres" else (of_a_node, count)
    if allocation.time is not None:
        yield "time", allocation.time


def _srun(allocation: Resources) -> str:
    """Return the command that starts a program once on each other node, beside steps of the user's own."""
    others = allocation.nodes - 1
    options = [f"--nodes={others}", f"--ntasks={others}", "--ntasks-per-node=1", "--relative=1"]
    options += [f"--cpus-per-task={allocation.cpus_per_task}", "--overlap", "--kill-on-bad-exit=0"]
    return shlex.join(["setsid", "srun", *options, "--mpi=none", "--input=none"])


def _exceeds_memory(allocation: Resources, mem_per_cpu: str) -> bool:
    """Return whether the job needs more memory than the profile's per core, as after an out-of-memory
    failure.
    """
    usual = megabytes(mem_per_cpu) * allocation.cpus_per_task
    return allocation.mem is not None and megabytes(allocation.mem) > usual


def _typed_options(extra: Sequence[str], profile: Profile) -> Iterable[tuple[str, str | None]]:
    for position, option in enumerate(extra):
        name, equals, value = option.removeprefix("--").partition("=")
        if not option.startswith("--") or not name:
            if option[:1] == "-" and option[1:2] in SHORT:
                following = option[2:].lstrip("=") or next(iter(extra[position + 1 :]), "")
                _refuse_unwanted(option[:2], SHORT[option[1]], following, profile)
            raise OrchestrateError(
                f"found {option!r} after `--`, expected an option of sbatch such as --reservation=x",
                hint="write its long name and its value in one word: --partition=x for -p x",
            )
        _refuse_unwanted(f"--{name}", name, value if equals else None, profile)
        yield name, value if equals else None


def _refuse_one_task(options: Iterable[tuple[str, str | None]], nodes: int) -> None:
    """Refuse options by which a job on several nodes would have one."""
    for name, value in options:
        if task_option(name) is not None:
            raise OrchestrateError(
                f"found the option {name}={value} of sbatch, and runs of the grid need {nodes} nodes",
                hint=f"remove {name} from the profile's options, or from those after `--`",
            )


def _refuse_unwanted(typed: str, name: str, value: str | None, profile: Profile) -> None:
    """Refuse options that the user must not set here, also in sbatch's abbreviations."""
    if forbidden := meant(name, profile.forbid):
        raise OrchestrateError(
            f"{typed}: {forbidden} is in `forbid` of the profile {profile.name}: the site refuses it",
            hint=f"remove it, or remove {forbidden} from `forbid` in {profile.source}",
        )
    if problem := contradiction(name, value):
        raise OrchestrateError(f"{typed}: {problem[0]}, and cannot be passed to sbatch", hint=problem[1])
    if planned := meant(name, _PLANNED):
        key = planned.replace("-", "_")
        raise OrchestrateError(
            f"{typed}: {planned} is what the sweep's jobs are planned by, and cannot be passed to sbatch",
            hint=f"set `{key}:` in the profile ({profile.source}), or in a copy of it",
        )


def _quoted(name: str, value: str) -> str:
    """Quote a value for a script line of sbatch: double quotes where it has special characters."""
    if _PLAIN.fullmatch(value):
        return value
    if not value.isprintable():
        raise OrchestrateError(f"{name}: found {value!r}, expected text on one line, nothing invisible")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _requeue_command(profile: Profile) -> str:
    if profile.requeue:
        return 'scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && exec sleep 60'
    return "code=0  # the next job of the chain goes on"

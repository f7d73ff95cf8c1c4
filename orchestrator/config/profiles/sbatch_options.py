"""Check options of sbatch that a user sets in a profile or on the command line."""

from __future__ import annotations

from collections.abc import Iterable

# Options of sbatch reserved for the program, which finds its jobs by them.
OWNED_OPTIONS = frozenset(
    {
        "array",
        "chdir",
        "clusters",
        "comment",
        "dependency",
        "error",
        "export",
        "export-file",
        "help",
        "job-name",
        "kill-on-invalid-dep",
        "no-requeue",
        "open-mode",
        "output",
        "parsable",
        "requeue",
        "signal",
        "test-only",
        "usage",
        "version",
        "wait",
        "wrap",
    }
)
# A job has a task on each of its nodes: the worker, which starts the runs, and agents.
_ONE_TASK = frozenset(
    {
        "nodes",
        "ntasks",
        "ntasks-per-core",
        "ntasks-per-gpu",
        "ntasks-per-node",
        "ntasks-per-socket",
        "tasks-per-node",
    }
)
# Options that duplicate a profile key used to plan jobs.
_STANDS_FOR = {
    "cpus-per-gpu": "cpus_per_task",
    "gpus-per-node": "gpus",
    "gpus-per-socket": "gpus",
    "gpus-per-task": "gpus",
    "mem-per-gpu": "mem",
}
# Options that the program derives from a profile key with another name or meaning.
_OWN_KEYS = {
    "array": "array_limit",
    "dependency": "chain",
    "no-requeue": "requeue",
    "requeue": "requeue",
    "signal": "signal",
}
SHORT = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "M": "clusters",
    "N": "nodes",
    "W": "wait",
    "a": "array",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}


def meant(name: str, options: Iterable[str]) -> str | None:
    """Return the option that sbatch may take this name for, as it completes names; None if there is none."""
    known = sorted(options)
    return name if name in known else next((option for option in known if option.startswith(name)), None)


def task_option(name: str) -> str | None:
    """Return the option on tasks or nodes that a name, shortened or not, stands for."""
    return meant(name, _ONE_TASK)


def contradiction(name: str, value: str | None) -> tuple[str, str] | None:
    """Return why an option contradicts the script, and the remedy; None if it does not.

    ``name``: its long name without dashes, shortened or not.
    """
    if (shape := task_option(name)) is not None:
        if value in ("1", "1-1"):
            return None  # as in the script
        return (
            f"{shape} is what runs decide: a job has the nodes that a run needs, and a task on each",
            f"remove {shape}; for runs on several nodes set resources: {{nodes: 2}} in the grid",
        )
    if (owned := meant(name, OWNED_OPTIONS)) is not None:
        hint = f"remove {owned}; `orchestrate sweep --dry-run` shows what is set"
        if owned in _OWN_KEYS:
            hint = f"remove {owned}; set `{_OWN_KEYS[owned]}:` in the profile instead"
        return f"{owned} is set by the program itself", hint
    if (other := meant(name, _STANDS_FOR)) is not None:
        return f"{other} is what jobs are planned by", f"set `{_STANDS_FOR[other]}:` in the profile"
    if name == "gres" and any(part.strip().startswith("gpu") for part in (value or "").split(",")):
        hint = "set `gpus:`, and `gpu_option: gres`, in the profile"
        return "gres asks for GPUs, which jobs are planned by", hint
    return None


def option_name(key: str) -> str:
    """Return sbatch's spelling of a key: ``cpus_per_task`` is ``cpus-per-task``."""
    return key.replace("_", "-")

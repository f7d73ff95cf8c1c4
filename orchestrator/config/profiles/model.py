"""The type of a parsed profile, and its keys with their descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from orchestrator.core.units import megabytes

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
# Keys that are options of sbatch.
KEY_OPTIONS = (
    "account",
    "partition",
    "qos",
    "constraint",
    "reservation",
    "nodelist",
    "exclude",
    "cpus_per_task",
    "gpus",
    "mem",
    "mem_per_cpu",
    "time",
    "hint",
    "mail_type",
    "mail_user",
)


def _key(default: Any, told: str) -> Any:
    """Declare a key of a profile. ``told``: its Markdown for the reference and docs/profiles.md."""
    made = {"default_factory": default} if default is dict else {"default": default}
    return field(**made, metadata={"told": told})


@dataclass(frozen=True)
class Profile:
    """A named cluster: the resources of one *job* in Slurm's names and syntax, and the start of Python there.

    ``source``: the file, for messages. None stands for no request. Texts hold no control characters and are
    not quoted for a shell. Times and memory are in Slurm's syntax (:mod:`orchestrator.core.units`).
    ``gpu_type``: the type from the key ``gpus``, which then holds the number. An entry of ``options`` with
    the value None is a bare flag.
    """

    name: str
    source: str
    backend: str = _key("slurm", "`slurm`, `skypilot`, `local`, or one of a plug-in")
    description: str | None = _key(None, "one line for `orchestrate profiles`")
    account: str | None = _key(None, "the account that jobs are charged to")
    partition: str | None = _key(None, "one, or several with commas")
    qos: str | None = _key(None, "quality of service")
    constraint: str | None = _key(None, "features that nodes must have")
    reservation: str | None = _key(None, "a reservation of the site's that jobs go into")
    nodelist: str | None = _key(None, "nodes to use, as in `cpu[1-4]`")
    exclude: str | None = _key(None, "nodes to leave out")
    cpus_per_task: int | None = _key(None, "cores of one job")
    gpus: int | None = _key(None, "GPUs of one job: a number, or a type and a number as in `l4:2`")
    gpu_type: str | None = None
    gpu_option: str = _key("gpus", "`gres` for sites that want `--gres=gpu:2` and not `--gpus=2`")
    mem: str | None = _key(None, "memory of one job")
    mem_per_cpu: str | None = _key(None, "memory per core, in place of `mem`")
    time: str | None = _key(None, "time limit of one job")
    hint: str | None = _key(None, "`nomultithread`, `multithread`, `compute_bound` or `memory_bound`")
    mail_type: str | None = _key(
        None,
        "events for which Slurm sends mail, as in `END,FAIL`; for an array, one mail for all of it",
    )
    mail_user: str | None = _key(None, "the recipient of the mail")
    options: tuple[tuple[str, str | None], ...] = _key(
        (),
        'further options of sbatch by their long names: `{exclusive: true, gres: "lscratch:10"}`; '
        "`true` is for options without a value",
    )
    forbid: frozenset[str] = _key(
        frozenset(),
        "options that the site refuses, as in `[mem]`: none is put into a script. `cpus_per_task`, "
        "`gpus`, `mem`, `mem_per_cpu` and `time` may still be given: they then state what a job has "
        "anyway",
    )
    require: tuple[str, ...] = _key(
        (),
        "keys that a user must fill in, as in `[account, setup or modules]`: while one is empty nothing is "
        "submitted",
    )
    modules: tuple[str, ...] | None = _key(
        None,
        "what `module load` loads, after `module purge`. An empty list just purges; without this key "
        "modules stay as they are",
    )
    setup: tuple[str, ...] = _key(
        (),
        "lines of shell before Python starts, such as an activation: a list of lines, or a block of text",
    )
    python: tuple[str, ...] | None = _key(
        None,
        "the command that starts Python, as in `uv run --no-sync python` or `apptainer exec --nv "
        "/path/image.sif python`: words, or a list of them; without it, the Python that submitted, or "
        "`python3` of the machine that `ssh` names",
    )
    environment: Mapping[str, str] = _key(dict, "variables for the job: `{WANDB_MODE: offline}`")
    pack: int | None = _key(
        None,
        "runs at once in one job; without it as many as fit, with `1` one run a job",
    )
    array_limit: int | None = _key(None, "jobs of one array that may run at once")
    max_jobs: int | None = _key(None, "jobs of a sweep that may be in the queue at once")
    signal: int = _key(120, "seconds before the time limit at which a job saves and leaves")
    requeue: bool = _key(True, "whether a job may go back into the queue; `false` for sites that forbid it")
    chain: int = _key(1, "with `requeue: false`, jobs that follow one another to finish what one cannot")
    max_mem: str | None = _key(
        None,
        "a job that ran out of memory is tried once more with twice as much, up to this",
    )
    scratch: str | None = _key(
        None,
        "a folder on the node for temporary files; `$VARIABLES` of the job are filled in",
    )
    price_per_hour: float | None = _key(None, "US dollars for one job and hour")
    feed: bool = _key(True, "whether a job may call sbatch from its node")
    ssh: str | None = _key(
        None,
        "the login node by its ssh name (an alias of `~/.ssh/config`, or `user@host`): the sweep is "
        "submitted there, from here",
    )
    folder: str = _key(
        "~/orchestrate",
        "where results and code are kept on it; may hold `~/` and `$VARIABLES` of that machine",
    )
    infra: str | None = _key(
        None,
        "cloud: where SkyPilot looks for machines, as in `aws`, `aws/us-east-1`, `slurm/CLUSTER`; "
        "without it the cheapest that is enabled",
    )
    accelerators: str | None = _key(None, "cloud: GPUs of an instance in SkyPilot's names, as in `L4:1`")
    instance_type: str | None = _key(None, "cloud: exactly this one, as in `g6.2xlarge`")
    disk: int | None = _key(None, "cloud: gigabytes of an instance's disk")
    image: str | None = _key(None, "cloud: what an instance starts from, as SkyPilot names it")
    spot: bool = _key(False, "cloud: cheaper instances, which may be taken away at any time and are replaced")
    instances: int = _key(1, "cloud: instances at once, which share a sweep's runs")
    store: str | None = _key(
        None,
        "cloud: where an instance puts results as they come: `s3://BUCKET/FOLDER`, `HOST:FOLDER`, or "
        "a folder that is mounted there",
    )
    hold: str = _key(
        "30",
        "cloud: without a store, how long an instance that is done waits for its results to be fetched",
    )
    idle_minutes: int = _key(
        5,
        "cloud: how long an instance without anything to do stays before it is taken down",
    )
    file_mounts: Mapping[str, str] = _key(
        dict,
        "cloud: what else an instance has, as in `{~/data: ~/my/data}`",
    )
    secrets: tuple[str, ...] = _key(
        ("WANDB_API_KEY",),
        "cloud: variables of the submitting shell, passed to jobs and stored in no file; "
        "`[WANDB_API_KEY]` by default",
    )

    # Values of keys that a plug-in's backend alone has.
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def job_mem(self) -> str | None:
        """The memory of one job, if the profile sets it."""
        if self.mem is None and self.mem_per_cpu is not None and self.cpus_per_task is not None:
            return f"{megabytes(self.mem_per_cpu) * self.cpus_per_task}M"
        return self.mem

    @property
    def address(self) -> str:
        """The name or path that finds the profile again from any folder."""
        return str(Path(self.source).absolute()) if self.source.endswith((".yaml", ".yml")) else self.name


def option_name(key: str) -> str:
    """Return sbatch's spelling of a key: ``cpus_per_task`` is ``cpus-per-task``."""
    return key.replace("_", "-")


def told_keys() -> list[tuple[str, Any, str]]:
    """Return every key a user may write, with its default and description."""
    written = [one for one in fields(Profile) if "told" in one.metadata]
    return [
        (one.name, None if one.default is MISSING else one.default, one.metadata["told"]) for one in written
    ]

"""The type of a parsed profile, and its keys with their descriptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.config.backends import BUILT_IN, DEFAULT_BACKEND, description_of
from orchestrator.config.grid.resources import read_memory, read_time
from orchestrator.config.profiles.readers import (
    Reader,
    count_from,
    one_of,
    read_accelerators,
    read_backend,
    read_environment,
    read_file_mounts,
    read_forbidden,
    read_gpus,
    read_names,
    read_options,
    read_price,
    read_python,
    read_required,
    read_setup,
    read_ssh,
    read_store,
    read_text,
    read_texts,
)
from orchestrator.config.profiles.sbatch_options import option_name
from orchestrator.config.yaml_files.nodes import read_flag
from orchestrator.core.units import megabytes


def _key(default: Any, told: str, read: Reader, *, option: bool = False) -> Any:
    """Declare a key of a profile. ``told``: its Markdown for the reference, "" for a key that its
    backend's ``only`` describes.

    ``option``: whether it is an option of sbatch.
    """
    made = {"default_factory": default} if default is dict else {"default": default}
    return field(**made, metadata={"told": told, "read": read, "option": option})


def _key_names() -> Collection[str]:
    return READERS


def _option_names() -> Collection[str]:
    return [option_name(key) for key in KEY_OPTIONS]


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
    backend: str = _key(
        DEFAULT_BACKEND, f"{', '.join(f'`{name}`' for name in BUILT_IN)}, or one of a plug-in", read_backend
    )
    description: str | None = _key(None, "one line for `orchestrate profiles`", read_text)
    account: str | None = _key(None, "the account that jobs are charged to", read_text, option=True)
    partition: str | None = _key(None, "one, or several with commas", read_text, option=True)
    qos: str | None = _key(None, "quality of service", read_text, option=True)
    constraint: str | None = _key(None, "features that nodes must have", read_text, option=True)
    reservation: str | None = _key(
        None, "a reservation of the site's that jobs go into", read_text, option=True
    )
    nodelist: str | None = _key(None, "nodes to use, as in `cpu[1-4]`", read_text, option=True)
    exclude: str | None = _key(None, "nodes to leave out", read_text, option=True)
    cpus_per_task: int | None = _key(None, "cores of one job", count_from(1), option=True)
    gpus: int | None = _key(
        None, "GPUs of one job: a number, or a type and a number as in `l4:2`", read_gpus, option=True
    )
    gpu_type: str | None = None
    gpu_option: str = _key(
        "gpus", "`gres` for sites that want `--gres=gpu:2` and not `--gpus=2`", one_of("gpus", "gres")
    )
    mem: str | None = _key(
        None,
        "memory of one job: megabytes, or a whole number and `K`, `M`, `G` or `T`",
        read_memory,
        option=True,
    )
    mem_per_cpu: str | None = _key(None, "memory per core, in place of `mem`", read_memory, option=True)
    time: str | None = _key(
        None,
        "time limit of one job: minutes, `[hours:]minutes:seconds` or `days-hours[:minutes[:seconds]]`",
        read_time,
        option=True,
    )
    hint: str | None = _key(
        None,
        "`nomultithread`, `multithread`, `compute_bound` or `memory_bound`",
        one_of("compute_bound", "memory_bound", "multithread", "nomultithread"),
        option=True,
    )
    mail_type: str | None = _key(
        None,
        "events for which mail is sent, as in `END,FAIL`; for an array, one mail for all of it",
        read_text,
        option=True,
    )
    mail_user: str | None = _key(None, "the recipient of the mail", read_text, option=True)
    options: tuple[tuple[str, str | None], ...] = _key(
        (),
        'further options of sbatch by their long names: `{exclusive: true, gres: "lscratch:10"}`; '
        "`true` is for options without a value",
        partial(read_options, _option_names),
    )
    forbid: frozenset[str] = _key(
        frozenset(),
        "options that the site refuses, as in `[mem]`: none is put into a script. `cpus_per_task`, "
        "`gpus`, `mem`, `mem_per_cpu` and `time` may still be given: they then state what a job has "
        "anyway",
        partial(read_forbidden, _option_names),
    )
    require: tuple[str, ...] = _key(
        (),
        "keys that a user must fill in, as in `[account, setup or modules]`: while one is empty nothing is "
        "submitted",
        partial(read_required, _key_names),
    )
    modules: tuple[str, ...] | None = _key(
        None,
        "what `module load` loads, after `module purge`. An empty list just purges; without this key "
        "modules stay as they are",
        read_texts,
    )
    setup: tuple[str, ...] = _key(
        (),
        "lines of shell before Python starts, such as an activation: a list of lines, or a block of text",
        read_setup,
    )
    python: tuple[str, ...] | None = _key(
        None,
        "the command that starts Python, as in `uv run --no-sync python` or `apptainer exec --nv "
        "/path/image.sif python`: words, or a list of them; without it, the Python that submitted, or "
        "`python3` of the machine that `ssh` names",
        read_python,
    )
    environment: Mapping[str, str] = _key(
        dict, "variables for the job: `{WANDB_MODE: offline}`", read_environment
    )
    pack: int | None = _key(
        None, "runs at once in one job; without it as many as fit, with `1` one run a job", count_from(1)
    )
    array_limit: int | None = _key(None, "jobs of one array that may run at once", count_from(1))
    max_jobs: int | None = _key(None, "jobs of a sweep that may be in the queue at once", count_from(1))
    signal: int = _key(120, "seconds before the time limit at which a job saves and leaves", count_from(1))
    requeue: bool = _key(
        True, "whether a job may go back into the queue; `false` for sites that forbid it", read_flag
    )
    chain: int = _key(
        1, "with `requeue: false`, jobs that follow one another to finish what one cannot", count_from(1)
    )
    max_mem: str | None = _key(
        None, "a job that ran out of memory is tried once more with twice as much, up to this", read_memory
    )
    scratch: str | None = _key(
        None, "a folder on the node for temporary files; `$VARIABLES` of the job are filled in", read_text
    )
    price_per_hour: float | None = _key(
        None,
        "US dollars for one hour of a job, on several `nodes` of each",
        read_price,
    )
    feed: bool = _key(True, "whether a job may call sbatch from its node", read_flag)
    ssh: str | None = _key(
        None,
        "the login node by its ssh name (an alias of `~/.ssh/config`, or `user@host`): the sweep is "
        "submitted there, from here",
        read_ssh,
    )
    folder: str = _key(
        "~/orchestrate",
        "where results and code are kept on it; may hold `~/` and `$VARIABLES` of that machine",
        read_text,
    )
    # Keys of one backend, which describes them.
    infra: str | None = _key(None, "", read_text)
    accelerators: str | None = _key(None, "", read_accelerators)
    instance_type: str | None = _key(None, "", read_text)
    disk: int | None = _key(None, "", count_from(1))
    image: str | None = _key(None, "", read_text)
    spot: bool = _key(False, "", read_flag)
    instances: int = _key(1, "", count_from(1))
    store: str | None = _key(None, "", read_store)
    hold: str = _key("30", "", read_time)
    idle_minutes: int = _key(5, "", count_from(1))
    file_mounts: Mapping[str, str] = _key(dict, "", read_file_mounts)
    secrets: tuple[str, ...] = _key(("WANDB_API_KEY",), "", read_names)

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


_KEYS = {key.name: key for key in fields(Profile) if "read" in key.metadata}
READERS: Mapping[str, Reader] = {name: key.metadata["read"] for name, key in _KEYS.items()}
KEY_OPTIONS = tuple(name for name, key in _KEYS.items() if key.metadata["option"])


def told_keys() -> list[tuple[str, Any, str]]:
    """Return every key a user may write, with its default and description."""
    return [
        (
            name,
            None if key.default is MISSING else key.default,
            key.metadata["told"] or description_of(name),
        )
        for name, key in _KEYS.items()
    ]

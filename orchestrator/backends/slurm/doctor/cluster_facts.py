"""Facts about a Slurm cluster, each queried once."""

from __future__ import annotations

import os
import pwd
import re
import time
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from orchestrator.backends.slurm.commands import run
from orchestrator.backends.slurm.parse import all_partitions, partition_names, settings
from orchestrator.config.profiles import Profile
from orchestrator.core import findings
from orchestrator.core.errors import BackendUnavailableError
from orchestrator.core.types import CommandAnswer, RunCommand

_NONE = ("", "(null)", "N/A", "NONE")
_GRES = re.compile(r"(?P<name>[^:(]+)(:(?P<type>[^:(]*[^:(\d][^:(]*))?(:(?P<count>\d+))?")


@dataclass(frozen=True)
class Partition:
    """A partition. ``fields`` are those of `scontrol show partition`, by its names."""

    name: str
    fields: dict[str, str]

    def __getitem__(self, field: str) -> str:
        return self.fields.get(field, "")

    @property
    def is_default(self) -> bool:
        """Whether jobs without a partition go there."""
        return self["Default"] == "YES"

    def admits(self, kind: str, name: str) -> bool:
        """Return whether ``name`` may use it, by its lists for that ``kind``: Accounts, Qos."""
        allowed, denied = self[f"Allow{kind}"], self[f"Deny{kind}"]
        return (allowed in ("", "ALL") or name in allowed.split(",")) and name not in denied.split(",")


@dataclass(frozen=True)
class NodeGroup:
    """Equal nodes of one partition. ``mem`` in megabytes; ``gpus`` by type, "" for GPUs without a type."""

    partition: str
    state: str
    count: int
    cpus: int
    mem: int
    gpus: dict[str, int]
    features: frozenset[str]

    @property
    def usable(self) -> bool:
        """Whether jobs can run on the nodes, now or later."""
        return not self.state.startswith(("down", "drain", "drng", "fail", "err", "unk", "inval"))


@dataclass(frozen=True)
class Association:
    """The user's limits in an account, everywhere or in one partition, as Slurm prints them."""

    default_account: str
    account: str
    partition: str
    qos: tuple[str, ...]
    default_qos: str
    max_jobs: str
    max_submit: str
    max_wall: str


@dataclass(frozen=True)
class Qos:
    """A quality of service and its limits per user, as Slurm prints them."""

    name: str
    max_jobs: str
    max_submit: str
    max_wall: str


class Site:
    """A cluster as this machine's commands show it, and the profile to use it with, if any.

    A query without an answer gives an empty value here; the first checks report why.
    """

    def __init__(self, profile: Profile | None, results: Path, ask: RunCommand | None = None) -> None:
        self.profile, self.results = profile, results
        self._ask = ask or partial(run, patience=findings.PATIENCE_S)
        self.is_remote = profile is not None and profile.ssh is not None

    @property
    def asking(self) -> Profile:
        """The profile, for checks that need one."""
        assert self.profile is not None
        return self.profile

    def ask(self, *argv: str) -> CommandAnswer:
        """Return the answer of a Slurm command; one that cannot be started gives a complaint."""
        try:
            return self._ask(argv)
        except BackendUnavailableError:
            return CommandAnswer(127, "", f"{argv[0]} is not on PATH")
        except OSError as error:
            return CommandAnswer(126, "", f"{argv[0]} cannot be started: {error.strerror}")

    def timed(self, *argv: str) -> tuple[CommandAnswer, float]:
        """Return the answer and the seconds it took."""
        began = time.monotonic()
        return self.ask(*argv), time.monotonic() - began

    @cached_property
    def user(self) -> str:
        """The user's name for Slurm."""
        if self.is_remote:
            return self.ask("id", "-un").output.strip()
        try:
            return pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            return str(os.getuid())

    @cached_property
    def config(self) -> dict[str, str]:
        """Slurm's configuration, by key."""
        return settings(self._output("scontrol", "show", "config"))

    @cached_property
    def partitions(self) -> list[Partition]:
        """All partitions."""
        said = all_partitions(self._output("scontrol", "--oneliner", "show", "partition"))
        return [Partition(name, fields) for name, fields in said.items()]

    @cached_property
    def nodes(self) -> list[NodeGroup]:
        """All nodes, grouped."""
        return node_groups(self._output("sinfo", "-h", "-e", "-o", "%P|%T|%D|%c|%m|%G|%f"))

    @cached_property
    def associations(self) -> list[Association] | CommandAnswer:
        """The user's associations, or the failed answer."""
        fields = "cluster,defaultaccount,account,partition,qos,defaultqos,maxjobs,maxsubmitjobs,maxwall"
        answer = self.ask("sacctmgr", "-n", "-P", "show", "user", self.user, "withassoc", f"format={fields}")
        return associations(answer.output, self.config.get("ClusterName", "")) if answer.code == 0 else answer

    @cached_property
    def qos(self) -> list[Qos]:
        """All qualities of service."""
        fields = "name,maxjobsperuser,maxsubmitjobsperuser,maxwall"
        return qualities(self._output("sacctmgr", "-n", "-P", "show", "qos", f"format={fields}"))

    @property
    def wanted(self) -> list[Partition]:
        """The partitions for the profile's jobs: those it names that exist, or the default one."""
        named = partition_names((self.profile and self.profile.partition) or "")
        return [one for one in self.partitions if (one.name in named if named else one.is_default)]

    @property
    def applying(self) -> list[Association]:
        """The user's associations that apply to the profile's jobs."""
        known = [] if isinstance(self.associations, CommandAnswer) else self.associations
        asked = self.profile.account if self.profile else None
        account = asked or next((one.default_account for one in known), "")
        places = {"", *(one.name for one in self.wanted)}
        # Accounting keeps names in small letters, and so does sbatch.
        return [one for one in known if one.account == account.lower() and one.partition in places]

    @property
    def applying_qos(self) -> list[Qos]:
        """The qualities of service that apply to the profile's jobs."""
        names = {self.profile.qos.lower()} if self.profile and self.profile.qos else self._default_qos()
        return [one for one in self.qos if one.name in names]

    def _default_qos(self) -> set[str]:
        return {one.default_qos or ("normal" if "normal" in one.qos else "") for one in self.applying}

    def _output(self, *argv: str) -> str:
        answer = self.ask(*argv)
        return answer.output if answer.code == 0 else ""


def node_groups(output: str) -> list[NodeGroup]:
    """Parse `sinfo` in the format that :class:`Site` asks for."""
    found = []
    for line in output.splitlines():
        fields = line.split("|")
        if len(fields) == 7:
            partition, state, count, cpus, mem, gres, features = fields
            group = NodeGroup(
                partition.rstrip("*"),
                state,
                number(count),
                number(cpus),
                number(mem),
                gpus(gres),
                frozenset(word for word in features.split(",") if word not in _NONE),
            )
            found.append(group)
    return found


def gpus(gres: str) -> dict[str, int]:
    """Return GPUs by type in a node's resources: ``gpu:l4:2(S:0),lscratch:10`` → ``{"l4": 2}``."""
    found: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        match = _GRES.match(item)
        if match and match["name"] == "gpu":
            kind = match["type"] or ""
            found[kind] = found.get(kind, 0) + number(match["count"] or "1")
    return found


def associations(output: str, cluster: str) -> list[Association]:
    """Parse `sacctmgr show user … withassoc` in the format that :class:`Site` asks for."""
    rows = [line.split("|") for line in output.splitlines()]
    return [
        Association(default, account, partition, tuple(qos.split(",")), *rest)
        for name, default, account, partition, qos, *rest in (row for row in rows if len(row) == 9)
        if not cluster or name == cluster
    ]


def qualities(output: str) -> list[Qos]:
    """Parse `sacctmgr show qos` in the format that :class:`Site` asks for."""
    rows = [line.split("|") for line in output.splitlines()]
    return [Qos(*row) for row in rows if len(row) == 4]


def number(text: str) -> int:
    """Return the number at the beginning, as in ``64`` and ``64+``; 0 where there is none."""
    match = re.match(r"[0-9]{1,18}", text)
    return int(match[0]) if match else 0

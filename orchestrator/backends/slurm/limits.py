"""Find a user's job limits: of the controller, the account, the partition and the QOS."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.backends.slurm.parse import default_qos, least, partition_fields, status_of, submit_limits
from orchestrator.config.profiles import Profile
from orchestrator.core.types import RunCommand

# Seconds for which limits are reused: they rarely change, and waiting commands poll repeatedly.
_FRESH_S = 60.0
# For each job: its state, its QOS, and its possible partitions.
COUNTED = ("-h", "--array", "--states=all", "-o", "%T|%q|%P")


@dataclass(frozen=True)
class Limit:
    """The most jobs of the user in the queue; only those of a QOS or partition where one is named."""

    most: int
    qos: str = ""
    partition: str = ""

    @property
    def counts_all(self) -> bool:
        """Whether all jobs of the user count."""
        return not self.qos and not self.partition

    def count(self, output: str) -> int:
        """Count the jobs for this limit in output of `squeue` in the format :data:`COUNTED`."""
        rows = (line.split("|") for line in output.splitlines())
        return sum(
            not status_of(state).state.final
            and self.qos in ("", qos.lower())
            and (not self.partition or self.partition in partitions.split(","))
            for state, qos, partitions in (row for row in rows if len(row) == 3)
        )


class SubmitLimits:
    """The limits for jobs of a profile, as far as the controller and accounting report them."""

    def __init__(self, ask: RunCommand, profile: Profile, options: Sequence[str]) -> None:
        self._ask, self._profile, self._options = ask, profile, options
        self._kept: tuple[float, tuple[Limit, ...]] | None = None

    def limits(self, config: Mapping[str, str]) -> tuple[Limit, ...]:
        """Return all limits that apply. ``config``: output of `scontrol show config`."""
        if self._kept is None or time.monotonic() - self._kept[0] > _FRESH_S:
            self._kept = (time.monotonic(), tuple(self._found(config)))
        return self._kept[1]

    def _found(self, config: Mapping[str, str]) -> Iterator[Limit]:
        if (most := least([config.get("MaxJobCount", "")])) is not None:
            yield Limit(most)
        of_account, qos = self._of_account(config.get("ClusterName"))
        partition, of_partition = self._partition()
        known = self._of_qos([name for name in (qos, of_partition) if name])
        users = [known[name][0] for name in (qos, of_partition) if name in known]
        # A limit per user of a QOS replaces the account's.
        if of_account is not None and all(one is None for one in users):
            yield Limit(of_account)
        for name, place in ((qos, {"qos": qos}), (of_partition, {"partition": partition})):
            yield from (Limit(one, **place) for one in known.get(name, ()) if one is not None)

    def _of_account(self, cluster: str | None) -> tuple[int | None, str]:
        """Return MaxSubmitJobs of the user's association, and the QOS of jobs, where set.

        If it is uncertain which of several limits applies, the largest: sbatch reports a lower one.
        """
        user = f"user={pwd.getpwuid(os.getuid()).pw_name}"
        which = [user, *([f"cluster={cluster}"] if cluster else [])]
        if account := self._chosen("account", self._profile.account):
            which.append(f"account={account}")
        chosen = (self._chosen("qos", self._profile.qos) or "").lower()
        fields = "format=Account,MaxSubmitJobs,DefaultQOS,QOS"
        answer = self._ask(["sacctmgr", "-n", "-P", "show", "assoc", *which, fields])
        if answer.code != 0:
            return None, chosen
        limits, usual = submit_limits(answer.output), default_qos(answer.output)
        if len({(limits[name], usual[name]) for name in limits}) > 1:
            # Several accounts: jobs that name none go to the default one.
            said = self._ask(["sacctmgr", "-n", "-P", "show", "user", user, "format=DefaultAccount"])
            default = said.output.strip() if said.code == 0 else ""
            limits = {default: limits[default]} if default in limits else limits
        known = [limit for limit in limits.values() if limit is not None]
        names = {usual[name] for name in limits}
        qos = chosen or (names.pop() if len(names) == 1 else "")
        return (max(known) if known and len(known) == len(limits) else None), qos

    def _partition(self) -> tuple[str, str]:
        """Return the partition of jobs if there is exactly one, and its QOS if it has one."""
        answer = self._ask(["scontrol", "--oneliner", "show", "partition"])
        found = partition_fields(answer.output, self._chosen("partition", self._profile.partition) or "")
        if answer.code != 0 or len(found) != 1:
            return "", ""
        ((name, fields),) = found.items()
        qos = fields.get("QoS", "N/A").lower()
        return name, "" if qos == "n/a" else qos

    def _of_qos(self, names: Sequence[str]) -> dict[str, tuple[int | None, int | None]]:
        """Return the limits per user and per account of each QOS. Only the user's own jobs can be counted."""
        if not names:
            return {}
        fields = "format=Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount"
        asked = ["sacctmgr", "-n", "-P", "show", "qos", "where", f"name={','.join(names)}", fields]
        answer = self._ask(asked)
        rows = [line.split("|") for line in answer.output.splitlines()] if answer.code == 0 else []
        return {row[0]: (least([row[1]]), least([row[2]])) for row in rows if len(row) == 3}

    def _chosen(self, option: str, of_profile: str | None) -> str | None:
        """Return the value that jobs request, searched in sbatch's order; ``None`` if the site decides."""
        typed = [one.partition("=")[2] for one in self._options if one.startswith(f"--{option}=")]
        return typed[-1] if typed else of_profile or os.environ.get(f"SBATCH_{option.upper()}")

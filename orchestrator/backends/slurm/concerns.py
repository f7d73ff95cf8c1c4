"""Warn, before submission, of resources that the plan's jobs request in vain."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.backends.slurm.commands import EXPORTED
from orchestrator.backends.slurm.parse import partition_fields, time_limit
from orchestrator.backends.waste import idle_gpus
from orchestrator.config.profiles import Profile, option_name
from orchestrator.core.types import Array, Concern, Plan
from orchestrator.core.units import seconds


@dataclass(frozen=True)
class Partitions:
    """Time limits (as printed) and cores per node of the partitions that jobs may use. Empty where the
    cluster was not contacted, or did not answer.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    cores: Mapping[str, int] = field(default_factory=dict)


def empty_required_keys(profile: Profile, options: Sequence[str]) -> Iterator[Concern]:
    """Refuse a profile in which a key of its `require` is empty, unless an option or a variable has it."""
    typed = {option.removeprefix("--").partition("=")[0] for option in options}
    for needed in profile.require:
        keys = needed.split(" or ")
        if any(getattr(profile, key) or option_name(key) in typed for key in keys):
            continue
        if any(os.environ.get(EXPORTED.get(key, "")) for key in keys):
            continue
        yield Concern(
            f"{profile.name}: {needed} is empty, and jobs there need it",
            f"fill in `{keys[0]}:` in {profile.source}, or in a copy of it",
            blocks=True,
        )


def concerns(plan: Plan, profile: Profile, options: Sequence[str], there: Partitions) -> tuple[Concern, ...]:
    """Return all warnings about a plan, without repetition."""
    found: list[Concern] = list(empty_required_keys(profile, options))
    found += idle_gpus(plan, profile)
    if is_exclusive(profile, options):
        found += _idle_cores(plan.arrays, there)
    found += _too_long(plan.arrays, there)
    return tuple(dict.fromkeys(found))


def is_exclusive(profile: Profile, options: Sequence[str]) -> bool:
    """Return whether each job has its node alone. Jobs exclusive per user or group may still share."""
    return ("exclusive", None) in profile.options or "--exclusive" in options


def _idle_cores(arrays: Iterable[Array], there: Partitions) -> Iterator[Concern]:
    """Warn of exclusive nodes of which a job uses half or less."""
    cores = min(there.cores.values(), default=None)
    for array in arrays:
        used = max(job.most_cores for job in array.jobs)
        few = used == 1 if cores is None else 2 * used <= cores
        if few:
            of = "" if cores is None else f" of {cores} cores"
            yield Concern(
                f"each job has a node{of} to itself (`exclusive`), and its runs use {_cores(used)} of it",
                "leave `exclusive` out, or give the profile the node's cores (`cpus_per_task`) and no `pack`",
            )


def _too_long(arrays: Iterable[Array], there: Partitions) -> Iterator[Concern]:
    """Warn of a time limit above that of all partitions: sbatch accepts such jobs, and they never begin."""
    limits = {name: time_limit(text) for name, text in there.limits.items()}
    known = [limit for limit in limits.values() if limit is not None]
    if not known or len(known) < len(limits):
        return
    longest = max(there.limits.values(), key=lambda text: time_limit(text) or 0)
    for array in arrays:
        asked = array.allocation.time
        if asked is not None and seconds(asked) > max(known):
            where = ", ".join(f"{name} ends jobs after {text}" for name, text in there.limits.items())
            yield Concern(
                f"jobs ask for {asked}, and would wait for ever: {where}",
                f'set `time:` in the profile to "{longest}" or less',
            )


def time_limits(output: str, named: str) -> dict[str, str]:
    """Return MaxTime by partition, selected as by :func:`partition_fields`."""
    return {
        name: fields.get("MaxTime", "UNLIMITED") for name, fields in partition_fields(output, named).items()
    }


def node_cores(output: str, partitions: Iterable[str]) -> dict[str, int]:
    """Return the fewest cores of a node, by partition, from `sinfo -h -o "%R|%c"`."""
    found: dict[str, int] = {}
    wanted = set(partitions)
    for line in output.splitlines():
        name, _, text = line.partition("|")
        if name in wanted and (number := re.match(r"\d+", text)):
            found[name] = min(found.get(name, int(number[0])), int(number[0]))
    return found


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"

"""Check the requests of a profile's jobs against the cluster, for this user."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.backends.slurm.concerns import empty_required_keys, is_exclusive
from orchestrator.backends.slurm.doctor.cluster_facts import Association, NodeGroup, Partition, Qos, Site
from orchestrator.backends.slurm.parse import partition_names, time_limit
from orchestrator.config.profiles import Profile, place_of
from orchestrator.core.findings import Finding, not_here, ok, problem, warning
from orchestrator.core.types import CommandAnswer
from orchestrator.core.units import ALL_MEMORY, megabytes, seconds


def partition(site: Site) -> Finding:
    """Check that the profile's partitions exist, are up and accept its jobs."""
    name, profile = "Partition", site.asking
    if not site.partitions:
        return not_here(name, "`scontrol show partition` shows none")
    there = ", ".join(one.name for one in site.partitions)
    known = {one.name for one in site.partitions}
    if absent := [one for one in partition_names(profile.partition or "") if one not in known]:
        return problem(
            name, f"there is no {', '.join(absent)}", _set(profile, "partition", f"one of {there}")
        )
    if not site.wanted:
        return problem(name, "this cluster has no default one", _set(profile, "partition", f"one of {there}"))
    for one in site.wanted:
        if finding := _refused(name, one, profile):
            return finding
    return ok(name, "; ".join(map(_described, site.wanted)))


def account(site: Site) -> Finding:
    """Check that the user's account and QOS allow the profile's jobs."""
    name, profile = "Account", site.asking
    known = site.associations
    if isinstance(known, CommandAnswer):
        none = (
            "this site keeps no accounts" if "plugin" in known.complaint else f"sacctmgr: {known.complaint}"
        )
        return not_here(name, none)
    if not known and "associations" in site.config.get("AccountingStorageEnforce", ""):
        fix = "ask your site for an account, if the line Script below is not ok"
        return warning(name, f"sacctmgr shows none of {site.user}, and this site demands one", fix)
    if not known:
        return not_here(name, f"sacctmgr shows none of {site.user}, and this site demands none")
    if not site.applying:
        asked = profile.account or "the default account"
        accounts = ", ".join(dict.fromkeys(one.account for one in known))
        return problem(name, f"{asked} is none of yours here", _set(profile, "account", f"one of {accounts}"))
    allowed = list(dict.fromkeys(qos for one in site.applying for qos in one.qos if qos))
    if profile.qos and profile.qos.lower() not in allowed:
        fix = _set(profile, "qos", f"one of {', '.join(allowed)}") if allowed else "leave out qos"
        return problem(name, f"QOS {profile.qos} is none of {site.applying[0].account}'s", fix)
    limits: list[Association | Qos] = [*site.applying, *site.applying_qos]
    for limited in limits:
        longest = time_limit(limited.max_wall)
        if longest is not None and profile.time and seconds(profile.time) > longest:
            return problem(
                name,
                f"jobs of yours end after {limited.max_wall}, the profile asks for {profile.time}",
                _set(profile, "time", f'"{limited.max_wall}" or less'),
            )
    chosen = "" if profile.account else ", your default"
    qos = f", QOS {profile.qos or ', '.join(allowed)}" if allowed else ""
    return ok(name, f"{site.applying[0].account}{chosen}{qos}")


def nodes(site: Site) -> Finding:
    """Check that some node has what one job asks for; `sbatch` only reports that none has."""
    name, profile = "Nodes", site.asking
    wanted = {one.name for one in site.wanted}
    groups = [group for group in site.nodes if group.partition in wanted]
    if not groups:
        return not_here(name, "sinfo shows none of these partitions")
    if lacks := _lacking(groups, profile):
        return problem(name, *lacks)
    fitting = [group for group in groups if _fits(group, profile)]
    if not fitting:
        fix = f"lower cpus_per_task, gpus, mem or constraint in {place_of(profile)}: no node has all of it"
        return problem(name, "each is there, but on no single node", fix)
    usable = sum(group.count for group in fitting if group.usable)
    found = f"{usable} of {sum(group.count for group in groups)} can run such a job now or later"
    if not usable:
        return warning(name, f"{found}: all others are down or drained", "`sinfo -R` says why; wait or ask")
    return ok(name, found)


def filled_in(site: Site) -> Finding:
    """Check that the profile sets the keys that it requires."""
    name, profile = "Filled in", site.asking
    if empty := list(empty_required_keys(profile, ())):
        return problem(name, "; ".join(one.text for one in empty), f"fill them in, in {place_of(profile)}")
    if not profile.require:
        return ok(name, "the profile names no key that jobs cannot do without (`require`)")
    return ok(name, ", ".join(profile.require))


def whole_nodes(site: Site) -> Finding:
    """Check that jobs with nodes to themselves use them."""
    name, profile = "Whole nodes", site.asking
    if not is_exclusive(profile, ()):
        return ok(name, "not asked for: jobs share nodes")
    wanted = {one.name for one in site.wanted}
    cores = min((group.cpus for group in site.nodes if group.partition in wanted), default=0)
    used = profile.cpus_per_task or 1
    if 2 * used <= cores:
        fix = f"leave `exclusive` out of {place_of(profile)}, or set `cpus_per_task: {cores}`"
        return warning(name, f"a job has {cores} cores to itself (`exclusive`), and works on {used}", fix)
    return ok(name, f"a job has a node to itself, and works on {used} of its {cores or '?'} cores")


CHECKS = (filled_in, partition, account, nodes, whole_nodes)


def _set(profile: Profile, key: str, value: str) -> str:
    return f"set `{key}:` in {place_of(profile)} to {value}"


def _refused(name: str, one: Partition, profile: Profile) -> Finding | None:
    """Return why jobs of the profile cannot run in a partition."""
    if one["State"] not in ("", "UP"):
        return problem(
            name, f"{one.name} is {one['State'].lower()}", "wait, or name another: `sinfo -s` lists them"
        )
    if one["TotalNodes"] == "0":
        return problem(name, f"{one.name} has no nodes", "name another: `sinfo -s` lists them")
    longest = time_limit(one["MaxTime"])
    if profile.time is not None and longest is not None and seconds(profile.time) > longest:
        found = f"{one.name} ends jobs after {one['MaxTime']}, the profile asks for {profile.time}"
        return problem(name, found, _set(profile, "time", f'"{one["MaxTime"]}" or less'))
    for kind, word, value in (("Accounts", "account", profile.account), ("Qos", "QOS", profile.qos)):
        if value is not None and not one.admits(kind, value):
            found = f"{one.name} is not open to {word} {value}"
            return problem(name, found, _set(profile, "partition", "another: `sinfo -s` lists them"))
    return None


def _described(one: Partition) -> str:
    default = " (the default)" if one.is_default else ""
    limit = one["MaxTime"]
    ends = "no time limit" if limit in ("", "UNLIMITED") else f"jobs of up to {limit}"
    nodes = one["TotalNodes"] or "?"
    return f"{one.name}{default} is up, {nodes} node{'' if nodes == '1' else 's'}, {ends}"


def _lacking(groups: Sequence[NodeGroup], profile: Profile) -> tuple[str, str] | None:
    """Return the request that no node can meet by itself, and the fix."""
    features = {feature for group in groups for feature in group.features}
    if absent := [word for word in _features(profile.constraint) if word not in features]:
        fix = f"leave `constraint` out of {place_of(profile)}: these nodes have no features"
        if features:
            fix = _set(profile, "constraint", f"what there is: {', '.join(sorted(features))}")
        return f"no node has feature {', '.join(absent)}", fix
    if profile.gpus and (lacks := _lacking_gpus(groups, profile)):
        return lacks
    most = max(group.cpus for group in groups)
    if (profile.cpus_per_task or 1) > most > 0:
        return f"no node has more than {most} cores", _set(profile, "cpus_per_task", f"{most} or less")
    mem = max(group.mem for group in groups)
    if _asked_mem(profile) > mem > 0:
        return f"no node has more than {mem}M of memory", _set(profile, "mem", f"{mem}M or less")
    return None


def _lacking_gpus(groups: Sequence[NodeGroup], profile: Profile) -> tuple[str, str] | None:
    kinds = sorted({kind for group in groups for kind in group.gpus})
    where = ", ".join(dict.fromkeys(group.partition for group in groups))
    if not kinds:
        return f"no node of {where} has a GPU", _set(
            profile, "partition", 'one with GPUs: `sinfo -o "%P %G"`'
        )
    if profile.gpu_type is not None and profile.gpu_type not in kinds:
        offered = (
            ", ".join(f"{kind}:{profile.gpus}" for kind in kinds if kind) or f"{profile.gpus}, without a type"
        )
        return f"no node of {where} has a GPU of type {profile.gpu_type}", _set(profile, "gpus", offered)
    most = max(_gpus(group, profile) for group in groups)
    if (profile.gpus or 0) > most:
        return f"no node of {where} has more than {most} such GPUs", _set(profile, "gpus", f"{most} or less")
    return None


def _fits(group: NodeGroup, profile: Profile) -> bool:
    words, exact = _features(profile.constraint), not set("|,[") & set(profile.constraint or "")
    return (
        (profile.cpus_per_task or 1) <= group.cpus
        and _asked_mem(profile) <= group.mem
        and (profile.gpus or 0) <= _gpus(group, profile)
        and (not exact or group.features.issuperset(words))
    )


def _gpus(group: NodeGroup, profile: Profile) -> int:
    return group.gpus.get(profile.gpu_type, 0) if profile.gpu_type else sum(group.gpus.values())


def _asked_mem(profile: Profile) -> int:
    """Return the megabytes that scripts ask for; 0 where the site forbids it, and for all of a node."""
    if profile.job_mem is None or {"mem", "mem-per-cpu"} & profile.forbid:
        return 0
    asked = megabytes(profile.job_mem)
    return 0 if asked == ALL_MEMORY else asked


def _features(constraint: str | None) -> list[str]:
    """Return the words of a constraint: ``[rack1*2|rack2]&ib`` names rack1, rack2 and ib."""
    words = re.split(r"[&|,()\[\]]", constraint or "")
    return [word for one in words if (word := re.sub(r"\*\d+$", "", one.strip()))]

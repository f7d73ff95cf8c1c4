"""A Slurm cluster from one of its login nodes, alone or for a profile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from orchestrator.config.profiles import Profile
from orchestrator.ui.doctor import job_script, request_checks, slurm
from orchestrator.ui.doctor.cluster_facts import Ask, Site
from orchestrator.ui.doctor.finding import Finding, Verdict, not_here
from orchestrator.ui.doctor.past_sweep import validated


def examined(profile: Profile | None, results: Path, ask: Ask | None = None) -> Iterator[Finding]:
    """Yield every finding about the cluster, as it comes; ``ask`` stands in for starting Slurm's commands."""
    site = Site(profile, results, ask)
    if site.profile is None and shutil.which("sbatch") is None:
        yield not_here("Slurm", "no sbatch on PATH: this is no login node of a cluster")
        return
    for check in slurm.FIRST:
        finding = check(site)
        yield finding
        if finding.verdict is Verdict.PROBLEM:
            yield not_here("All other checks", f"wait for: {finding.name}")
            return
    for check in (*slurm.CHECKS, *((*request_checks.CHECKS, *job_script.CHECKS) if site.profile else ())):
        yield check(site)
    if site.profile is None:
        yield not_here(
            "Profile", "none was named", "orchestrate doctor --on PROFILE checks one against this cluster"
        )
    else:
        yield validated(site.results, site.profile)

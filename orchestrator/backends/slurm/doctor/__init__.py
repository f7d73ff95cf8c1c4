"""Check a Slurm cluster from one of its login nodes, alone or for a profile.

To add a check, write it and name it in the CHECKS of its module: :mod:`cluster` for a cluster,
:mod:`request_checks` and :mod:`job_script` for a profile against its cluster.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from orchestrator.backends.slurm.doctor import cluster, job_script, request_checks
from orchestrator.backends.slurm.doctor.cluster_facts import Site
from orchestrator.config.profiles import Profile
from orchestrator.core.findings import Finding, not_here
from orchestrator.core.types import RunCommand

# Checks of this machine, which a login node behind ssh has its own versions of.
_LOCAL = (cluster.commands, job_script.setup, job_script.interpreter)


def examined(profile: Profile, results: Path, ask: RunCommand | None) -> Iterator[Finding]:
    """Yield every finding about the profile's cluster, as it comes; ``ask`` runs Slurm's commands."""
    site = Site(profile, results, ask)
    for check in (*cluster.CHECKS, *request_checks.CHECKS, *job_script.CHECKS):
        if not (site.is_remote and check in _LOCAL):
            yield check(site)


def examined_here(results: Path, ask: RunCommand | None) -> Iterator[Finding]:
    """Yield every finding about the cluster of this machine, if it is a login node of one."""
    if shutil.which("sbatch") is None:
        yield not_here("Slurm", "no sbatch on PATH: this is no login node of a cluster")
        return
    site = Site(None, results, ask)
    for check in cluster.CHECKS:
        yield check(site)
    yield not_here(
        "Profile", "none was named", "orchestrate doctor --on PROFILE checks one against this cluster"
    )

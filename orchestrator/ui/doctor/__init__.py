"""The doctor: what works here, what does not, and the fix. It changes nothing.

A check is a function that looks at one thing and returns a :class:`Finding`; it raises nothing, whatever the
programs that it asks print. To add one, write it and name it in the CHECKS of its module:
:mod:`local_machine` for this machine, :mod:`training` for what trainings need of it, :mod:`slurm` for a
cluster, :mod:`request_checks` and :mod:`job_script` for a profile against its cluster, :mod:`login_node` for
a login node behind ssh, :mod:`cloud` for a profile of SkyPilot's.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from orchestrator.config.profiles import Profile
from orchestrator.ui.doctor import job_script, local_machine, request_checks, slurm, training, wandb_login
from orchestrator.ui.doctor.cluster_facts import Ask, Site
from orchestrator.ui.doctor.finding import Finding, Verdict, not_here
from orchestrator.ui.doctor.past_sweep import validated
from orchestrator.ui.doctor.torch_probe import Probe, Probing

__all__ = ["Finding", "Verdict", "diagnose"]


def diagnose(
    results: Path, profile: Profile | None = None, ask: Ask | None = None, probe: Probe | None = None
) -> Iterator[Finding]:
    """Every finding as soon as it is there; ``profile``: what jobs are to ask for.

    ``ask`` stands in for starting Slurm's commands, ``probe`` for starting the process that loads PyTorch.
    """
    yield from _this_machine(results, profile, probe)
    if profile is not None and profile.ssh is not None:
        from orchestrator.ui.doctor.login_node import examined

        yield from examined(profile, results)
    elif profile is not None and profile.backend == "skypilot":
        from orchestrator.ui.doctor import cloud

        yield from cloud.examined(profile, results)
    elif profile is None or profile.backend == "slurm":
        yield from _cluster(Site(profile, results, ask))
    if profile is not None and profile.backend == "local":
        yield validated(results, profile)


def _this_machine(results: Path, profile: Profile | None, probe: Probe | None) -> Iterator[Finding]:
    with contextlib.ExitStack() as stack:
        # PyTorch is loaded while the quick checks are made.
        ask_torch = probe or stack.enter_context(Probing())
        for check in local_machine.CHECKS:
            yield check(results)
        if profile is None or profile.backend != "skypilot":
            for check in local_machine.REMOTE:
                yield check(results)
        yield wandb_login.wandb(results)
        for look in training.CHECKS:
            yield look(ask_torch)


def _cluster(site: Site) -> Iterator[Finding]:
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

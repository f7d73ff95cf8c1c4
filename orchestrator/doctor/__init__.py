"""The doctor: what works here, what does not, and the fix. It changes nothing.

A check is a function that looks at one thing and returns a :class:`Finding`; it raises nothing, whatever the
programs that it asks print. To add one, write it and name it in the CHECKS of its module: :mod:`here` for
this machine, :mod:`training` for what trainings need of it, :mod:`slurm` for a cluster, :mod:`asked` and
:mod:`script` for a profile against its cluster, :mod:`there` for a login node behind ssh, :mod:`cloud` for a
profile of SkyPilot's.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from orchestrator.doctor import asked, here, login, script, slurm, training
from orchestrator.doctor.finding import Finding, Verdict, not_here
from orchestrator.doctor.probe import Probe, Probing
from orchestrator.doctor.site import Ask, Site
from orchestrator.doctor.validated import validated
from orchestrator.profiles import Profile

__all__ = ["Finding", "Verdict", "diagnose"]


def diagnose(
    results: Path, profile: Profile | None = None, ask: Ask | None = None, probe: Probe | None = None
) -> Iterator[Finding]:
    """Every finding as soon as it is there; ``profile``: what jobs are to ask for.

    ``ask`` stands in for starting Slurm's commands, ``probe`` for starting the process that loads PyTorch.
    """
    yield from _this_machine(results, profile, probe)
    if profile is not None and profile.ssh is not None:
        from orchestrator.doctor.there import examined

        yield from examined(profile, results)
    elif profile is not None and profile.backend == "skypilot":
        from orchestrator.doctor import cloud

        yield from cloud.examined(profile, results)
    elif profile is None or profile.backend == "slurm":
        yield from _cluster(Site(profile, results, ask))
    if profile is not None and profile.backend == "local":
        yield validated(results, profile)


def _this_machine(results: Path, profile: Profile | None, probe: Probe | None) -> Iterator[Finding]:
    with contextlib.ExitStack() as stack:
        # PyTorch is loaded while the quick checks are made.
        asked = probe or stack.enter_context(Probing())
        for check in here.CHECKS:
            yield check(results)
        if profile is None or profile.backend != "skypilot":
            for check in here.REMOTE:
                yield check(results)
        yield login.wandb(results)
        for look in training.CHECKS:
            yield look(asked)


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
    for check in (*slurm.CHECKS, *((*asked.CHECKS, *script.CHECKS) if site.profile else ())):
        yield check(site)
    if site.profile is None:
        yield not_here(
            "Profile", "none was named", "orchestrate doctor --on PROFILE checks one against this cluster"
        )
    else:
        yield validated(site.results, site.profile)

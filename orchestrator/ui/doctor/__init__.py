"""The doctor: check what works here, what does not, and how to fix it. It changes nothing.

A check is a function that examines one thing and returns a :class:`Finding`; it raises nothing, for any
output of the programs that it starts. To add one, write it and name it in the CHECKS of its module:
:mod:`local_machine` for this machine, :mod:`training` for the needs of training, :mod:`slurm` for a cluster,
:mod:`request_checks` and :mod:`job_script` for a profile against its cluster, :mod:`login_node` for a login
node behind ssh, :mod:`cloud` for a cloud. A backend names its own in its
:class:`~orchestrator.config.backends.BackendSpec`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from orchestrator.config.backends import get_backend, is_rented, load
from orchestrator.config.profiles import Profile
from orchestrator.ui.doctor import cluster, local_machine, training, wandb_login
from orchestrator.ui.doctor.cluster_facts import Ask
from orchestrator.ui.doctor.finding import Finding, Verdict
from orchestrator.ui.doctor.past_sweep import validated
from orchestrator.ui.doctor.torch_probe import Probe, Probing

__all__ = ["Finding", "Verdict", "diagnose"]


def diagnose(
    results: Path, profile: Profile | None = None, ask: Ask | None = None, probe: Probe | None = None
) -> Iterator[Finding]:
    """Yield every finding as soon as it is there; with ``profile``, also those about its jobs.

    ``ask`` stands in for starting a scheduler's commands, ``probe`` for the process that loads PyTorch.
    """
    yield from _this_machine(results, profile, probe)
    if profile is not None and profile.ssh is not None:
        from orchestrator.ui.doctor.login_node import examined

        yield from examined(profile, results)
    elif profile is None:
        yield from cluster.examined(None, results, ask)
    elif doctor := get_backend(profile.backend).doctor:
        yield from load(doctor)(profile, results, *([ask] if ask else ()))
    else:
        yield validated(results, profile)


def _this_machine(results: Path, profile: Profile | None, probe: Probe | None) -> Iterator[Finding]:
    with contextlib.ExitStack() as stack:
        # PyTorch is loaded while the quick checks are made.
        ask_torch = probe or stack.enter_context(Probing())
        for check in local_machine.CHECKS:
            yield check(results)
        if profile is None or not is_rented(profile.backend):
            for check in local_machine.REMOTE:
                yield check(results)
        yield wandb_login.wandb(results)
        for look in training.CHECKS:
            yield look(ask_torch)

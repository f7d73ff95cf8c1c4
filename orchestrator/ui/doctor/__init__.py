"""The doctor: check what works here, what does not, and how to fix it. It changes nothing.

A check is a function that examines one thing and returns a :class:`~orchestrator.core.findings.Finding`; it
raises nothing, for any output of the programs that it starts. To add one, write it and name it in the CHECKS
of its module: :mod:`local_machine` for this machine, :mod:`training` for the needs of training; of a login
node behind ssh, in ``examined`` of :mod:`login_node`. A backend has its own checks: ``doctor`` and ``here``
of its :class:`~orchestrator.config.backends.BackendSpec`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

from orchestrator.config.backends import backend_names, get_backend, is_rented
from orchestrator.config.profiles import Profile
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.findings import Finding, Verdict, not_here, problem, warning
from orchestrator.core.progress import report_step
from orchestrator.core.types import RunCommand
from orchestrator.ui.doctor import local_machine, training, wandb_login
from orchestrator.ui.doctor.login_node import LoginNode
from orchestrator.ui.doctor.past_sweep import validated
from orchestrator.ui.doctor.torch_probe import Probe, Probing

__all__ = ["Finding", "Verdict", "diagnose"]


def diagnose(
    results: Path, profile: Profile | None = None, ask: RunCommand | None = None, probe: Probe | None = None
) -> Iterator[Finding]:
    """Yield every finding as soon as it is there; with ``profile``, also those about its jobs.

    ``ask`` stands in for starting a scheduler's commands, ``probe`` for the process that loads PyTorch.
    """
    yield from _this_machine(results, profile, probe)
    if profile is not None:
        yield from _until_blocked(_target(results, profile, ask))
    else:
        for name in backend_names():
            yield from _until_blocked(_here(name, results, ask))


def _this_machine(results: Path, profile: Profile | None, probe: Probe | None) -> Iterator[Finding]:
    with contextlib.ExitStack() as stack:
        # PyTorch is loaded while the quick checks are made.
        ask_torch = probe or stack.enter_context(Probing())
        for check in local_machine.CHECKS:
            report_step(f"checking {check.__name__}")
            yield check(results)
        needs_rsync = profile is not None and is_rented(profile.backend)
        yield local_machine.rsync(problem if needs_rsync else warning)
        yield wandb_login.wandb(results)
        for look in training.CHECKS:
            report_step(f"checking {look.__name__}")
            yield look(ask_torch)


def _target(results: Path, profile: Profile, ask: RunCommand | None) -> Iterator[Finding]:
    """Yield the findings about the profile's login node, its backend, and a sweep on it."""
    spec = get_backend(profile.backend)
    report_step(f"checking {profile.name}")
    if profile.ssh is not None:
        node = LoginNode(profile)
        ask = node.ask
        yield from node.examined()
    if spec.doctor:
        yield from resolve_name(spec.doctor)(profile, results, ask)
    if profile.ssh is None:
        yield validated(results, profile)


def _here(backend: str, results: Path, ask: RunCommand | None) -> Iterator[Finding]:
    """Yield the findings about what of a backend is on this machine."""
    try:
        here = get_backend(backend).here
    except OrchestrateError as error:
        yield warning("Backends", str(error), error.hint or "correct the entry point, or remove its package")
        return
    if here:
        report_step(f"checking {backend}")
        yield from resolve_name(here)(results, ask)


def _until_blocked(findings: Iterator[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        if finding.blocks:
            yield not_here("All other checks", f"wait for: {finding.name}")
            return

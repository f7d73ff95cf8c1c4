"""Where and with what a run was trained."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orchestrator import machine
from orchestrator.rundir import CodeDir
from orchestrator.trainers import TrainerSpec

_THIS_PROJECT = "orchestrate"


def host() -> dict[str, Any]:
    """What this process computes on: hostname, Slurm's node, models and capabilities of CPU and GPU, cores.

    Loads nothing. The capabilities decide bits, and only torch knows them: ``None`` where it is not loaded. A
    GPU that the process has not used, however many the machine has, is none of its.
    """
    torch: Any = sys.modules.get("torch")
    cuda = torch.cuda if torch and torch.cuda.is_initialized() else None
    return {
        "hostname": socket.gethostname(),
        "node": os.environ.get("SLURMD_NODENAME"),
        "cpu_model": machine.cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability() if torch else None,
        "cores": os.cpu_count(),
        "gpu_model": cuda.get_device_name() if cuda else None,
        "gpu_capability": ".".join(map(str, cuda.get_device_capability())) if cuda else None,
    }


def versions(spec: TrainerSpec) -> dict[str, str]:
    """Of Python, of this program and of the packages that decide a result; absent ones are left out."""
    found = {package: _version(package) for package in (_THIS_PROJECT, *spec.packages)}
    return {"python": platform.python_version(), **{name: text for name, text in found.items() if text}}


@cache
def _version(package: str) -> str | None:
    """Looked up once, by the worker before it forks: each time is milliseconds of a run."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The git commit of the current folder, with ``+changes`` if tracked files differ from it.

    Where code runs that was kept with its sweep, the commit it was kept at, with the changes' place in it.
    """
    code = CodeDir.holding(Path(__file__))
    if code is not None:
        return _kept_commit(code)
    head = _git("rev-parse", "HEAD")
    if not head:
        return None
    return head + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _kept_commit(code: CodeDir) -> str | None:
    project = code.facts()["project"]
    if project is None or project["commit"] is None:
        return None
    return f"{project['commit']}+changes-{code.code_id}" if project["changed"] else str(project["commit"])


def _git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None

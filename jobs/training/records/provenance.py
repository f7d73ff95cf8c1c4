"""Where and with what a run was trained."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.config.code.identity import code_id
from orchestrator.config.code.worktree import NoWorkTree, head_of
from orchestrator.config.file_kinds import is_source
from orchestrator.config.program.identity import ProgramFiles, project_files
from orchestrator.config.trainers import TrainerSpec
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.machine import hardware
from orchestrator.core.types import Run
from orchestrator.rundir import CodeDir, results_among
from orchestrator.rundir.copies.prefix import Prefix

# The scheduler's name of the machine, set by a worker for all that it starts.
NODE_VARIABLE = "ORCHESTRATE_NODE"


def host() -> dict[str, Any]:
    """Describe this process's machine: hostname, the scheduler's name of it, CPU, cores, GPU.

    ``cores``: those of the machine, which are threads of its ``physical_cores``.

    Loads nothing. A GPU is named only if this process has used it.
    """
    torch: Any = sys.modules.get("torch")
    cuda = torch.cuda if torch and torch.cuda.is_initialized() else None
    return {
        "hostname": socket.gethostname(),
        "node": os.environ.get(NODE_VARIABLE),
        "cpu_model": hardware.cpu_model(),
        "cpu_capability": hardware.cpu_capability(),
        "cores": os.cpu_count(),
        "physical_cores": _physical_cores(),
        "gpu_model": cuda.get_device_name() if cuda else None,
        "gpu_capability": ".".join(map(str, cuda.get_device_capability())) if cuda else None,
    }


@cache
def _physical_cores() -> int:
    return hardware.physical_cores(range(os.cpu_count() or 1))


def versions(spec: TrainerSpec, run: Run | None = None) -> dict[str, str]:
    """Return the versions of Python, this program and the installed packages that decide a result.

    With ``run`` also those of its task's packages.
    """
    packages = spec.packages if run is None else spec.packages_of(run)
    found = {package: _version(package) for package in packages}
    return {
        "python": platform.python_version(),
        "orchestrate": __version__,
        **{name: text for name, text in found.items() if text},
    }


def other_bits(prefix: Prefix, spec: TrainerSpec, run: Run) -> str:
    """Return what differs here from what trained a prefix, and may change the bits; empty if nothing does.

    The packages of a program are unknown before it runs.
    """
    now = {} if spec.runs_program else versions(spec, run)
    now = {name: text for name, text in now.items() if name != "orchestrate"}
    was = dict(prefix.versions or {})
    if (capability := hardware.cpu_capability()) is not None:
        now["CPU capability"], was["CPU capability"] = capability, prefix.cpu_capability or "unknown"
    return ", ".join(
        f"{name} {was.get(name, 'none')}, here {now[name]}" for name in now if was.get(name) != now[name]
    )


# Set for a worker on a cloud instance: files of the project are there only as a copy that was kept.
ON_INSTANCE = "ORCHESTRATE_ON_INSTANCE"


@dataclass(frozen=True)
class Code:
    """The code that trains a run: its id, or why that is ``unknown``.

    ``files``: the hash of each file by name, where no snapshot holds the files for a later look. ``program``:
    the files of the program that the trainer starts.
    """

    id: str | None
    unknown: str | None = None
    files: Mapping[str, str] | None = None
    program: ProgramFiles | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the keys of a result."""
        more = {"code_unknown": self.unknown, "code_files": self.files}
        return {"code_id": self.id, **{key: value for key, value in more.items() if value is not None}}


NO_CODE = Code(None)


def code_of(spec: TrainerSpec, run: Run, results: Path) -> Code:
    """Return the code that trains the run: the trainer's, or that of the program that it starts."""
    if not spec.runs_program:
        return Code(code_id(spec))
    is_copy = CodeDir.holding(Path.cwd() / "here") is not None
    if ON_INSTANCE in os.environ and not is_copy:
        return Code(
            None, "no copy of the project was kept, and so none of its files was sent to this machine"
        )
    try:
        program = project_files(Path.cwd(), [results.resolve()], any_owner=True).program(run.point)
    except OrchestrateError as error:
        return Code(None, str(error))  # a key that cannot be used, which the trainer refuses
    return Code(program.id, program.unknown, None if is_copy else program.to_json(), program)


@cache
def _version(package: str) -> str | None:
    """Look up a version once, in the worker before it forks: each look-up takes milliseconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """Return the git commit of the current folder, with ``+changes`` if its code differs, if known.

    In a sweep's code snapshot: the commit of the snapshot, with the place of its changes.
    """
    code = CodeDir.holding(Path(__file__))
    if code is not None:
        return _kept_commit(code)
    try:
        head, changed, new = head_of(Path.cwd())
    except (NoWorkTree, OrchestrateError, OSError):
        return None  # a commit with unknown changes cannot be restored
    results = results_among(new)
    is_new = any(is_source(name) for name in new if not name.startswith(results))
    return None if head is None else head + ("+changes" if changed or is_new else "")


def _kept_commit(code: CodeDir) -> str | None:
    project = code.facts()["project"]
    if project is None or project["commit"] is None:
        return None
    changed = project["changed"] or project.get("untracked")
    return f"{project['commit']}+changes-{code.code_id}" if changed else str(project["commit"])

"""Plan → script text: the exact text that a backend runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.code.snapshot import FrozenCode
from orchestrator.core.types import Array, Job
from orchestrator.rundir import SweepDir


@dataclass(frozen=True)
class Setting:
    """What all jobs of a submission share: the sweep's folder (absolute) and the code that they run."""

    sweep_dir: SweepDir
    code: FrozenCode


@dataclass(frozen=True)
class Script:
    """What is submitted for an array: nothing is decided any more."""

    array: Array
    text: str
    setting: Setting

    @property
    def path(self) -> Path:
        """Where it is kept as it was submitted."""
        return self.setting.sweep_dir.script(self.array.token)


def worker_argv(setting: Setting, token: str, python: Sequence[str] = (sys.executable,)) -> list[str]:
    """The worker of a job, as an argument vector."""
    # -P: a jobs/ of the user's own in the folder of the call must not stand in for ours.
    where = [str(setting.sweep_dir.results), setting.sweep_dir.name]
    return [*python, "-P", "-m", "jobs.worker", *where, token]


def python_path(setting: Setting) -> str:
    """The folders in which a worker is to look for modules first."""
    return ":".join(map(str, setting.code.python_path))


def local_command(setting: Setting, job: Job) -> str:
    """The one command of a local job, quoted for reading and pasting."""
    variables = [f"PYTHONPATH={python_path(setting)}", f"ORCHESTRATE_SUBMIT_DIR={setting.code.submit_dir}"]
    argv = worker_argv(setting, job.token)
    return shlex.join(["env", f"--chdir={setting.code.cwd}", *variables, *argv])

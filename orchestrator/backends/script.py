"""Render jobs as text: the exact text that a backend runs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.backends.setup_lines import ORIGINAL, visibly_failing
from orchestrator.config.backends import get_backend
from orchestrator.config.profiles import Profile, preparation
from orchestrator.config.task_packages import TaskPackages
from orchestrator.core.formatting import count
from orchestrator.core.machine.package_files import template
from orchestrator.core.types import Array, Resources
from orchestrator.core.units import seconds
from orchestrator.rundir import FrozenCode, SweepDir

_LOADS = re.compile(r"module\s+(?:load|add)\s+(?=[^-])")
_STARTUP = re.compile(
    r"(?:source|\.)\s+(?P<path>\S*/(?:\.bashrc|\.bash_profile|\.bash_login|\.profile|etc/profile|etc/bashrc))"
)
# The worker's exit code that requests another allocation.
_AGAIN_CODE = 75


@dataclass(frozen=True)
class Setting:
    """What all jobs of a submission share: the sweep's folder (absolute) and the code to run.

    ``tasks_need``: what the tasks of its runs need beside their trainer's packages.
    """

    sweep_dir: SweepDir
    code: FrozenCode
    tasks_need: tuple[TaskPackages, ...] = ()


@dataclass(frozen=True)
class Script:
    """The rendered text of an array, ready to submit."""

    array: Array
    text: str
    setting: Setting

    @property
    def path(self) -> Path:
        """Path of the stored copy."""
        return self.setting.sweep_dir.script(self.array.token)


def worker_argv(setting: Setting, token: str, python: Sequence[str] = (sys.executable,)) -> list[str]:
    """Return the argument vector of a job's worker."""
    # -P: a user's own jobs/ in the working directory must not shadow this package.
    where = [str(setting.sweep_dir.results), setting.sweep_dir.name]
    return [*python, "-P", "-m", setting.code.entries["worker"], *where, token]


def python_path(setting: Setting) -> str:
    """Return the folders that come first on a worker's PYTHONPATH."""
    return ":".join(map(str, setting.code.python_path))


@dataclass(frozen=True)
class JobShell:
    """Shell text of a scheduler's jobs. ``index``: a job's index in the array; ``again``: requeues the job.

    ``stop``: signals that request its end now; SIGUSR1 warns before the time limit. ``on_other_nodes``: the
    command that starts a program on the job's other nodes, if it has any.
    """

    index: str
    again: str
    stop: str = "TERM"
    on_other_nodes: str = ""


def job_script(
    array: Array, setting: Setting, profile: Profile, options: Iterable[str], shell: JobShell
) -> str:
    """Render the shell script that every job of an array runs in a scheduler.

    ``options``: lines for the scheduler.
    """
    import jinja2

    runs, python = len(set(array.run_ids)), profile.python or (sys.executable,)
    values = {
        "options": "\n".join(options),
        "title": f"{count(len(array.jobs), 'job')} for {count(runs, 'run')} of sweep "
        f"{setting.sweep_dir.name}",
        "original": ORIGINAL,
        "preparation": "\n".join(_preparation(setting, profile)),
        "cwd": shlex.quote(str(setting.code.cwd)),
        "array": array.token,
        "journals": shlex.quote(str(setting.sweep_dir.mailbox(array.token).parent)),
        "warning": profile.signal,
        "ends": _ends(array.allocation),
        "worker": shlex.join(worker_argv(setting, "", python)[:-1]),
        "start": shlex.quote(shlex.join([*python, "-m", setting.code.entries["worker"]])),
        "agent": shlex.join([*python, "-P", "-m", setting.code.entries["node"]]),
        "again_code": _AGAIN_CODE,
        **vars(shell),
    }
    environment = jinja2.Environment(  # noqa: S701 - shell, not HTML; every value is quoted above
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(template("job.sh.j2").read_text(encoding="utf-8")).render(values)


def _preparation(setting: Setting, profile: Profile) -> Iterable[str]:
    yield from visibly_failing(preparation(profile), _checked)
    if profile.scratch is not None:
        yield f"export TMPDIR={_with_variables(profile.scratch)}"
    # A job submitted by another one inherits a PYTHONPATH that begins with these folders.
    yield f"ours={shlex.quote(python_path(setting))}"
    yield '[[ "${PYTHONPATH-}:" == "$ours:"* ]] || export PYTHONPATH="$ours${PYTHONPATH:+:$PYTHONPATH}"'
    yield f"export ORCHESTRATE_FEED={int(profile.feed)}"
    yield f"export ORCHESTRATE_SUBMIT_DIR={shlex.quote(str(setting.code.submit_dir))}"
    if scheduler := get_backend(profile.backend).scheduler:
        yield f"export ORCHESTRATE_SCHEDULER={scheduler}"


def _checked(command: str) -> str:
    """Return a command of the set-up such that its exit status says whether it worked."""
    if command == "module purge":  # with nothing to unload
        return f"{{ {command} || :; }}"
    if loads := _LOADS.match(command):
        return f"load_module {command[loads.end() :]}"
    if startup := _STARTUP.fullmatch(command):
        # Its last command may be a condition that is not met.
        return f"{{ {command} || [ -r {startup['path']} ]; }}"
    return command


def _ends(allocation: Resources) -> str:
    """Set the variable with the job's end time, which not every scheduler reports."""
    if allocation.time is None:
        return "# No time limit was asked for: the partition's own holds, and its warning."
    return f"export ORCHESTRATE_ENDS=$(($(date +%s) + {seconds(allocation.time)}))"


def _with_variables(text: str) -> str:
    """Put text in double quotes so that the shell expands ``$VARIABLES`` only."""
    return '"' + re.sub(r'(["\\`]|\$(?=\())', r"\\\1", text) + '"'

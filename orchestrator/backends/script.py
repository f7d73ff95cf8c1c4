"""Plan → script text: the exact text that a backend runs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.backends import get_backend
from orchestrator.config.code.snapshot import FrozenCode
from orchestrator.config.profiles import Profile, preparation
from orchestrator.core.package_files import template
from orchestrator.core.types import Array, Job, Resources
from orchestrator.core.units import seconds
from orchestrator.rundir import SweepDir

# The worker's exit code that asks for another go.
_AGAIN_CODE = 75


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


def job_script(
    array: Array,
    setting: Setting,
    profile: Profile,
    options: Iterable[str],
    *,
    index: str,
    again: str,
    stop: str = "TERM",
) -> str:
    """Make the shell script that every job of an array runs in a scheduler.

    ``options`` are lines for the scheduler. ``index`` is shell for a job's index in the array, ``again`` the
    command that requeues the job, ``stop`` the signals that ask it to end now. SIGUSR1 is the warning before
    the time limit.
    """
    import jinja2

    runs = len(set(array.run_ids))
    values = {
        "options": "\n".join(options),
        "title": f"{len(array.jobs)} jobs for {runs} runs of sweep {setting.sweep_dir.name}",
        "preparation": "\n".join(_preparation(setting, profile)),
        "cwd": shlex.quote(str(setting.code.cwd)),
        "array": array.token,
        "index": index,
        "mailboxes": shlex.quote(str(setting.sweep_dir.mailbox(array.token).parent)),
        "warning": profile.signal,
        "ends": _ends(array.allocation),
        "stop": stop,
        "worker": shlex.join(worker_argv(setting, "", profile.python or (sys.executable,))[:-1]),
        "again_code": _AGAIN_CODE,
        "again": again,
    }
    environment = jinja2.Environment(  # noqa: S701 - shell, not HTML; every value is quoted above
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(template("job.sh.j2").read_text(encoding="utf-8")).render(values)


def _preparation(setting: Setting, profile: Profile) -> Iterable[str]:
    yield from preparation(profile)
    if profile.scratch is not None:
        yield f"export TMPDIR={_with_variables(profile.scratch)}"
    # A job that is submitted by another one finds its folders in front already.
    yield f"ours={shlex.quote(python_path(setting))}"
    yield '[[ "${PYTHONPATH-}:" == "$ours:"* ]] || export PYTHONPATH="$ours${PYTHONPATH:+:$PYTHONPATH}"'
    yield f"export ORCHESTRATE_FEED={int(profile.feed)}"
    yield f"export ORCHESTRATE_SUBMIT_DIR={shlex.quote(str(setting.code.submit_dir))}"
    if scheduler := get_backend(profile.backend).scheduler:
        yield f"export ORCHESTRATE_SCHEDULER={scheduler}"


def _ends(allocation: Resources) -> str:
    """Set the variable by which a worker knows its job's end, for not every scheduler does."""
    if allocation.time is None:
        return "# No time limit was asked for: the partition's own holds, and its warning."
    return f"export ORCHESTRATE_ENDS=$(($(date +%s) + {seconds(allocation.time)}))"


def _with_variables(text: str) -> str:
    """In double quotes, so that the shell fills in ``$VARIABLES`` and does nothing else."""
    return '"' + re.sub(r'(["\\`]|\$(?=\())', r"\\\1", text) + '"'

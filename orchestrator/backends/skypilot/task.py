"""Render a job as a SkyPilot task file: its machine, the files copied there, and its program."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from orchestrator.backends.script import Setting
from orchestrator.backends.setup_lines import visibly_failing
from orchestrator.config.profiles import Profile
from orchestrator.config.task_packages import TaskPackages
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.formatting import count
from orchestrator.core.machine.installation import (
    DISTRIBUTION,
    IN_A_CLONE,
    constrained_version,
    installed_version,
)
from orchestrator.core.machine.installation import requirements as declared
from orchestrator.core.machine.s3 import is_bucket
from orchestrator.core.types import Job
from orchestrator.core.units import megabytes, seconds
from orchestrator.rundir import SweepDir
from orchestrator.rundir.copies.parcel import RESULTS, parcel

# The default Python environment on an instance.
_ENVIRONMENT = "~/.orchestrate/env"
# Created when a job begins on an instance: from then on SkyPilot terminates the instance.
_BEGUN = "/var/tmp/orchestrate-job-begun"  # noqa: S108 (on the instance, and of no use to others)
_SCRIPTS = "~/.sky/sky_app ~/.sky/sky_app/* /tmp/sky_app_* /tmp/sky_setup_* /tmp/sky_task_*"
# Of a line of the profile's set-up, and not within a file that it sources.
_ENDS_WITH_A_FAILURE = (
    'trap \'code=$? line=$BASH_COMMAND; [ -n "${BASH_SOURCE[1]-}" ] || '
    '{ was=$(sed -n "${LINENO}s/.* #: //p" "$0" 2>/dev/null); '
    'echo "set-up failed: ${was:-$line}: exit code $code" >&2; exit "$code"; }\' ERR'
)
# Seconds; a launch takes minutes, plus the time to copy its files.
_LEAST_LAUNCH_S = 3600
# On Slurm SkyPilot passes variables in the arguments of processes, which every user of a node can read.
_SLURM = "slurm"
_ANY = "*"
# In a job's parcel: its secret for the agents.
SECRET_FILE = ".agents-secret"  # noqa: S105 (its name)
_PREFIX = "orc"
_LONGEST_NAME = 24


def cluster_name(sweep: SweepDir, token: str) -> str:
    """Return the name of a job's instance, unique to this sweep, folder and machine."""
    owner = f"{socket.gethostname()}:{sweep.path.absolute()}"
    return f"{cluster_prefix(sweep.name)}-{token}-{hashlib.sha256(owner.encode()).hexdigest()[:6]}"


def cluster_prefix(sweep_name: str) -> str:
    """Return the common prefix of the names of a sweep's instances."""
    slug = re.sub(r"[^a-z0-9]+", "-", sweep_name.lower()).strip("-")[:_LONGEST_NAME].rstrip("-")
    return f"{_PREFIX}-{slug or 'sweep'}"


def is_ours(cluster: str) -> bool:
    """Return whether a cluster has the name of an instance started by this program."""
    return re.fullmatch(rf"{_PREFIX}-[a-z0-9-]+-\d{{4,}}-\d{{4,}}-[0-9a-f]{{6}}", cluster) is not None


def task_file(job: Job, setting: Setting, profile: Profile) -> str:
    """Return the complete task file, valid for plain `sky launch`."""
    import yaml

    sweep = setting.sweep_dir
    name = cluster_name(sweep, job.token)
    task: dict[str, Any] = {
        "name": job.token,
        "num_nodes": job.resources.nodes if job.resources.nodes > 1 else None,
        "resources": _resources(profile),
        "workdir": str(parcel(sweep, job.token)),
        "file_mounts": dict(profile.file_mounts),
        "envs": dict(profile.environment),
        "secrets": dict.fromkeys(secret_names(profile)),
        "setup": _lines(_setup(profile, setting.tasks_need)),
        "run": _lines(_run(job, setting, profile)),
    }
    task = {key: value for key, value in task.items() if value not in ({}, "", None)}
    head = f"# {count(len(job.run_ids), 'run')} of sweep {sweep.name}, up to {job.slots} at once.\n"
    head += f"# By hand: sky launch --cluster {name} FILE\n"
    for command in boot_commands(profile):
        head += f"# Boot command on machines of AWS: {command}\n"
    return head + yaml.dump(task, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=10_000)


def boot_commands(profile: Profile) -> list[str]:
    """Return the commands that an instance runs at boot: power off later unless a job has begun.

    SkyPilot sets its own timer only after all files are copied; if the launching machine dies before, there
    is none. Each command must be valid as an unquoted line of YAML.
    """
    if not _has_boot_commands(profile):
        return []
    limit = max(seconds(profile.hold), _LEAST_LAUNCH_S)
    return [f"systemd-run --on-active={limit} sh -c 'test -e {_BEGUN} || poweroff'"]


def _has_boot_commands(profile: Profile) -> bool:
    """Return whether the machine may be one of AWS, where a job can leave its mark. Containers cannot."""
    return _cloud(profile) in ("aws", _ANY) and not (profile.image or "").startswith("docker:")


def machine_text(profile: Profile) -> str:
    """Return the smallest task file for the profile's machine, to look up its price."""
    import yaml

    text: str = yaml.safe_dump({"resources": _resources(profile), "run": "true"}, sort_keys=False)
    return text


def secret_names(profile: Profile) -> list[str]:
    """Return the profile's secrets that are set here, passed to jobs as SkyPilot secrets."""
    return [name for name in profile.secrets if os.environ.get(name)]


def refuse_shown_secrets(profile: Profile, enabled: Callable[[], Collection[str]] = tuple) -> None:
    """Raise :class:`OrchestrateError` if secrets that are set here would be shown to other users there.

    ``enabled``: the clouds in lower case of which SkyPilot chooses one for a profile that names none.
    """
    names, cloud = secret_names(profile), _cloud(profile)
    if not names or (cloud != _SLURM and (cloud != _ANY or _SLURM not in enabled())):
        return
    where = f"a node of {profile.infra}" if cloud == _SLURM else "a node of Slurm, which SkyPilot may choose,"
    named = "name a cloud as `infra:`, or " if cloud == _ANY else ""
    raise OrchestrateError(
        f"{', '.join(names)}: every user of {where} could read it, as SkyPilot passes "
        f"variables there in the arguments of processes",
        hint=f"{named}`unset {' '.join(names)}` here, or `secrets: []` in {profile.name}: W&B's logs are "
        f"uploaded from here (`orchestrate sync`); or have the program read a file of mode 0600 there",
    )


def _cloud(profile: Profile) -> str:
    return (profile.infra or _ANY).partition("/")[0].lower()


def _resources(profile: Profile) -> dict[str, Any]:
    asked = {
        "infra": profile.infra,
        "accelerators": profile.accelerators,
        "instance_type": profile.instance_type,
        "cpus": f"{profile.cpus_per_task}+" if profile.cpus_per_task else None,
        "memory": f"{-(-megabytes(profile.mem) // 1024)}+" if profile.mem and profile.mem != "0" else None,
        "disk_size": profile.disk,
        "image_id": profile.image,
        "use_spot": profile.spot or None,
        # An open login must not keep an idle instance.
        "autostop": {"idle_minutes": profile.idle_minutes, "down": True, "wait_for": "jobs"},
    }
    return {key: value for key, value in asked.items() if value is not None}


def _setup(profile: Profile, tasks_need: Sequence[TaskPackages]) -> Iterator[str]:
    if profile.setup or profile.python is not None:
        if profile.setup:
            yield from _begin_lines(profile)
            yield _ENDS_WITH_A_FAILURE
        yield from visibly_failing(profile.setup)
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield from _begin_lines(profile)
    yield "set -e"
    yield 'export PATH="$HOME/.local/bin:$PATH"'
    yield "command -v uv >/dev/null || python3 -m pip install --quiet --user uv"
    yield f"[ -x {_ENVIRONMENT}/bin/python ] || uv venv --quiet --python {version} {_ENVIRONMENT}"
    wanted = " ".join(map(shlex.quote, [*requirements(), *_for_store(profile)]))
    yield f"uv pip install --quiet --python {_ENVIRONMENT}/bin/python {wanted}"
    for needs in tasks_need:
        yield from _install_for_tasks(needs)


def _install_for_tasks(needs: TaskPackages) -> Iterator[str]:
    """Yield shell lines that install what tasks need; Debian's packages only where their libraries lack."""
    if needs.install:
        wanted = " ".join(shlex.quote(_at_own_version(name)) for name in needs.install)
        yield f"uv pip install --quiet --python {_ENVIRONMENT}/bin/python --no-deps {wanted}"
    if needs.libraries:
        load = f"import ctypes; [ctypes.CDLL(name) for name in {tuple(needs.libraries)}]"
        yield f"if ! {_ENVIRONMENT}/bin/python -c {shlex.quote(load)} 2>/dev/null; then"
        yield "  root=$(command -v sudo || :)"
        yield "  $root apt-get -qq update"
        packages = " ".join(map(shlex.quote, needs.libraries.values()))
        yield f"  $root apt-get -qq install --yes --no-install-recommends {packages} >/dev/null"
        yield "fi"


def requirements() -> list[str]:
    """Return the packages that a worker imports, at the versions of this environment for equal results."""
    if not (needed := declared("train")):
        raise OrchestrateError(
            f"unknown packages for an instance: {DISTRIBUTION} is not installed for {sys.executable}",
            hint=f"in a clone of this program: {IN_A_CLONE.format(extra='train')}",
        )
    return sorted(map(_at_own_version, needed))


def _at_own_version(requirement: str) -> str:
    """Return a requirement at the version of this environment, else at that of the constraints, if known."""
    from packaging.requirements import Requirement

    one = Requirement(requirement)
    version = installed_version(one.name) or constrained_version(one.name)
    if not version:
        return f"{one.name}{one.specifier}"
    extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
    return f"{one.name}{extras}=={version.partition('+')[0]}"  # "+cpu" is for this machine


def _for_store(profile: Profile) -> list[str]:
    """Return the client package of a store, if it needs one."""
    return ["boto3"] if profile.store is not None and is_bucket(profile.store) else []


def _run(job: Job, setting: Setting, profile: Profile) -> Iterator[str]:
    """Yield shell lines that start the worker with the same folder and code as here."""
    code, sweep = setting.code, setting.sweep_dir
    kept = f"{RESULTS}/{sweep.name}/code/{code.id}"
    yield from _begin_lines(profile)
    yield "set -e"
    yield "here=$(pwd -P)"
    paths = ":".join(f'"$here"/{shlex.quote(f"{kept}/{path}")}' for path in _copied_python_path(setting))
    yield f'export PYTHONPATH={paths} ORCHESTRATE_SUBMIT_DIR="$here"'
    if code.cwd.is_relative_to(code.path):
        start = shlex.quote(f"{kept}/{code.cwd.relative_to(code.path)}")
        yield f"mkdir -p {start}"  # a folder without files is not sent
        yield f"cd {start}"
    if job.resources.nodes > 1:
        agent = f"{_python(profile)} -P -m {code.entries['node']}"
        yield f'secret=$(cat "$here"/{SECRET_FILE})'
        yield from _agent_lines(agent, _port(cluster_name(sweep, job.token)))
    argv = ["-P", "-m", code.entries["instance"]]
    rest = [sweep.name, job.token, "--hold", str(seconds(profile.hold))]
    if profile.store is not None:
        rest += ["--store", profile.store]
    if names := secret_names(profile):
        rest += ["--secrets", *names]
    yield f'exec {_python(profile)} {shlex.join(argv)} "$here/{RESULTS}" {shlex.join(rest)}'


def new_secret() -> str:
    """Return a secret for the worker and the agents of one job on several nodes."""
    return secrets.token_hex(32)


def _port(cluster: str) -> int:
    """Return where the worker of an instance listens for agents, below the ports of outgoing connections."""
    return 20_000 + int(hashlib.sha256(cluster.encode()).hexdigest(), 16) % 10_000


def _agent_lines(agent: str, port: int) -> Iterator[str]:
    """Yield shell lines that start an agent on each node but the first, for the worker there."""
    listens = f'"{port}:$secret"'
    yield 'if [ "${SKYPILOT_NODE_RANK:-0}" != 0 ]; then'
    yield '  first=$(printf "%s\\n" "$SKYPILOT_NODE_IPS" | head -n 1)'
    yield f'  ORCHESTRATE_WORKER="$first":{listens} exec {agent}'
    yield "fi"
    yield f"export ORCHESTRATE_AGENTS_AT={listens}"


def _begin_lines(profile: Profile) -> Iterator[str]:
    """Yield shell lines that mark the job's begin, and hide secrets from other users and the shell history.

    SkyPilot writes secrets into the scripts that set up and start a job, and interactive shells read those.
    """
    if _has_boot_commands(profile):
        yield f"touch {_BEGUN}"
    if secret_names(profile):
        yield "unset HISTFILE"
        yield f"chmod -f go-rwx {_SCRIPTS} 2>/dev/null || :"


def _copied_python_path(setting: Setting) -> list[str]:
    """Return the PYTHONPATH folders that lie in the copied code, relative to it."""
    code = setting.code
    return [str(path.relative_to(code.path)) for path in code.python_path if path.is_relative_to(code.path)]


def _python(profile: Profile) -> str:
    words = profile.python or ((f"{_ENVIRONMENT}/bin/python",) if not profile.setup else ("python3",))
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quote a word for a shell; a leading ``~/`` becomes the home on the instance."""
    return f'"$HOME"{shlex.quote(word[1:])}' if word.startswith("~/") else shlex.quote(word)


def _lines(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _dumper() -> Any:
    """Return a YAML dumper that writes multi-line text as blocks."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper

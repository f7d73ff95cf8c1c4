"""Run a module in a fork of a warm parent: ``warm_client.py SOCKET PYTHON [-P] [-W FILTER] -m MODULE …``.

The fork has this process's folder, environment, umask and open files. Pass signals on to it, end as it ends.
Where a fork would differ from a process of its own (namespaces, limits, packages), become ``PYTHON``.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys

PACKAGES = (
    *("torch", "torchrl", "tensordict", "benchmarl", "vmas", "pettingzoo", "sitecustomize"),
    *("hydra", "omegaconf", "matplotlib", "numpy", "pyarrow", "rich", "scipy", "textual", "typer", "yaml"),
)
_SPOKEN = ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONUNBUFFERED")
MOST_FILES = 64
_LIMITS = sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT")


def world() -> str:
    """What a fork shares with its parent and cannot take over from the process that asked for it."""
    namespaces = [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))]
    limits = [resource.getrlimit(limit) for limit in _LIMITS]
    with open("/proc/self/cgroup") as stream:
        control_group = stream.read()
    affinity = sorted(os.sched_getaffinity(0))
    streams = [os.environ.get(name) for name in _SPOKEN]
    return json.dumps([namespaces, limits, control_group, affinity, os.getuid(), os.getgid(), streams])


def _shadows(folder: str) -> bool:
    """Whether Python would find another version of a loaded package in the folder."""
    names = [name for package in PACKAGES for name in (package, f"{package}.py")]
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def start_of(argv: list[str]) -> int:
    """Where Python's own options end."""
    return next(at for at, word in enumerate(argv) if word in ("-m", "-c"))


def _open_files() -> list[int]:
    found = map(int, os.listdir("/proc/self/fd"))
    return [file for file in found if os.path.exists(f"/proc/self/fd/{file}")]


def _ask(address: str, argv: list[str]) -> socket.socket | None:
    """A connection on which the fork's end will be told."""
    files = _open_files()
    first = [] if "-P" in argv[: start_of(argv)] else [os.getcwd()]
    folders = [*first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if "LD_PRELOAD" in os.environ or any(map(_shadows, folders)):
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        return None
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "argv": argv,
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "umask": umask,
        "path": folders,
        "files": files,
    }
    socket.send_fds(connection, [b"-"], files)
    connection.sendall(json.dumps({**request, "world": world()}).encode() + b"\n")
    return connection


def main() -> None:
    address, python, *argv = sys.argv[1:]
    connection = _ask(address, argv)
    answers = connection.makefile() if connection else None
    pid = int(answers.readline() or 0) if answers else 0
    if answers is None or pid == 0:
        # The name by which this was called is the name by which Python knows itself.
        os.execv(python, [os.environ.pop("WARM_PYTHON"), *argv])
    for name in _FORWARDED:
        signal.signal(getattr(signal, name), lambda number, _: os.kill(pid, number))
    code = int(answers.readline() or -signal.SIGKILL)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()

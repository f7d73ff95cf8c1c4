"""Warm parents for tests: processes with BenchMARL, the commands or the tests loaded; they fork programs.

:func:`start` makes an environment whose ``python`` runs the modules in :data:`MODULES` in such forks, and is
:data:`FRESH` for all else. A fork imports modules of the test anew, and those of this project unless it is a
module of this very checkout. SkyPilot's parts are forks of a third process where ``WARM_SKYPILOT`` names its
socket; it has their HOME, where SkyPilot looks when it is imported. :func:`start_collecting` makes the parent
of pytest-xdist's processes, which imports and rewrites the modules of tests once for all of them.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import itertools
import json
import multiprocessing.spawn
import os
import pkgutil
import resource
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.rundir.code import MODULES as OUR_MODULES
from tests.warm_client import MOST_FILES, start_of, world

# The interpreter itself, for tests of what a process of its own does.
FRESH = os.environ.setdefault("FRESH_PYTHON", sys.executable)
FRESH_PREFIX = Path(FRESH).parents[1]
MODULES = ("jobs.check", "jobs.evaluate", "jobs.probe", "tests.resuming", "benchmarl.run")
COMMANDS_MODULE = "orchestrator.ui.cli"
# And what SkyPilot's API server spawns.
SKYPILOT_MODULES = (
    "orchestrator.backends.skypilot.helper",
    "sky.client.cli.command",
    "sky.server.server",
    "awscli",
)
# What of an environment names its Python or its folder, and starts our commands.
SCRIPTS = ("activate", "orchestrate")
# In the environment: workers too, commands too. The process that is started then only passes signals on.
WORKERS = {"WARM_WORKERS": "1"}
COMMANDS = {"WARM_COMMANDS": "1"}
_ROOT = Path(__file__).parents[1]
# What a grid's ranges are read with, which takes longest to load of all that a command reads.
_PARSER = "hydra.core.override_parser.overrides_parser"
_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
_SHIM = """#!/bin/bash
words=("$@")
while [ "$1" = -P ] || [ "$1" = -W ]; do
  [ "$1" = -P ] || shift
  shift
done
case "$1 $2" in
  {modules}) parent={folder}/benchmarl ;;
  "-m jobs.worker") parent=${{WARM_WORKERS:+{folder}/benchmarl}} ;;
  "-m {commands}") parent=${{WARM_COMMANDS:+{folder}/commands}} ;;
  {skypilot}) parent=$WARM_SKYPILOT ;;
  "-u -c") [[ $3 = "import sys;exec(eval("* ]] && parent={folder}/tests || parent= ;; # pip starts others so
  "-c from multiprocessing.spawn "*) parent=${{IS_SKYPILOT_SERVER:+$WARM_SKYPILOT}} ;;
  *) parent= ;;
esac
[ -z "$parent" ] || WARM_PYTHON=$0 exec {fresh} -I -S {client} "$parent" {fresh} "${{words[@]}}"
exec -a "$0" {fresh} "${{words[@]}}"
"""


def start(folder: Path) -> list[subprocess.Popen[bytes]]:
    """Make the environment in ``folder``; each process ends with its standard input."""
    (folder / "bin").mkdir(parents=True)
    for path in FRESH_PREFIX.iterdir():
        if path.name != "bin":
            (folder / path.name).symlink_to(path)
    for path in (FRESH_PREFIX / "bin").iterdir():
        if path.name in SCRIPTS:
            _copy(path, folder)
        elif not path.name.startswith("python"):
            (folder / "bin" / path.name).symlink_to(path)
    words = {"fresh": FRESH, "client": Path(__file__).with_name("warm_client.py"), "folder": folder}
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    for name, modules in (("modules", MODULES), ("skypilot", SKYPILOT_MODULES)):
        quoted[name] = " | ".join(f'"-m {module}"' for module in modules)
    python = folder / "bin" / "python"
    python.write_text(_SHIM.format(commands=COMMANDS_MODULE, **quoted))
    python.chmod(0o755)
    return [start_parent(folder / name, {"HOME": str(folder)}) for name in ("benchmarl", "commands")]


def start_parent(address: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a parent of :data:`_LOADED`, named as its socket is."""
    return subprocess.Popen(
        [FRESH, "-P", "-W", "ignore", __file__, address],
        env={**os.environ, **_ENVIRONMENT, **env, "PYTHONPATH": str(_ROOT)},
        cwd=address.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )


def start_collecting(folder: Path, at: Path, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the parent of pytest-xdist's processes for this command line of pytest; wait until it listens."""
    address = folder / "tests"
    parent = start_parent(address, {"WARM_TESTS": json.dumps([str(at), *arguments])})
    while not address.exists() and parent.poll() is None:
        time.sleep(0.01)
    return parent


def _copy(script: Path, folder: Path) -> None:
    """The script as of the environment in ``folder``."""
    copy = folder / "bin" / script.name
    copy.write_text(script.read_text().replace(str(FRESH_PREFIX), str(folder)))
    shutil.copymode(script, copy)


class _Fork:
    """A fork and the connection of the process that asked for it."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection, self.pid = connection, pid

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def end(self, status: int) -> None:
        with contextlib.suppress(OSError):
            self.connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        self.connection.close()


def _benchmarl() -> Iterator[str]:
    yield from ("benchmarl.experiment", "benchmarl.hydra_config", "pettingzoo", "torchrl.envs", "vmas")
    yield from (_PARSER, "jobs.hydra.composition", "jobs.training.plugins")
    yield from ("jobs.trainers.actor_critic.trainer", "jobs.trainers.command.checking")
    for name in MODULES:  # which are run anew
        sys.modules.pop(name, None)


def _commands() -> Iterator[str]:
    yield from (_PARSER, "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg")
    for module in pkgutil.walk_packages([str(_ROOT / "orchestrator")], "orchestrator."):
        if not module.name.endswith("__main__"):
            yield module.name


def _skypilot() -> Iterator[str]:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield from ("sky.server.server", "sky.client.cli.command")
    resource.setrlimit(resource.RLIMIT_NOFILE, files)  # the server raises it when it is imported
    yield from ("awscli.clidriver", "boto3", "networkx", "pandas", "pulp")
    for name in SKYPILOT_MODULES:  # which are run anew
        sys.modules.pop(name, None)
    lock_type = sys.modules["filelock"].BaseFileLock
    locks = [found for found in gc.get_objects() if issubclass(type(found), lock_type)]
    # A lock refuses to be used in a fork of the process that made it.
    os.register_at_fork(after_in_child=lambda: [setattr(lock, "_creator_pid", os.getpid()) for lock in locks])


def _tests() -> Iterator[str]:
    yield "pytest"
    at, *arguments = json.loads(os.environ["WARM_TESTS"])
    os.chdir(at)
    if sys.modules["pytest"].main([*arguments, "--collect-only", "--capture=no"]):
        os._exit(1)  # a process of its own says what is wrong


_LOADED = {"benchmarl": _benchmarl, "commands": _commands, "skypilot": _skypilot, "tests": _tests}


@functools.cache
def _load(parent: str) -> None:
    for name in _LOADED[parent]():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _serve(address: str) -> dict[str, Any]:
    """Fork for each request; returns in the fork, with its request."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(100)
    woken, waking = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    forks: dict[int, _Fork] = {}
    while True:
        poll = select.poll()
        for number in (0, woken, listener.fileno()):
            poll.register(number, select.POLLIN)
        for fork in forks.values():
            poll.register(fork.connection, 0)
        ready = dict(poll.poll())
        if 0 in ready:
            _end(forks)
        if woken in ready:
            os.read(woken, 1000)
            _reap(forks)
        for fork in forks.values():
            if fork.connection.fileno() in ready:
                fork.kill()
        if listener.fileno() in ready and (request := _fork(listener.accept()[0], forks)):
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for opened in (listener, *(fork.connection for fork in forks.values())):
                opened.close()
            os.close(woken)
            os.close(waking)
            _take(request.pop("received"), request["files"])
            return request


def _end(forks: dict[int, _Fork]) -> NoReturn:
    for fork in forks.values():
        fork.kill()
    os._exit(0)


def _reap(forks: dict[int, _Fork]) -> None:
    while forks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        forks.pop(pid).end(status)


def _take(received: list[int], files: list[int]) -> None:
    """Give open files the numbers that they had."""
    free = max(*received, *files) + 1
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, free) for file in received]
    for file in received:
        os.close(file)
    for file, number in zip(moved, files, strict=True):
        os.dup2(file, number)
        os.close(file)


def _fork(connection: socket.socket, forks: dict[int, _Fork]) -> dict[str, Any] | None:
    """The request, in the fork; in this process ``None``."""
    _, received, _, _ = socket.recv_fds(connection, 1, MOST_FILES)
    request: dict[str, Any] = json.loads(connection.makefile().readline() or "{}")
    if request.get("world") == world():
        _load(Path(sys.argv[1]).name)
        pid = os.fork()
        if pid == 0:
            connection.close()
            return {**request, "received": received}
        with contextlib.suppress(OSError):  # who asked was killed meanwhile: the fork ends at the next poll
            connection.sendall(f"{pid}\n".encode())
        forks[pid] = _Fork(connection, pid)
    else:
        connection.close()
    for file in received:
        os.close(file)
    return None


def _become(request: dict[str, Any]) -> None:
    """Be the process that was asked for, to its end."""
    for number, name in ((1, "stdout"), (2, "stderr")):  # their files are others since the fork
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" or os.isatty(number) else -1
        new = open(number, "w", buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
    os.setsid()
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    options, kind, program, arguments = _split(request["argv"])
    sys.executable = os.environ.pop("WARM_PYTHON")
    multiprocessing.spawn.set_executable(sys.executable)
    os.environ.pop("WARM_COMMANDS", None)
    sys.path[:] = [*request["path"], *(folder for folder in sys.path if folder != str(_ROOT))]
    code = next((folder for folder in request["path"] if _holds_our_code(Path(folder))), _ROOT)
    ours = Path(code).samefile(_ROOT) and not program.startswith("tests.")  # plain BenchMARL has none of ours
    foreign = set() if ours else {"orchestrator", "jobs"}
    if Path(sys.argv[1]).name != "tests":
        foreign.add("tests")
    for name in [name for name in sys.modules if name.split(".")[0] in foreign]:
        del sys.modules[name]
    warnings.resetwarnings()
    warnings.filters[:] = _FILTERS
    warnings._processoptions(options)  # type: ignore[attr-defined]
    sys.warnoptions[:] = options
    try:
        if kind == "-m":
            sys.argv = [program, *arguments]
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [kind, *arguments]
            exec(program, {"__name__": "__main__"})
    except SystemExit as left:
        if not isinstance(left.code, int | None):
            raise
        _leave(left.code or 0)
    _leave(0)


def _holds_our_code(place: Path) -> bool:
    return place.name == OUR_MODULES or (place / "orchestrator").is_dir()


def _leave(code: int) -> None:
    """End as a process does, without freeing each object of the parent first: that would copy its memory."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120  # as Python says it
    os._exit(code)


def _split(argv: list[str]) -> tuple[list[str], str, str, list[str]]:
    """Filters of warnings, of the environment and of ``-W``; ``-m`` or ``-c``, what to run, its arguments."""
    at = start_of(argv)
    own = [filter_ for option, filter_ in itertools.pairwise(argv[:at]) if option == "-W"]
    filters = [*filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")), *own]
    return filters, argv[at], argv[at + 1], argv[at + 2 :]


if __name__ == "__main__":
    _FILTERS = warnings.filters[1:]  # without this process's own -W
    sys.executable = str(Path(sys.argv[1]).with_name("bin") / "python")  # a default of some functions
    _become(_serve(sys.argv[1]))

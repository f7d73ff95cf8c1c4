"""The processes that a test cluster consists of: whether they can run here, how they start and end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers import children, kill

# Programs that have to be there; tests/packages.sh has their packages.
PROGRAMS = (
    *("munged", "mariadbd", "mariadb-install-db", "my_print_defaults"),
    *("slurmdbd", "slurmctld", "slurmd", "sbatch", "nsenter"),
)

BOOT = 60.0  # seconds that one part of the cluster may take to come up on a loaded machine


class ClusterError(Exception):
    """The cluster cannot run here, or a part of it did not do what it was told."""


def search_path() -> str:
    """PATH with the folders where Debian puts daemons, which an ordinary user's PATH lacks."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def require_parts() -> None:
    """Refuse, with what to do, where the cluster cannot run."""
    missing = [program for program in PROGRAMS if not shutil.which(program, path=search_path())]
    if missing:
        raise ClusterError(
            f"the test cluster needs {', '.join(missing)}, not found on PATH. On Debian and Ubuntu: "
            "tests/packages.sh install"
        )
    if os.geteuid() != 0:
        raise ClusterError(
            f"the test cluster's daemons and namespaces need root, and this is user {os.geteuid()}. Run this "
            "as root (in a container, say), or leave these tests out: make test ARGS=\"-m 'not slurm'\""
        )


@dataclass
class Daemons:
    """Programs that live in the cluster's folder and die with the process that started them."""

    folder: Path
    env: Mapping[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(
        self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program under this name; what it writes goes to NAME.out."""
        with open(self.folder / f"{name}.out", "ab") as output:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, argv)],
                env={"PATH": search_path(), "HOME": str(self.folder), **self.env, **(env or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def runs(self, name: str) -> bool:
        return name in self.processes and self.processes[name].poll() is None

    def end(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)
        self.processes[name].wait(BOOT)

    def end_all(self) -> None:
        """The last started first, at once and without their consent."""
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()
        self.processes.clear()

    def wait_listening(self, name: str, address: Path | int) -> None:
        """Wait until the program takes connections at this socket or port."""

        def listens() -> bool:
            if not self.runs(name):
                code = self.processes[name].returncode
                raise ClusterError(f"{name} ended with exit {code}:\n{self.tails()}")
            unix = isinstance(address, Path)
            with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as sock:
                return sock.connect_ex(str(address) if unix else ("127.0.0.1", address)) == 0

        self.wait(listens, BOOT, f"{name} to listen at {address}")

    def wait(self, predicate: Callable[[], Any], timeout: float, what: str) -> None:
        """Poll until ``predicate`` is true; `ClusterError` with the logs' ends after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not predicate():
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout} s in vain for {what}:\n{self.tails()}")
            time.sleep(0.05)

    def tails(self, lines: int = 8) -> str:
        """The last lines of every log."""
        texts = {path.name: path.read_text(errors="replace") for path in sorted(self.folder.glob("*.out"))}
        return "\n".join(
            "\n".join([f"--- {name}", *text.splitlines()[-lines:]]) for name, text in texts.items()
        )


@dataclass
class Node:
    """A node that is switched on: namespaces with a host name and a boot id of their own."""

    name: str
    holder: subprocess.Popen[bytes]  # unshare; its only child is the node's first process
    init: int  # that process, as this machine numbers it
    slurmd: subprocess.Popen[bytes] | None = None  # nsenter, which ends with slurmd

    @classmethod
    def switch_on(cls, daemons: Daemons, name: str) -> Node:
        folder = daemons.folder
        boot_id, ready = folder / f"{name}.boot_id", folder / f"{name}.ready"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        ready.unlink(missing_ok=True)
        (folder / f"spool.{name}").mkdir(exist_ok=True)
        unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts"]
        init = [sys.executable, "-I", "-S", Path(__file__).with_name("node.py")]
        holder = daemons.start(f"node.{name}", [*unshare, *init, name, boot_id, folder / "etc", ready])
        daemons.wait(ready.exists, BOOT, f"node {name} to be on")
        return cls(name, holder, children(holder.pid)[0])

    def switch_off(self) -> None:
        """End every process of the node, as a power cut does."""
        kill(self.init, signal.SIGKILL)
        self.holder.wait()
        if self.slurmd is not None:
            self.slurmd.wait()

    def start_slurmd(self, daemons: Daemons) -> None:
        enter = ["nsenter", f"--target={self.init}", "--pid", "--mount", "--uts", "--"]
        self.slurmd = daemons.start(f"slurmd.{self.name}", [*enter, "slurmd", "-D", "-N", self.name])

    def wait_slurmd(self) -> None:
        """Wait until slurmd has ended."""
        assert self.slurmd is not None
        self.slurmd.wait(BOOT)

    def kill(self, names: set[str]) -> None:
        """SIGKILL for the node's processes with these names."""
        for pid, name in self.processes().items():
            if name in names:
                kill(pid, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """Numbers (this machine's) and names of everything on the node but its first process."""
        namespace = os.readlink(f"/proc/{self.init}/ns/pid")
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.init:
                try:
                    if os.readlink(entry / "ns/pid") == namespace:
                        found[int(entry.name)] = (entry / "comm").read_text().strip()
                except OSError:
                    pass  # it ended while we looked
        return found

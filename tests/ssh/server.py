"""A real sshd on loopback: the way from a "laptop", with its own HOME, to a "cluster" with another one.

ssh reads a user's configuration from the home that the system knows, whatever HOME says. So the laptop's
`ssh` is a program on PATH that starts the real one with the laptop's own configuration.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.helpers import free_port, wait_for

ALIAS = "cluster"


class Server:
    """sshd for the user of the tests. ``home`` is the cluster's HOME, ``laptop`` that of the laptop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.laptop = folder / "cluster", folder / "laptop"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        for path in (self.home, self.laptop / ".ssh", self.bin):
            path.mkdir(parents=True, mode=0o700)
        self.new_host_key()
        _keygen(self._key)
        shutil.copy(self._key.with_suffix(".pub"), folder / "authorized_keys")
        self._put_program()

    @property
    def bin(self) -> Path:
        """To be first on the laptop's PATH."""
        return self.folder / "bin"

    @property
    def env(self) -> dict[str, str]:
        """The laptop's environment, beside what a process has anyway."""
        return {"HOME": str(self.laptop), "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def start(self, env: dict[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        """``env`` is what sessions have besides HOME and PATH; ``prefix`` a program that becomes sshd."""
        self.port = self.port or free_port()
        sessions = {"HOME": str(self.home), "PATH": os.environ["PATH"], **(env or {})}
        config = self.folder / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self._host_key}\n"
            f"PidFile none\nAuthorizedKeysFile {self.folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\nMaxStartups 100\n"
            f"SetEnv {' '.join(f'{name}={value}' for name, value in sessions.items())}\n"
            # A session begins in the HOME that the system knows, not in the one of this cluster.
            'ForceCommand cd; [ -z "$SSH_ORIGINAL_COMMAND" ] && exec sh -l; eval "$SSH_ORIGINAL_COMMAND"\n'
        )
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd wants its jail to be
        log = open(self.folder / "sshd.log", "ab")  # noqa: SIM115 (sshd's for its life)
        argv = [*prefix, shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", str(config)]
        self._process = subprocess.Popen(argv, stdout=log, stderr=log)
        log.close()
        wait_for(self._answers, what=f"sshd ({self.folder}/sshd.log)")
        self._trust()

    def stop(self) -> None:
        """End sshd and everybody's connections, as when a machine goes away."""
        if self._process is not None:
            self.cut()
            self._process.terminate()
            self._process.wait()
            self._process = None

    def sessions(self) -> list[int]:
        """The processes of all connections that there are now."""
        assert self._process is not None
        return _children(self._process.pid)

    def cut(self) -> int:
        """End all connections that there are now; how many. New ones can be made."""
        sessions = self.sessions()
        for pid in sessions:
            for one in (*_children(pid), pid):  # the unprivileged half, if there is one, and the other
                _kill(one)
        return len(sessions)

    def new_host_key(self) -> None:
        """As when another machine answers; takes effect at the next start."""
        self._host_key.unlink(missing_ok=True)
        _keygen(self._host_key)

    def banner(self, text: str) -> None:
        """What the cluster's .bashrc prints from now on, in every session."""
        (self.home / ".bashrc").write_text(f"cat <<'TEXT'\n{text}\nTEXT\n")

    @property
    def _host_key(self) -> Path:
        return self.folder / "host_key"

    @property
    def _key(self) -> Path:
        return self.laptop / ".ssh" / "id_ed25519"

    @property
    def _known_hosts(self) -> Path:
        return self.laptop / ".ssh" / "known_hosts"

    def _put_program(self) -> None:
        program = self.bin / "ssh"
        real = shutil.which("ssh")
        assert real is not None
        program.write_text(f'#!/bin/sh\nexec {real} -F {self.laptop}/.ssh/config "$@"\n')
        program.chmod(0o755)

    def _trust(self) -> None:
        """The laptop knows the alias, and the key that the machine had when it was first seen."""
        config = self.laptop / ".ssh" / "config"
        config.write_text(
            f"Host {ALIAS}\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {self._key}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self._known_hosts}\n"
        )
        if not self._known_hosts.exists():
            kind, key, *_ = self._host_key.with_suffix(".pub").read_text().split()
            self._known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "sshd.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass

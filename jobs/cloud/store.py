"""Stores for the files of a job on a cloud instance: a host behind ssh, a mounted disk, a bucket."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from jobs.cloud.bucket import Bucket
from orchestrator.core.errors import OrchestrateError, StorageError
from orchestrator.core.machine.s3 import is_bucket, parse_bucket

_REMOTE = re.compile(r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.@+-]*):(?P<path>.+)", re.DOTALL)
_EXPECTED = "user@host:path, /a/mounted/folder or s3://bucket/prefix"

# A link or a disk that lets nothing through for so many seconds is given up, until the next attempt.
_SILENCE_S = 60
_SSH = (
    "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ConnectTimeout=20 "
    "-o ServerAliveInterval=10 -o ServerAliveCountMax=3"
)
# Rsync's folder for incomplete files; readers of results trees skip hidden names.
_INCOMING = ".incoming"
_LONGEST_LINE = 200
# Words in rsync's errors → the reason of a refusal.
_REASONS = (
    ("no space left", "it is full"),
    ("quota exceeded", "its quota is used up"),
    ("read-only file system", "it is read-only"),
    ("permission denied (publickey", "its machine does not let this one in"),
    ("permission denied", "permission denied"),
    ("host key verification failed", "its machine's host key is not the one that is known"),
    ("could not resolve hostname", "no machine has its name"),
    ("command not found", "its machine has no rsync"),
    ("rsync: not found", "its machine has no rsync"),
)
_CUT = (10, 12, 30, 35, 255)
# Of files that were there when rsync began.
_VANISHED = 24


class Store(Protocol):
    """Keeps files under their names in a results tree, each whole or not at all.

    Every method raises :class:`StorageError`, in one line, unless it could do all of it.
    """

    def put(self, results: Path, names: Sequence[str]) -> None:
        """Store these files of the tree ``results``, replacing files of the same names.

        A file that is gone by now is left out.
        """

    def remove(self, names: Sequence[str]) -> None:
        """Remove these files if they are there."""

    def names(self, folders: Sequence[str]) -> list[str]:
        """List all files in these folders."""

    def get(self, name: str) -> bytes | None:
        """Return the content of a file; ``None`` if there is no such file."""

    def stop(self) -> None:
        """End an operation that another thread has under way."""


def open_store(where: str) -> Store:
    """Return the store at ``where``, without connecting to it. Raises :class:`OrchestrateError`."""
    if is_bucket(where):
        return Bucket(parse_bucket(where))
    if where.startswith("/"):
        return RsyncStore(where.rstrip("/") or "/")
    if match := _REMOTE.fullmatch(where):
        return RsyncStore(match["path"].removeprefix("~/").rstrip("/") or "/", match["host"])
    raise OrchestrateError(
        f"found {where!r}, expected {_EXPECTED}", hint="a folder of this machine begins with a slash"
    )


class RsyncStore:
    """A folder of this machine or of one behind ssh; it needs rsync, and no hard links."""

    def __init__(self, folder: str, host: str | None = None) -> None:
        self._folder, self._host = folder, host
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared: set[str] = set()

    def put(self, results: Path, names: Sequence[str]) -> None:
        for sweep, own in _by_sweep(names).items():
            self._prepare(sweep)
            argv = ["--ignore-missing-args", f"--temp-dir={_INCOMING}"]
            self._run([*argv, f"{results / sweep}/", self._there(sweep)], own)

    def remove(self, names: Sequence[str]) -> None:
        for sweep, own in _by_sweep(names).items():
            with tempfile.TemporaryDirectory() as nothing:
                self._run(["--delete-missing-args", f"{nothing}/", self._there(sweep)], own)

    def names(self, folders: Sequence[str]) -> list[str]:
        found = []
        for sweep, own in _by_sweep(folders).items():
            self._prepare(sweep)
            with tempfile.TemporaryDirectory() as nothing:
                argv = ["--recursive", "--dry-run", "--ignore-missing-args", "--out-format=%i %n"]
                lines = self._run([*argv, self._there(sweep), f"{nothing}/"], own).split(b"\n")
            names = (line.split(b" ", 1)[1] for line in lines if line[1:2] == b"f")
            found += [f"{sweep}/{os.fsdecode(name)}" for name in names]
        return found

    def get(self, name: str) -> bytes | None:
        ((sweep, own),) = _by_sweep([name]).items()
        with tempfile.TemporaryDirectory() as here:
            self._run(["--ignore-missing-args", self._there(sweep), f"{here}/"], own)
            path = Path(here, *own)
            return path.read_bytes() if path.is_file() else None

    def stop(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    def _prepare(self, sweep: str) -> None:
        """Make the sweep's folder there, with the folder for incomplete files in it."""
        if sweep in self._prepared:
            return
        with tempfile.TemporaryDirectory() as nothing:
            (Path(nothing) / _INCOMING).mkdir()
            self._run(["--mkpath", "--dirs", f"{nothing}/", self._there(sweep)])
        self._prepared.add(sweep)

    def _there(self, sweep: str) -> str:
        path = f"{self._folder.rstrip('/')}/{sweep}/"
        return f"{self._host}:{path}" if self._host else path

    def _run(self, options: Sequence[str], names: Sequence[str] | None = None) -> bytes:
        """Run rsync; return its output."""
        argv = ["rsync", "--times", "--omit-dir-times", "-s", "--8-bit-output", f"--timeout={_SILENCE_S}"]
        if self._host is not None:
            argv.append(f"--rsh={_SSH}")
        if names is not None:
            argv += ["--files-from=-", "--from0"]
        *rest, source, to = options
        given = b"".join(os.fsencode(name) + b"\0" for name in names or ())
        env = {key: value for key, value in os.environ.items() if not key.startswith("RSYNC_")}
        try:
            process = subprocess.Popen(
                [*argv, *rest, "--", source, to],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**env, "LC_ALL": "C"},
                start_new_session=True,  # so that stop() ends its ssh, too
            )
        except FileNotFoundError:
            raise StorageError("no program 'rsync' on this machine's PATH") from None
        self._process = process
        with process:
            printed, said = process.communicate(given)
        self._process = None
        if process.returncode not in (0, _VANISHED) and not _only_times(said):
            raise _refusal(process.returncode, said.decode(errors="replace"))
        return printed


def _only_times(said: bytes) -> bool:
    """Whether rsync failed only to date files, as on some mounted buckets."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(b"rsync error")]
    return bool(lines) and all(b"failed to set times on" in line for line in lines)


def _refusal(code: int, said: str) -> StorageError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    line = next((line for line in lines if not line.startswith("rsync error")), f"rsync ended with {code}")
    shown = "".join(char if char.isprintable() else "?" for char in line)[:_LONGEST_LINE]
    words = said.lower()
    reason = next((reason for sign, reason in _REASONS if sign in words), None)
    if reason is None:
        reason = "it cannot be reached" if code in _CUT else "rsync failed"
    return StorageError(f"{reason} ({shown})")


def _by_sweep(names: Sequence[str]) -> dict[str, list[str]]:
    """Group names by their sweep, relative to its folder."""
    found: dict[str, list[str]] = {}
    for name in names:
        sweep, _, rest = name.partition("/")
        found.setdefault(sweep, []).append(rest)
    return found

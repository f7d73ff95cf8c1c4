"""One machine behind ssh, over one shared connection: whoever has to log in with a token does it once.

All that ssh knows stays ssh's: names, users, ports, keys and jump hosts come from the user's own
configuration, so an alias works as it does by hand.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shlex
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.core.errors import HostError, UnreachableError

# How long the shared connection waits for its next use.
KEPT_S = 600
_CONNECT_S = 20
# A link that lets nothing through any more is given up after three times this.
_ALIVE_S = 10
# How long a command may take that answers at once where all is well.
PATIENCE_S = 60.0
# The process that holds the shared connection is this machine's own, and answers at once, or not any more.
_CONTROL_S = 5.0
_TURN_S = 0.05

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,250}")
# The path of a socket fits 108 bytes, and ssh adds 17 to it while it makes one.
_LONGEST_SOCKET = 90
_AGAIN = "nothing is lost; try again when the connection is back"
# ssh's own exit code, of no command on the other side.
SSH_FAILED = 255
_LONGEST_COMPLAINT = 200


@dataclass(frozen=True)
class RemoteAnswer:
    """What a command on the other side said; what a login shell printed before it is left out."""

    code: int
    output: str
    errors: str


class Host:
    """A machine, by the name that ssh knows it by: an alias or ``user@host``.

    Every method raises :class:`HostError` where ssh cannot log in, and :class:`UnreachableError` where it can
    not be told what is on the other side now: nothing follows from that for what runs there.
    """

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise HostError(
                f"{name!r} cannot name a machine, expected an alias of ~/.ssh/config or user@host",
                hint="give ports, keys and jump hosts a `Host` entry in ~/.ssh/config, and write its name",
            )
        self.name = name

    @property
    def is_open(self) -> bool:
        """Whether the shared connection is there."""
        return self._control("check").returncode == 0

    def connect(self, *, ask: bool = True) -> bool:
        """Open the shared connection; ``True`` if it was open. With ``ask``, ssh may ask at a terminal.

        Of several commands that need it at once, one logs in, and the others wait and share.
        """
        with self._turn():
            if self.is_open:
                return True
            self._log_in(ask and sys.stdin.isatty())
            return False

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Of all who may log in, one at a time."""
        deadline = time.monotonic() + PATIENCE_S
        with open(self._socket().with_suffix(".lock"), "ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise UnreachableError(
                            f"{self.name}: another command has not finished its login for {PATIENCE_S:.0f} s",
                            hint="answer what ssh asks there, or end that command",
                        ) from None
                    time.sleep(_TURN_S)
            yield

    def _log_in(self, ask: bool) -> None:
        """First without a question, whose failure has words that can be read; then as by hand, if need be."""
        self._socket().unlink(missing_ok=True)  # of one that did not answer
        argv = ["ssh", "-fN", "-o", "ControlMaster=yes", "-o", f"ControlPersist={KEPT_S}", *_OPTIONS]
        argv += ["-o", f"ControlPath={self._socket()}"]
        # A file, not a pipe: the connection stays, and would keep a pipe open.
        with tempfile.TemporaryFile() as errors:
            try:
                done = subprocess.run(
                    [*argv, "-o", "BatchMode=yes", "--", self.name],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    timeout=PATIENCE_S,
                    check=False,
                    start_new_session=True,  # without a terminal, a jump host's ssh cannot ask either
                )
            except subprocess.TimeoutExpired:
                raise self._no_answer(PATIENCE_S) from None
            errors.seek(0)
            said = errors.read().decode(errors="replace")
        if done.returncode == 0:
            return
        if not (ask and _is_question(said)):
            raise failure(self.name, said)
        # Its errors stay the terminal's: they are what a login with a token explains itself by.
        if subprocess.run([*argv, "--", self.name], stdout=subprocess.DEVNULL, check=False).returncode != 0:
            raise HostError(
                f"{self.name}: ssh could not log in, and says why above",
                hint=f"try it by hand: ssh {self.name}",
            )

    def run(
        self, argv: Sequence[str], input: bytes = b"", *, patience: float = PATIENCE_S, folder: str = ""
    ) -> RemoteAnswer:
        """Run a program there, to its end. ``folder``: where, as :func:`remote_path` understands it.

        A shared connection that turns out to be dead is opened anew, once.
        """
        was_open = self.connect()
        try:
            return self._run(argv, input, patience, folder)
        except UnreachableError as error:
            if not was_open or error.begun:
                raise
            self.connect()
            return self._run(argv, input, patience, folder)

    def _run(self, argv: Sequence[str], input: bytes, patience: float, folder: str) -> RemoteAnswer:
        mark = secrets.token_hex(8)
        try:
            done = subprocess.run(
                [*self.argv(), remote_command(argv, mark, folder)],
                input=input,
                capture_output=True,
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            # The connection stays: others may be at work over it, and ssh itself ends one that is dead.
            raise self._no_answer(patience, begun=True) from None
        output, errors = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        _, begun, answer = output.partition(f"\n{mark}\n")
        if done.returncode == SSH_FAILED:
            raise self.cut() if begun else failure(self.name, errors or "connection closed")
        return RemoteAnswer(done.returncode, answer if begun else "", without_command(errors))

    @contextmanager
    def open(
        self, argv: Sequence[str], *, folder: str = "", errors: IO[bytes] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A program there while the block lasts, with pipes for its stdin and stdout; ended after it.

        What a login shell prints before the program's own output has been read. Its errors, and ssh's, go to
        the file ``errors``; without one they are the caller's.
        """
        self.connect()
        mark = secrets.token_hex(8)
        process = subprocess.Popen(
            [*self.argv(), remote_command(argv, mark, folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while (line := process.stdout.readline()) and line.rstrip(b"\n") != mark.encode():
                pass
            yield process
        finally:
            with suppress(BrokenPipeError):  # what nobody reads any more
                process.stdin.close()
            process.terminate()
            process.wait()
            process.stdout.close()

    def release(self) -> None:
        """Close the shared connection once those who use it now are through."""
        self._control("stop")

    def to_port(self, remote_port: int) -> list[str]:
        """ssh as a way from its stdin and stdout to a port of that machine's loopback."""
        return ["ssh", *self._shared(), "-W", f"127.0.0.1:{remote_port}", "--", self.name]

    def argv(self) -> list[str]:
        """ssh over the shared connection, to be completed by what is to be run."""
        return ["ssh", *self._shared(), "--", self.name]

    def rsync_shell(self) -> str:
        """The same for rsync's ``-e``; it adds the machine itself. :meth:`connect` first."""
        return shlex.join(["ssh", *self._shared()])

    def cut(self) -> UnreachableError:
        """The error for a program that was begun there and ended without an exit code of its own."""
        what = "the connection was cut, or its program there killed, before it had answered"
        return UnreachableError(f"{self.name}: {what}", hint=_AGAIN, begun=True)

    def _no_answer(self, seconds: float, begun: bool = False) -> UnreachableError:
        return UnreachableError(f"{self.name}: no answer within {seconds:.0f} s", hint=_AGAIN, begun=begun)

    def _shared(self) -> list[str]:
        # BatchMode: should the connection be gone, nobody is asked for a password in the middle of things.
        return [
            *_OPTIONS,
            "-o",
            "BatchMode=yes",
            "-o",
            "ControlMaster=no",
            "-o",
            f"ControlPath={self._socket()}",
        ]

    def _control(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        argv = ["ssh", "-O", command, *options, "-o", f"ControlPath={self._socket()}", "--", self.name]
        try:
            return subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_CONTROL_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(
                argv, SSH_FAILED, "", "the shared connection: operation timed out"
            )
        except FileNotFoundError:
            raise HostError("no program 'ssh' on PATH", hint="install OpenSSH's client") from None

    def _socket(self) -> Path:
        # HOME takes part: under another one the same alias may be another machine.
        name = hashlib.sha256(f"{Path.home()}\n{self.name}".encode()).hexdigest()[:16]
        return _socket_folder() / name


# What a person's own configuration may say for sessions at a terminal, and what links need that can be cut.
_SETTINGS = (
    f"ConnectTimeout={_CONNECT_S}",
    f"ServerAliveInterval={_ALIVE_S}",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "LogLevel=INFO",
    "RemoteCommand=none",
    "RequestTTY=no",
)
_OPTIONS = tuple(word for setting in _SETTINGS for word in ("-o", setting))
_READS_OCTAL = 'eval "$(printf %b "$0")"'
_HARMLESS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@+-")

# The exit code of a folder that a variable names which is not there.
NO_VARIABLE = 78
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)


def remote_command(argv: Sequence[str], mark: str, folder: str = "") -> str:
    """The words that the login shell there is given, whichever it is: all it has to do is to start sh.

    Shells differ in what quotes keep, newlines in those of csh for one; so sh reads it from octal numbers.
    """
    where = f'{to_folder(folder)}; cd -- "$folder" && ' if folder else ""
    command = f"printf '\\n%s\\n' {mark}; {where}exec {shlex.join(argv)}"
    coded = "".join(chr(byte) if byte in _HARMLESS else f"\\0{byte:03o}" for byte in os.fsencode(command))
    return f"sh -c '{_READS_OCTAL}' '{coded}'"


def without_command(errors: str) -> str:
    """What was complained of, less a shell's report of how the words of :func:`remote_command` ended."""
    return "".join(line for line in errors.splitlines(keepends=True) if _READS_OCTAL not in line)


def to_folder(path: str) -> str:
    """Commands for sh there: they set ``folder`` to a path, made absolute.

    Variables are those of a login shell, where people set them. One that is unset or empty there ends the
    shell with the code :data:`NO_VARIABLE`, after a line that names it.
    """
    word = remote_path(path)
    absolute = 'case "$folder" in /*) ;; *) folder="$PWD/$folder" ;; esac'
    if not (names := [match[1] or match[2] for match in _VARIABLE.finditer(path)]):
        return f"folder={word}; {absolute}"
    said = "echo '${name} is unset or empty in a login shell there' >&2"
    tests = [f'[ -n "${{{name}-}}" ] || {{ {said.format(name=name)}; false; }}' for name in names]
    login = f"{' && '.join(f'{{ {test}; }}' for test in tests)} && printf '\\n%s' {word}"
    # A login shell may print, and read, before it comes to this.
    found = f"folder=$(bash -lc {shlex.quote(login)} </dev/null) || exit {NO_VARIABLE}"
    return f"{found}; folder=${{folder##*\n}}; {absolute}"


def remote_path(path: str) -> str:
    """A path there as a word for its shell, which fills in ``~/`` and ``$VARIABLES``, and does no more."""
    home = path == "~" or path.startswith("~/")
    if path.startswith("~") and not home:
        raise HostError(
            f"{path}: another user's home is not looked up",
            hint="write the folder out, from / or from ~/; a folder of such a name is ./~NAME",
        )
    quoted = re.sub(r'(?a)(["\\`]|\$(?![A-Za-z_]|\{[A-Za-z_]\w*\}))', r"\\\1", path[1:] if home else path)
    return f'"$HOME{quoted}"' if home else f'"{quoted}"'


def _socket_folder() -> Path:
    """A folder of the user's own for the sockets of shared connections, with a path short enough for them."""
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "orchestrate"
    if len(os.fsencode(folder)) + 17 > _LONGEST_SOCKET:
        folder = Path(tempfile.gettempdir()) / f"orchestrate-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise HostError(
            f"{folder}: found a folder that others can use, expected one of your own for ssh's connections",
            hint=f"remove it, or make it yours alone: chmod 700 {folder}",
        )
    return folder


# What ssh says when it does not get through, and what a user can do about it.
_CUT = (
    "broken pipe",
    "closed by remote host",
    "connection closed",
    "connection refused",
    "connection reset",
    "connection timed out",
    "connection to ",
    "master is dead",
    "mux_client",
    "network is unreachable",
    "no route to host",
    "operation timed out",
    "timeout, server",
)


def _is_cut(errors: str) -> bool:
    return any(words in errors.lower() for words in _CUT)


def _is_question(errors: str) -> bool:
    """Whether ssh, asking nobody, lacked what a person at a terminal can give it."""
    said = errors.lower()
    unknown = "host key verification failed" in said and "identification has changed" not in said
    return unknown or "permission denied" in said


def complaint(errors: str) -> str:
    """The last line of what was complained of, fit for a message; empty if there is none."""
    line = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
    line = "".join(char if char.isprintable() else "?" for char in line)
    return line if len(line) <= _LONGEST_COMPLAINT else line[: _LONGEST_COMPLAINT - 1] + "…"


def failure(name: str, errors: str) -> HostError:
    """The error for what ssh, or rsync through it, complained of."""
    said = errors.lower()
    line = complaint(errors) or "ssh failed"
    if "host identification has changed" in said:
        return HostError(
            f"{name}: its host key is not the one that this machine knows: another machine may answer for it",
            hint=f"ask its administrators; if the change is theirs: ssh-keygen -R {name.rpartition('@')[2]}",
        )
    if "host key verification failed" in said:
        return HostError(
            f"{name}: this machine does not know its host key",
            hint=f"look at it, and accept it once: ssh {name}",
        )
    if "could not resolve hostname" in said:
        return HostError(
            f"{name}: no such machine ({line})",
            hint="correct the name, give it a `Host` entry in ~/.ssh/config, or is a VPN off?",
        )
    if "permission denied" in said or "too many authentication failures" in said:
        return HostError(f"{name}: it does not let you in ({line})", hint=f"log in once by hand: ssh {name}")
    if _is_cut(errors):
        return UnreachableError(f"{name}: cannot be reached ({line})", hint=_AGAIN)
    return HostError(f"{name}: {line}", hint=f"see whether this works: ssh {name} true")

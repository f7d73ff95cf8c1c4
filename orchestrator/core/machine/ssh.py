"""Run programs on a machine behind ssh, over one shared connection, so that a user logs in once.

Names, users, ports, keys and jump hosts come from the user's ssh configuration, so an alias works as it does
by hand.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import IO

from orchestrator.core.errors import HostError, UnreachableError
from orchestrator.core.machine.file_locks import lock
from orchestrator.core.types import CommandAnswer

# Seconds for which the shared connection stays open without use.
KEPT_S = 600
_CONNECT_S = 20
# A dead link is given up after three times this many seconds.
_ALIVE_S = 10
# Time limit in seconds for a command that normally answers at once.
PATIENCE_S = 60.0
# Time limit for the local process that holds the shared connection; a live one answers at once.
_CONTROL_S = 5.0
_TURN_S = 0.05

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,250}")
# A socket's path may have 108 bytes, and ssh appends 17 while it creates one.
_LONGEST_SOCKET = 90
_AGAIN = "nothing is lost; try again when the connection is back"
# ssh's own exit code; commands on the other side have others.
SSH_FAILED = 255
_LONGEST_COMPLAINT = 200


class Host:
    """A machine by its ssh name: an alias or ``user@host``.

    Every method raises :class:`HostError` where ssh cannot log in, and :class:`UnreachableError` without an
    answer; programs there may still run.
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
        """Whether the shared connection is open."""
        return self._control("check").returncode == 0

    def connect(self, *, ask: bool = True) -> bool:
        """Open the shared connection; return True if it was open. With ``ask``, ssh may ask at a terminal.

        Among several commands one logs in, and the others wait and share.
        """
        with self._turn():
            if self.is_open:
                return True
            self._log_in(ask and sys.stdin.isatty())
            return False

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock by which only one command at a time logs in."""
        deadline = time.monotonic() + PATIENCE_S
        with open(self._socket().with_suffix(".lock"), "ab") as file:
            while not lock(file, wait=False):
                if time.monotonic() > deadline:
                    raise UnreachableError(
                        f"{self.name}: another command has not finished its login for {PATIENCE_S:.0f} s",
                        hint="answer what ssh asks there, or end that command",
                    )
                time.sleep(_TURN_S)
            yield

    def _log_in(self, ask: bool) -> None:
        """Log in without questions first, for a readable error; then interactively if allowed and useful."""
        self._socket().unlink(missing_ok=True)  # left by a connection that did not answer
        argv = ["ssh", "-fN", "-o", "ControlMaster=yes", "-o", f"ControlPersist={KEPT_S}", *_OPTIONS]
        argv += ["-o", f"ControlPath={self._socket()}"]
        # A file, not a pipe: the lasting connection would keep a pipe open.
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
        # stderr stays the terminal's: a login with a token explains itself there.
        if subprocess.run([*argv, "--", self.name], stdout=subprocess.DEVNULL, check=False).returncode != 0:
            raise HostError(
                f"{self.name}: ssh could not log in; see its message above",
                hint=f"try it by hand: ssh {self.name}",
            )

    def run(
        self, argv: Sequence[str], input: bytes = b"", *, patience: float = PATIENCE_S, folder: str = ""
    ) -> CommandAnswer:
        """Run a program there to its end, in ``folder`` (see :func:`remote_path`).

        Output of the login shell before it is left out. A dead shared connection is opened anew, once.
        """
        was_open = self.connect()
        try:
            return self._run(argv, input, patience, folder)
        except UnreachableError as error:
            if not was_open or error.begun:
                raise
            self.connect()
            return self._run(argv, input, patience, folder)

    def _run(self, argv: Sequence[str], input: bytes, patience: float, folder: str) -> CommandAnswer:
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
            # The connection stays: others may use it, and ssh itself ends a dead one.
            raise self._no_answer(patience, begun=True) from None
        output, errors = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        _, begun, answer = output.partition(f"\n{mark}\n")
        if done.returncode == SSH_FAILED:
            raise self.cut() if begun else failure(self.name, errors or "connection closed")
        return CommandAnswer(done.returncode, answer if begun else "", without_command(errors))

    @contextmanager
    def open(
        self, argv: Sequence[str], *, folder: str = "", errors: IO[bytes] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program there while the block lasts, with pipes for its stdin and stdout.

        The login shell's own output is already skipped. The program's errors and ssh's go to the file
        ``errors``, by default to the caller's stderr.
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
            with suppress(BrokenPipeError):  # unread input
                process.stdin.close()
            process.terminate()
            process.wait()
            process.stdout.close()

    def release(self) -> None:
        """Close the shared connection after its present users have finished."""
        self._control("stop")

    def to_port(self, remote_port: int) -> list[str]:
        """Return an ssh command that connects its stdin and stdout to a port of that machine's loopback."""
        return ["ssh", *self._shared(), "-W", f"127.0.0.1:{remote_port}", "--", self.name]

    def argv(self) -> list[str]:
        """Return the ssh command over the shared connection, to be followed by a remote command."""
        return ["ssh", *self._shared(), "--", self.name]

    def rsync_shell(self) -> str:
        """Return the same for rsync's ``-e``; rsync adds the machine itself. Call :meth:`connect` first."""
        return shlex.join(["ssh", *self._shared()])

    def cut(self) -> UnreachableError:
        """Return the error for a program that started there and ended without an exit code of its own."""
        what = "the connection was cut, or its program there killed, before it had answered"
        return UnreachableError(f"{self.name}: {what}", hint=_AGAIN, begun=True)

    def _no_answer(self, seconds: float, begun: bool = False) -> UnreachableError:
        return UnreachableError(f"{self.name}: no answer within {seconds:.0f} s", hint=_AGAIN, begun=begun)

    def _shared(self) -> list[str]:
        # BatchMode: after a lost connection no password prompt appears in the middle of other output.
        only = ("BatchMode=yes", "ControlMaster=no", f"ControlPath={self._socket()}")
        return [*_OPTIONS, *(word for setting in only for word in ("-o", setting))]

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


# Overrides of the user's settings for interactive sessions, and timeouts for links that can be cut.
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

# Exit code for a folder with an unset variable.
NO_VARIABLE = 78
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)


def remote_command(argv: Sequence[str], mark: str, folder: str = "") -> str:
    """Return the command line for any login shell there: it only starts sh.

    Shells differ in quoting (newlines in csh, for one), so sh reads its command from octal numbers.
    """
    where = f'{to_folder(folder)}; cd -- "$folder" && ' if folder else ""
    command = f"printf '\\n%s\\n' {mark}; {where}exec {shlex.join(argv)}"
    coded = "".join(chr(byte) if byte in _HARMLESS else f"\\0{byte:03o}" for byte in os.fsencode(command))
    return f"sh -c '{_READS_OCTAL}' '{coded}'"


def without_command(errors: str) -> str:
    """Return the error output without a shell's report about the command of :func:`remote_command`."""
    return "".join(line for line in errors.splitlines(keepends=True) if _READS_OCTAL not in line)


def to_folder(path: str) -> str:
    """Return sh commands that set ``folder`` to an absolute path there.

    Variables are those of a login shell, where users set them. An unset or empty one ends the shell with the
    exit code :data:`NO_VARIABLE`, after a line that names it.
    """
    word = remote_path(path)
    absolute = 'case "$folder" in /*) ;; *) folder="$PWD/$folder" ;; esac'
    if not (names := [match[1] or match[2] for match in _VARIABLE.finditer(path)]):
        return f"folder={word}; {absolute}"
    said = "echo '${name} is unset or empty in a login shell there' >&2"
    tests = [f'[ -n "${{{name}-}}" ] || {{ {said.format(name=name)}; false; }}' for name in names]
    login = f"{' && '.join(f'{{ {test}; }}' for test in tests)} && printf '\\n%s' {word}"
    # A login shell may print, and read, before this command.
    found = f"folder=$(bash -lc {shlex.quote(login)} </dev/null) || exit {NO_VARIABLE}"
    return f"{found}; folder=${{folder##*\n}}; {absolute}"


def remote_path(path: str) -> str:
    """Quote a path for the shell there, which expands ``~/`` and ``$VARIABLES`` and nothing else."""
    home = path == "~" or path.startswith("~/")
    if path.startswith("~") and not home:
        raise HostError(
            f"{path}: another user's home is not looked up",
            hint="write the folder out, from / or from ~/; a folder of such a name is ./~NAME",
        )
    quoted = re.sub(r'(?a)(["\\`]|\$(?![A-Za-z_]|\{[A-Za-z_]\w*\}))', r"\\\1", path[1:] if home else path)
    return f'"$HOME{quoted}"' if home else f'"{quoted}"'


def _socket_folder() -> Path:
    """Return a private folder for the sockets of shared connections, with a path short enough for them."""
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


# Parts of ssh's messages about a lost connection.
_CUT = re.compile(
    "broken pipe|closed by remote host|connection (?:closed|refused|reset|timed out|to )|master is dead"
    "|mux_client|network is unreachable|no route to host|operation timed out|timeout, server"
)


def _is_question(errors: str) -> bool:
    """Return whether ssh failed for lack of an answer that a user at a terminal can give."""
    said = errors.lower()
    unknown = "host key verification failed" in said and "identification has changed" not in said
    return unknown or "permission denied" in said


def complaint(errors: str) -> str:
    """Return the last line of the error output, cut to fit a message; empty if there is none."""
    line = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
    line = "".join(char if char.isprintable() else "?" for char in line)
    return line if len(line) <= _LONGEST_COMPLAINT else line[: _LONGEST_COMPLAINT - 1] + "…"


def failure(name: str, errors: str) -> HostError:
    """Return the error for the error output of ssh, or of rsync through it."""
    said = errors.lower()
    line = complaint(errors) or "ssh failed"
    if "host identification has changed" in said:
        return HostError(
            f"{name}: its host key has changed: another machine may answer in its place",
            hint=f"ask its administrators; if the change is theirs: ssh-keygen -R {name.rpartition('@')[2]}",
        )
    if "host key verification failed" in said:
        return HostError(
            f"{name}: its host key is unknown", hint=f"look at it, and accept it once: ssh {name}"
        )
    if "could not resolve hostname" in said:
        return HostError(
            f"{name}: no such machine ({line})",
            hint="correct the name, give it a `Host` entry in ~/.ssh/config, or is a VPN off?",
        )
    if "permission denied" in said or "too many authentication failures" in said:
        return HostError(f"{name}: login refused ({line})", hint=f"log in once by hand: ssh {name}")
    if _CUT.search(said):
        return UnreachableError(f"{name}: cannot be reached ({line})", hint=_AGAIN)
    return HostError(f"{name}: {line}", hint=f"see whether this works: ssh {name} true")

"""List a source and fetch chosen files with rsync.

Two steps: a listing that writes nothing, then exactly the chosen files. Paths never pass a remote shell,
links and devices are never fetched, and nothing is deleted.
"""

from __future__ import annotations

import calendar
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.core.errors import HostError, OrchestrateError, StorageError, UnreachableError
from orchestrator.core.formatting import printable
from orchestrator.core.machine.ssh import failure
from orchestrator.rundir.copies.synced import PARTIAL, is_plain
from orchestrator.sync.source import Source, zero_terminated

_FORMAT = ">%i %l %M %n"
_LINE = re.compile(rb">(?P<change>.{11}) (?P<size>\d+) (?P<time>[0-9/:-]{19}) (?P<name>.+)", re.DOTALL)
_PROGRESS = re.compile(rb"\s+(?P<bytes>\d+)\s+\d+%")
_LEFT_OUT = re.compile(rb'skipping non-regular file "(?P<name>.*)"')
_TIME = "%Y/%m/%d-%H:%M:%S"
# rsync's escape sequence for unprintable characters.
_ESCAPED = re.compile(r"\\#[0-7]{3}")
# rsync's exit codes: files removed during the transfer, and unreadable files.
_VANISHED = 24
_SOME_FAILED = 23
# The most bytes of a path that rsync transfers reliably, in any tree.
_LONGEST_PATH = 2000
# The most characters of quoted text from a source.
_LONGEST_SHOWN = 240
# rsync's messages for a single file with an impossible name here: taken by a folder, below a file, or too
# long.
_NO_PLACE = re.compile(
    r"could not make way for |filename overflows max-path|"
    r".*: (File name too long|Not a directory|Is a directory) \("
)
_COMMON = ("--times", "--omit-dir-times", "-s", "--8-bit-output", "--no-human-readable")


@dataclass(frozen=True)
class ListedFile:
    """A file or folder at the source. ``stamp``: its version. ``new``: missing or different here.

    ``path``: relative to the listed folder. ``plain``: whether the name can be used unchanged.
    """

    path: str
    size: int
    stamp: str
    new: bool
    folder: bool

    @property
    def time(self) -> float:
        """Modification time, in epoch seconds."""
        return time_of(self.stamp)

    @property
    def plain(self) -> bool:
        """Whether the name can be used unchanged."""
        short = len(os.fsencode(self.path)) <= _LONGEST_PATH
        return short and is_plain(self.path) and not _ESCAPED.search(self.path)


@dataclass(frozen=True)
class Rsync:
    """rsync between a source and folders here. ``keep``: a lock's descriptor, also held by its processes."""

    source: Source
    keep: int | None = None

    def list(
        self, folder: str, here: Path, *, rules: Sequence[str] = (), names: Iterable[str] | None = None
    ) -> Listing:
        """List ``folder`` of the source, compared with the folder ``here``; writes nothing.

        Either by ``rules`` of rsync, or ``names`` and all below them.
        """
        argv = ["--recursive", "--dry-run", "--itemize-changes", "--itemize-changes", "--ignore-missing-args"]
        argv += [f"--filter={rule}" for rule in rules]
        listing = Listing()
        listing.problems = self._run([*argv, f"--out-format={_FORMAT}"], folder, here, names, listing.take)
        return listing

    def alike(self, folder: str, here: Path, names: Iterable[str]) -> set[str]:
        """Return the files with equal content at the source and here; times may differ."""
        listing = Listing()
        argv = ["--checksum", "--no-recursive", "--dry-run", "--itemize-changes", "--itemize-changes"]
        argv += ["--ignore-missing-args", f"--out-format={_FORMAT}"]
        self._run(argv, folder, here, names, listing.take)
        return {entry.path for entry in listing.entries if not entry.new}

    def fetch(
        self,
        folder: str,
        here: Path,
        names: Iterable[str],
        incoming: Path,
        progress: Callable[[int], None] = lambda _: None,
        *,
        by_content: bool = False,
    ) -> tuple[str, ...]:
        """Fetch exactly these files and folders; return one line for each that could not be read.

        A file gets its name when it is complete; until then its part is in a hidden folder beside it.
        ``progress`` is called with the bytes so far. ``by_content`` also compares files with equal size and
        time.
        """
        argv = [
            f"--partial-dir={PARTIAL}",
            f"--temp-dir={incoming}",
            "--ignore-missing-args",
            "--no-recursive",
        ]
        argv += ["--sparse", "--chmod=Du+rwx,Fu+rw", "--info=progress2", "--outbuf=L"]
        argv += ["--ignore-times"] if by_content else []
        if self.source.mirror is not None:  # link files that a bucket's mirror already holds
            argv.append(f"--link-dest={self._remote(folder)}")

        def take(line: bytes) -> None:
            if match := _PROGRESS.match(line):
                progress(int(match["bytes"]))

        return self._run(argv, folder, here, names, take)

    def push(self, here: Path, folder: str, names: Iterable[str]) -> None:
        """Copy these files of the folder ``here`` into ``folder`` of the source."""
        there = self._remote(folder)
        self._complete([*_COMMON, "--no-recursive"], [f"{here}/", there], names, lambda _: None)

    def _run(
        self,
        options: Sequence[str],
        folder: str,
        here: Path,
        names: Iterable[str] | None,
        take: Callable[[bytes], None],
    ) -> tuple[str, ...]:
        return self._complete([*_COMMON, *options], [self._remote(folder), f"{here}/"], names, take)

    def _remote(self, folder: str) -> str:
        path = "/".join(part for part in (self.source.root.rstrip("/"), folder) if part) + "/"
        return f"{self.source.host.name}:{path}" if self.source.host else path

    def _complete(
        self,
        options: Sequence[str],
        ends: Sequence[str],
        names: Iterable[str] | None,
        take: Callable[[bytes], None],
    ) -> tuple[str, ...]:
        """Run rsync to its end; return lines about single files that it could not read."""
        argv = ["rsync", *options]
        if self.source.host is not None:
            self.source.host.connect()
            argv.append(f"--rsh={self.source.host.rsync_shell()}")
        wanted = b""
        if names is not None:
            argv += ["--files-from=-", "--from0"]
            wanted = zero_terminated(names)
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
            given.write(wanted)
            given.seek(0)
            code = self._watch([*argv, "--", *ends], given, errors, take)
            errors.seek(0)
            said = errors.read().decode(errors="replace")
        if code in (0, _VANISHED):
            return ()
        if code == _SOME_FAILED and (lines := _about_files(said)):
            return lines
        raise error_of(self.source, code, said)

    def _watch(
        self, argv: Sequence[str], given: IO[bytes], errors: IO[bytes], take: Callable[[bytes], None]
    ) -> int:
        env = {name: value for name, value in os.environ.items() if not name.startswith("RSYNC_")}
        try:
            process = subprocess.Popen(
                argv,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**env, "LC_ALL": "C", "TZ": "UTC"},
                pass_fds=() if self.keep is None else (self.keep,),
            )
        except FileNotFoundError:
            raise OrchestrateError(
                "no program 'rsync' on this machine's PATH",
                hint="install it: apt-get install rsync, brew install rsync, or conda install rsync",
            ) from None
        assert process.stdout is not None
        with process:
            try:
                for line in _lines(process.stdout):
                    take(line)
            except BaseException:
                process.terminate()
                raise
        return process.returncode


def time_of(stamp: str) -> float:
    """Return the time in a stamp, in epoch seconds."""
    return calendar.timegm(time.strptime(stamp.partition(" ")[2], _TIME))


def size_of(stamp: str) -> int:
    """Return the bytes in a stamp."""
    return int(stamp.partition(" ")[0])


def stamp_of(path: Path | str) -> str | None:
    """Return the stamp of a file here, as in a listing; ``None`` if it does not exist."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return f"{found.st_size} {time.strftime(_TIME, time.gmtime(found.st_mtime))}"


def brief(text: str) -> str:
    """Return text from a source with :func:`printable` characters and limited length."""
    text, half = printable(text), _LONGEST_SHOWN // 2
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:half]}…{text[-half:]}"


class Listing:
    """A parsed listing: ``entries``, and ``special``, names of links and special files, which are never
    fetched.

    ``problems``: files that could not be read at the source.
    """

    def __init__(self) -> None:
        self.entries: list[ListedFile] = []
        self.special: list[str] = []
        self.problems: tuple[str, ...] = ()

    def take(self, line: bytes) -> None:
        """Parse a line of rsync's output."""
        if match := _LINE.fullmatch(line):
            name, kind = match["name"].decode(errors="surrogateescape"), match["change"][1:2]
            if kind not in b"fd":
                self.special.append(name)
            elif name != "./":
                stamp = f"{int(match['size'])} {match['time'].decode()}"
                new = match["change"][:1] in b">c"
                path = name.removesuffix("/")
                self.entries.append(ListedFile(path, int(match["size"]), stamp, new, kind == b"d"))
        elif match := _LEFT_OUT.fullmatch(line):
            self.special.append(match["name"].decode(errors="surrogateescape"))


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines as they arrive; rsync ends progress lines with a carriage return."""
    rest = b""
    while block := os.read(stream.fileno(), 1 << 16):
        *lines, rest = re.split(rb"[\r\n]", rest + block)
        yield from lines
    if rest:
        yield rest


def _about_files(said: str) -> tuple[str, ...]:
    """Return complaints about single files; empty if another error ended the transfer."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("rsync error:")]
    # The last two: files that changed repeatedly while they were read.
    there = ("rsync: [sender]", "file has vanished", "ERROR: ", "WARNING: ")
    about_files = [line for line in lines if line.startswith(there) or _NO_PLACE.match(line)]
    own = [line for line in lines if line.startswith(("rsync: [receiver]", "rsync: [generator]"))]
    return tuple(map(brief, about_files)) if all(_NO_PLACE.match(line) for line in own) else ()


def error_of(source: Source, code: int, said: str) -> OrchestrateError:
    """Explain rsync's error, with a fix."""
    words, who = said.lower(), source.host.name if source.host else source.text
    line = next((brief(line) for line in said.splitlines() if line.strip()), f"rsync ended with {code}")
    if "no space left" in words or "quota exceeded" in words:
        return StorageError(
            f"cannot write: the disk is full ({line})",
            hint="free space; the same command continues from here",
        )
    if "read-only file system" in words:
        return StorageError(
            f"cannot write: the file system is read-only ({line})",
            hint="choose another folder, or remount it",
        )
    if "permission denied" in words and ("[receiver]" in words or "[generator]" in words):
        return StorageError(
            f"cannot write: permission denied ({line})",
            hint="choose another folder, or change its permissions",
        )
    if "is your shell clean" in words:
        return HostError(
            f"{who}: its login prints text that disturbs rsync",
            hint="make ~/.bashrc there print in terminals only; as its first line: [[ $- == *i* ]] || return",
        )
    if code == 1 and "option" in words:
        return OrchestrateError(
            f"the rsync on this machine's PATH is too old, or another program of that name ({line})",
            hint="install rsync 3.2.5 or newer: with apt-get, brew or conda",
        )
    if code == 127 or "command not found" in words or "rsync: not found" in words:
        return HostError(
            f"{who}: no program 'rsync' there, or not on the PATH of commands that ssh starts",
            hint="install it there (conda install rsync needs no root), and set PATH in ~/.bashrc",
        )
    if source.host is not None and ("unexpectedly closed" in words or code in (30, 35)):
        return UnreachableError(f"{who}: the connection was cut", hint="the same command continues from here")
    if source.host is not None and code in (12, 255):
        # A shared connection that ends makes ssh exit with 255 without a word of its own.
        silent = all(text.startswith("rsync error:") for text in said.splitlines() if text.strip())
        return failure(who, "connection closed" if silent else said)
    if "change_dir" in words and "no such file" in words:
        return OrchestrateError(
            f"{source.text}: no longer exists ({line})", hint="check the path, and try again"
        )
    return OrchestrateError(f"{who}: rsync failed ({line})", hint="the same command continues from here")

"""rsync: what there is at a source, and how chosen files of it come here.

Two steps: a list that writes nothing, then exactly those files of it that were chosen. No remote shell reads
a path, no link or device is ever taken, and nothing is deleted anywhere.
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
from orchestrator.core.formatting import plain
from orchestrator.core.ssh import failure
from orchestrator.rundir.synced import PARTIAL
from orchestrator.sync.file_names import is_plain
from orchestrator.sync.source import Source

_FORMAT = ">%i %l %M %n"
_LINE = re.compile(rb">(?P<change>.{11}) (?P<size>\d+) (?P<time>[0-9/:-]{19}) (?P<name>.+)", re.DOTALL)
_PROGRESS = re.compile(rb"\s+(?P<bytes>\d+)\s+\d+%")
_LEFT_OUT = re.compile(rb'skipping non-regular file "(?P<name>.*)"')
_TIME = "%Y/%m/%d-%H:%M:%S"
# How rsync writes what cannot be printed, and its own sign for it.
_ESCAPED = re.compile(r"\\#[0-7]{3}")
# Files that were there a moment ago and are not any more: a worker removed them, or the owner.
_VANISHED = 24
_SOME_FAILED = 23
# Bytes of a path that rsync brings and takes for what was asked for, wherever the tree lies.
_LONGEST_PATH = 2000
# Characters of a line that repeats what a source wrote.
_LONGEST_SHOWN = 240
# What rsync says of a single file that cannot have its name here: a folder has it, or a file has that of its
# folder, or it is too long.
_NO_PLACE = re.compile(
    r"could not make way for |filename overflows max-path|"
    r".*: (File name too long|Not a directory|Is a directory) \("
)
_COMMON = ("--times", "--omit-dir-times", "-s", "--8-bit-output", "--no-human-readable")


@dataclass(frozen=True)
class ListedFile:
    """A file or folder at the source. ``stamp`` changes when it does; ``new``: it is not so here.

    ``path`` is relative to the folder that was listed. ``plain``: a name that may be used as it is.
    """

    path: str
    size: int
    stamp: str
    new: bool
    folder: bool

    @property
    def time(self) -> float:
        """When it was changed, in epoch seconds."""
        return time_of(self.stamp)

    @property
    def plain(self) -> bool:
        short = len(os.fsencode(self.path)) <= _LONGEST_PATH
        return short and is_plain(self.path) and not _ESCAPED.search(self.path)


@dataclass(frozen=True)
class Rsync:
    """rsync between a source and folders here. ``keep`` is a lock's descriptor, held by its processes too."""

    source: Source
    keep: int | None = None

    def list(
        self,
        folder: str,
        here: Path,
        *,
        rules: Sequence[str] = (),
        names: Iterable[str] | None = None,
    ) -> Listing:
        """What lies in ``folder`` of the source, against what lies ``here``; writes nothing.

        Either by ``rules`` of rsync, or ``names`` and all below them.
        """
        argv = ["--recursive", "--dry-run", "--itemize-changes", "--itemize-changes", "--ignore-missing-args"]
        argv += [f"--filter={rule}" for rule in rules]
        listing = Listing()
        listing.problems = self._run([*argv, f"--out-format={_FORMAT}"], folder, here, names, listing.take)
        return listing

    def alike(self, folder: str, here: Path, names: Iterable[str]) -> set[str]:
        """Those of these files that have the same content there and here, whatever their times say."""
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
        """Bring exactly these files and folders; what could not be read there, in a line each.

        A file takes its name when it is whole; a part of one waits in a hidden folder beside it.
        ``progress`` is told the bytes so far. ``by_content`` looks into files that seem to be the same.
        """
        argv = [
            f"--partial-dir={PARTIAL}",
            f"--temp-dir={incoming}",
            "--ignore-missing-args",
            "--no-recursive",
        ]
        argv += ["--sparse", "--chmod=Du+rwx,Fu+rw", "--info=progress2", "--outbuf=L"]
        argv += ["--ignore-times"] if by_content else []
        if self.source.mirror is not None:  # files of a bucket that lie here already are not doubled
            argv.append(f"--link-dest={self._remote(folder)}")

        def take(line: bytes) -> None:
            if match := _PROGRESS.match(line):
                progress(int(match["bytes"]))

        return self._run(argv, folder, here, names, take)

    def push(self, here: Path, folder: str, names: Iterable[str]) -> None:
        """Put these files of the folder ``here`` into ``folder`` of the source."""
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
        """Run rsync to its end; lines about single files that it could not read."""
        argv = ["rsync", *options]
        if self.source.host is not None:
            self.source.host.connect()
            argv.append(f"--rsh={self.source.host.rsync_shell()}")
        wanted = b""
        if names is not None:
            argv += ["--files-from=-", "--from0"]
            wanted = b"".join(os.fsencode(name) + b"\0" for name in names)
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
    """The time in a stamp, in epoch seconds."""
    return calendar.timegm(time.strptime(stamp.partition(" ")[2], _TIME))


def size_of(stamp: str) -> int:
    """The bytes in a stamp."""
    return int(stamp.partition(" ")[0])


def stamp_of(path: Path | str) -> str | None:
    """The stamp that a list would show of a file here; ``None`` if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return f"{found.st_size} {time.strftime(_TIME, time.gmtime(found.st_mtime))}"


def brief(text: str) -> str:
    """A name or a line that a source wrote, as :func:`plain` shows it, and not longer than a few lines."""
    text, half = plain(text), _LONGEST_SHOWN // 2
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:half]}…{text[-half:]}"


class Listing:
    """What a list said: ``entries``, and the names of links and special files, which are never taken.

    ``problems``: what could not be read there.
    """

    def __init__(self) -> None:
        self.entries: list[ListedFile] = []
        self.special: list[str] = []
        self.problems: tuple[str, ...] = ()

    def take(self, line: bytes) -> None:
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
    """Lines as they come; rsync's progress ends in a return."""
    rest = b""
    while block := os.read(stream.fileno(), 1 << 16):
        *lines, rest = re.split(rb"[\r\n]", rest + block)
        yield from lines
    if rest:
        yield rest


def _about_files(said: str) -> tuple[str, ...]:
    """Complaints about single files; nothing if there is another, which ends it all."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("rsync error:")]
    # The last two: of files that were written to again and again while they were read.
    there = ("rsync: [sender]", "file has vanished", "ERROR: ", "WARNING: ")
    about_files = [line for line in lines if line.startswith(there) or _NO_PLACE.match(line)]
    own = [line for line in lines if line.startswith(("rsync: [receiver]", "rsync: [generator]"))]
    return tuple(map(brief, about_files)) if all(_NO_PLACE.match(line) for line in own) else ()


def error_of(source: Source, code: int, said: str) -> OrchestrateError:
    """What rsync's end means, and what to do about it."""
    words, who = said.lower(), source.host.name if source.host else source.text
    line = next((brief(line) for line in said.splitlines() if line.strip()), f"rsync ended with {code}")
    if "no space left" in words or "quota exceeded" in words:
        return StorageError(
            f"cannot write: the disk is full ({line})",
            hint="free space; what is here stays, and the same command goes on with the rest",
        )
    if "read-only file system" in words:
        return StorageError(
            f"cannot write: the file system is read-only ({line})",
            hint="choose another folder, or remount it",
        )
    if "permission denied" in words and ("[receiver]" in words or "[generator]" in words):
        return StorageError(
            f"cannot write: permission denied ({line})", hint="choose another folder, or change its rights"
        )
    if "is your shell clean" in words:
        return HostError(
            f"{who}: its login prints text in between, where rsync expects nothing",
            hint="let ~/.bashrc there print in terminals only; as its first line: [[ $- == *i* ]] || return",
        )
    if code == 1 and "option" in words:
        return OrchestrateError(
            f"the rsync on this machine's PATH is too old, or another program of that name ({line})",
            hint="install rsync 3.2.5 or newer: with apt-get, brew or conda",
        )
    if code == 127 or "command not found" in words or "rsync: not found" in words:
        return HostError(
            f"{who}: no program 'rsync' there, or not on the PATH of commands that ssh starts",
            hint="install it there (conda install rsync needs no rights), and set PATH in ~/.bashrc",
        )
    if source.host is not None and ("unexpectedly closed" in words or code in (30, 35)):
        return UnreachableError(
            f"{who}: the connection was cut", hint="what came is kept: the same command goes on from there"
        )
    if source.host is not None and code in (12, 255):
        return failure(who, said)
    if "change_dir" in words and "no such file" in words:
        return OrchestrateError(
            f"{source.text}: is not there any more ({line})", hint="look at it, and try again"
        )
    return OrchestrateError(f"{who}: rsync failed ({line})", hint="the same command goes on from here")

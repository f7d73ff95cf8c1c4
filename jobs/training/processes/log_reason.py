"""Find the reason of a program's failure in the end of its log: the exception, not the last line.

Libraries and launchers write after an exception: W&B's summary, Hydra's advice, warnings at Python's exit,
torchrun's banner. Tracebacks of Python are read line by line, those of each rank apart where lines are
labelled. Of other languages the last line that looks like an error counts.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

_TAIL_BYTES = 1 << 18
_LONGEST = 300
# Characters of a line that are looked at.
_WIDTH = 2000
# A traceback followed by more lines than this, indented ones apart, did not end the program.
_SURVIVED = 30
# The same where no other line looks like an error: a long message, or settings printed at exit.
_LONG_SURVIVED = 100
# Lines before the last one in which an error without a traceback is looked for.
_NEAR = 40

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# A progress bar at the beginning of a line: what follows it was written by somebody else.
_BAR = re.compile(r"^.*?\d+(?:%\|.*?\||/\d+ ?\[| \[\d+:\d\d).*?(?:it/s|s/it)[^\]]*\]?")
# How torchrun, torch.distributed, Ray, MPI, `srun -l` and this program mark the lines of each process.
_LABEL = re.compile(
    r"(?:\[(?:default|rank ?)\d+\]:? ?|\[\d+,\d+\]<\w+>: ?|\((?:[\w.]+ )?pid=\d+[^)]*\) ?|\d{1,4}: (?=\S))+"
)
_HEADER = "Traceback (most recent call last)"
_GROUP_MARK = re.compile(r"^ *[|+] ?")
_GROUP = re.compile(r"\(\d+ sub-exceptions?\)")
_FRAME = re.compile(r'^(?P<indent>>? *)File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?\s*$')
_EXCEPTION = re.compile(r"^[^\W\d][\w.]*(?:\([\w.]+\))?(?::(?: |$)|$)")
_DETAIL = re.compile(r"^\s*full_key: ")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# A line before a traceback that is not the reason why the program ended, or its last frame.
_BY_THE_WAY = re.compile(
    r"Exception ignored (?:in|on)|Error in (?:atexit|sys\.excepthook)|--- Logging error|future: <"
    r"|Task exception was never|resource_tracker\.py:\d+ in main$"
)
# An error that says only that another process or thread has failed, or of one.
_SECONDARY = re.compile(
    r"^(?:[\w.]*\.)?(?:CalledProcessError|ProcessRaisedException|ProcessExitedException|SignalException)\b"
)
_IN_PART = re.compile(r"^(?:Exception in thread |Process \S+:$)")
_PEER_LOST = re.compile(
    r"(?i)connection (?:closed|reset|refused)|broken pipe|remote worker|socket closed|ncclRemoteError"
    r"|remote process exited|^EOFError\b"
)

_HYDRA = "HYDRA_FULL_ERROR"
_NOISE = re.compile(
    rf"""(?x)
      ^\s*$ | ^\W+$ | ^\s*[│╭╰┃┏┗]
    | ^(?:wandb|COMET\ \w+|\[neptune\]|ClearML|🏃|🧪)
    | {_HYDRA} | ^Error\ executing\ job\ with\ overrides
    | resource_tracker | \b\w*Warning:\  | ^\s+warnings\.warn\( | ^Exception\ ignored
    | ^For\ simplicity,\ JAX\ has\ removed
    | ^\[?[IWE]\d{{3,4}}[ ].*(?:torch/|\.cpp|\.cc|\.py)
    | ^note:\ | ^Node\.js\ v | ^Execution\ halted | ^exit\ status\ \d | ^goroutine\ | ^\[signal[ ]
    | ^Stacktrace: | ^in\ expression\ starting\ at | ^warning:[ ]
    | ^(?:real|user|sys)\s+\d | ^Command\ exited\ with | ^\s*\[Previous\ line
    | ^g?make(?:\[\d+\])?:\ \*\*\* | ^(?:srun|\w+stepd):\ (?!.*(?i:\boom|out\ of\ memory))
    | ^ERROR\ conda\.cli | ^npm\ ERR!
    | ^command\ terminated\ by
    | ^CUDA\ kernel\ errors\ might | ^For\ debugging\ consider
    | ^(?:Compile\ with|Device-side\ assertion).*TORCH_USE_CUDA_DSA
    """
)
_ERROR = re.compile(
    r"(?i:\b(?:error|fatal|panic|panicked|exception|critical)\b(?!s?\s*[=:]\s*[-+.\d]))"
    r"|\b[A-Z]\w*(?:Error|Exception)\b|terminate called|Assertion|Check failed"
    r"|command not found|: not found$|No such file or directory|Permission denied"
    r"|Segmentation fault|Bus error|Aborted|Killed|double free|corrupted|invalid pointer|stack smashing"
)
_TERMINATE = re.compile(r"terminate called after throwing an instance of '(.+)'")

# The summary of torchrun: a block for each rank that failed, that of the first one last.
_CHILD_FAILED = "ChildFailedError"
_ROOT = "Root Cause (first observed failure):"
_RANK = re.compile(r"^\s*rank +: (?P<rank>\d+) \(local_rank: (?P<local>\d+)\)")
_EXIT_CODE = re.compile(r"^\s*exitcode +: (?P<code>-?\d+) ")
# An exception that tells of a process killed from outside, and mpirun's words for it.
_KILLED = re.compile(
    rf"{_SECONDARY.pattern}.* (?:died|terminated) with .*(?:SIGKILL|signal 9\b)"
    r"|^RuntimeError: DataLoader worker .* is killed by signal: Killed"
)
_MPI_KILLED = re.compile(r"exited on signal 9\b")
# torchrun's error after a signal of its own.
_STOPPED = re.compile(r"SignalException: Process \d+ got signal: (\d+)")
_SIGKILL = -signal.SIGKILL
# Signals from outside: no fault of a program ends it with one of these.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class FailureReason:
    """Why a program failed, as far as its log tells.

    ``text``: one line, empty if nothing is known; ``behind``: the errors of which it followed. ``code``: the
    exit code of the process that failed first where a launcher hides it; ``rank``: that process's.
    ``of_exception``: the text is that of an exception; of a program that none ended, its last words are.
    """

    text: str = ""
    behind: tuple[str, ...] = ()
    code: int | None = None
    rank: int | None = None
    of_exception: bool = False

    @property
    def killed(self) -> str:
        """The words for a process of the program that was killed from outside; empty if none was."""
        if self.code is None or -self.code not in FROM_OUTSIDE:
            return ""
        who = "a process of the program" if self.rank is None else f"rank {self.rank}"
        said = f": {self.text}" if self.text else ""
        return f"{who} was killed by {signal.Signals(-self.code).name}{said}"


UNKNOWN = FailureReason()


@dataclass(frozen=True)
class _Traceback:
    """An exception in the log. ``end``: the number of its line; ``place``: of its last frame."""

    text: str
    place: str
    end: int
    label: str = ""
    behind: tuple[str, ...] = ()
    secondary: bool = False


@dataclass
class _Reader:
    """Reads the lines of one process; ``found`` in their order."""

    label: str
    found: list[_Traceback] = field(default_factory=list)
    _indent: int | None = None
    _place: str = ""
    _before: str = ""
    _intro: str = ""
    _chained: bool = False
    _nested: bool = False
    _in_group: bool = False
    _message_open: bool = False

    def read(self, number: int, line: str) -> None:
        if _HEADER in line:
            self._intro = self._before
            self._in_group |= "Exception Group" in line
            self._indent, self._message_open = 0, False
            self._place = ""
        elif self._in_group:
            self._in_group = bool(_GROUP_MARK.match(line))
            line = _GROUP_MARK.sub("", line)
        if (frame := _FRAME.match(line)) and self._belongs(frame):
            self._nested |= self._message_open
            self._indent, self._message_open = len(frame["indent"]), False
            name = f" in {frame['name']}" if frame["name"] else ""
            self._place = f"{os.path.basename(frame['file'])}:{frame['line']}{name}"
        elif self._is_exception(line):
            self._take(number, line.strip())
        elif self._message_open:
            self._continue(number, line)
        if line.startswith(_CHAINED):
            self._chained, self._message_open = True, False
        if line.strip():
            self._before = line.strip()

    def _belongs(self, frame: re.Match[str]) -> bool:
        """Whether the frame is an exception's: a stack printed on its own has names and no header."""
        return self._indent is not None or self._message_open or not frame["name"]

    def _is_exception(self, line: str) -> bool:
        text = line.strip()
        if not text or not _EXCEPTION.match(text):
            return False
        if self._in_group and self._indent is None:  # a sub-exception without a traceback
            return bool(re.fullmatch(r"[-+ ]*\d+[-+ ]*", self._before.lstrip("|+ ")))
        return self._indent is not None and len(line) - len(line.lstrip()) < max(1, self._indent)

    def _take(self, number: int, text: str) -> None:
        before = self.found[-1] if self.found else None
        counts = not _BY_THE_WAY.search(f"{self._intro}\n{self._place}")
        if counts and self._in_group and before is not None and _GROUP.search(before.text):
            joined = f"{before.text}{': ' if before.text.endswith(')') else '; '}{text}"
            self.found[-1] = replace(before, text=joined, end=number, behind=(*before.behind, text))
        elif counts:
            secondary = bool(_SECONDARY.match(text) or _IN_PART.match(self._intro))
            follows = before is not None and (self._chained or self._nested)
            behind = (*before.behind, before.text) if before is not None and follows else ()
            again = before is not None and behind and before.text == text  # raised again, as by a pool
            place = before.place if before is not None and again else self._place
            self.found.append(_Traceback(text, place, number, self.label, behind, secondary))
        self._message_open = counts
        self._indent, self._chained, self._nested, self._intro = None, False, False, ""

    def _continue(self, number: int, line: str) -> None:
        """Take a further line of the message if the first one says little; count it as the exception's."""
        last = self.found[-1]
        text = line.strip()
        if not text or _NOISE.search(line):
            return
        if last.text.endswith(":") and last.end < number <= last.end + 3:
            last = replace(last, text=f"{last.text} {text}")
        elif _DETAIL.match(line):
            last = replace(last, text=f"{last.text} ({text})")
        self.found[-1] = last


def reason_in(log: Path, raised: bool | None = None) -> FailureReason:
    """Return the reason in the end of a log file. ``raised``: whether an exception ended the program."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return reason_of(file.read().decode(errors="replace").split("\n"), raised)


def reason_of(lines: Iterable[str], raised: bool | None = None) -> FailureReason:
    """Return the reason in the last lines of a log.

    ``raised``: whether an exception ended the program. If none did, its last line comes before one that it
    caught.
    """
    read = [_labelled(_plain(line)) for line in lines]
    bodies = [body for _, body in read]
    readers: dict[str, _Reader] = {}
    for number, (name, body) in enumerate(read):
        readers.setdefault(name, _Reader(name)).read(number, body)
    found = sorted((one for reader in readers.values() for one in reader.found), key=lambda one: one.end)
    late = [one for one in found if not _survived(one, bodies, _SURVIVED)]
    failed = _launched(read, late)
    chosen = _chosen(late, failed)
    if failed is not None:
        return _judged(_told(chosen) if chosen else UNKNOWN, failed)
    error = "" if chosen else _error_line(bodies)
    if chosen is None and not error and raised is not False:
        chosen = _chosen([one for one in found if not _survived(one, bodies, _LONG_SURVIVED)], None)
    reason = _told(chosen) if chosen else _of_line(_line(error or _last_line(bodies)))
    if raised is False and chosen is None:
        reason = replace(reason, of_exception=False)
    elif raised is False and chosen and (words := _last_words(bodies[chosen.end + 1 :])):
        reason = replace(reason, text=f"{words}, after {reason.text}", of_exception=False)
    if stopped := _STOPPED.search(reason.text):
        return replace(reason, code=-int(stopped[1]))
    killed = (_KILLED if chosen else _MPI_KILLED).search(reason.text)
    return replace(reason, code=_SIGKILL) if killed else reason


def _plain(line: str) -> str:
    """Return the line as a terminal shows it in the end, without a progress bar before it."""
    plain = _ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2][:_WIDTH])
    return _BAR.sub("", plain) if "it/s" in plain or "s/it" in plain else plain


def _labelled(line: str) -> tuple[str, str]:
    """Split off the label of the process that wrote the line."""
    label = _LABEL.match(line)
    return (label[0].strip(), line[label.end() :]) if label else ("", line)


@dataclass(frozen=True)
class _Failed:
    """The rank that failed first, by the summary of torchrun; ``killed``: another one was, by SIGKILL."""

    rank: int
    local: int
    code: int
    killed: int | None


def _launched(lines: Sequence[tuple[str, str]], found: Sequence[_Traceback]) -> _Failed | None:
    """Read the summaries of torchrun, one for each node; one with a killed rank decides."""
    starts = [one for one in found if _CHILD_FAILED in one.text]
    told = (_summary([body for label, body in lines[one.end :] if label == one.label]) for one in starts)
    summaries = [one for one in told if one is not None]
    return next((one for one in summaries if one.killed is not None), next(iter(summaries), None))


def _summary(lines: Iterable[str]) -> _Failed | None:
    rank = local = None
    at_root, killed, root = False, None, None
    for line in lines:
        at_root |= _ROOT in line
        if match := _RANK.match(line):
            rank, local = int(match["rank"]), int(match["local"])
        elif (match := _EXIT_CODE.match(line)) and rank is not None and local is not None:
            code = int(match["code"])
            killed = rank if code == _SIGKILL else killed
            root = (rank, local, code) if at_root and root is None else root
    return None if root is None else _Failed(*root, killed)


def _judged(reason: FailureReason, failed: _Failed) -> FailureReason:
    """Add the rank to a reason, and its exit code; a rank that lost a killed one is not the cause."""
    rank, code = failed.rank, failed.code
    if code != _SIGKILL and failed.killed is not None and (not reason.text or _PEER_LOST.search(reason.text)):
        rank, code = failed.killed, _SIGKILL
    if code < 0:
        return FailureReason("", reason.behind, code, rank)
    text = f"rank {rank}: {reason.text}" if reason.text else f"rank {rank}"
    return FailureReason(text, reason.behind, code, rank)


def _chosen(found: Sequence[_Traceback], failed: _Failed | None) -> _Traceback | None:
    """Return the exception that ended the program; of several ranks, that of the one that failed first.

    Where that tells only of a lost connection, the exception of a process or thread of the program counts.
    """
    found = [one for one in found if _CHILD_FAILED not in one.text]
    own = [one for one in found if not one.secondary] or found
    if failed is not None:
        names = f"[rank{failed.rank}]:", f"[default{failed.local}]:"
        own = [one for one in own if any(name in one.label for name in names)] or own
    if failed is None and len({one.label for one in own}) <= 1:
        own = own[-1:]
    parts = [one for one in found if one.secondary and not _SECONDARY.match(one.text)]
    return next((one for one in (*own, *parts) if not _PEER_LOST.search(one.text)), own[0] if own else None)


def _told(chosen: _Traceback) -> FailureReason:
    """Return text and place of an exception, with the first one behind it unless its text has that."""
    text, first = _line(chosen.text), _line(chosen.behind[0]) if chosen.behind else ""
    place = f" ({chosen.place})" if chosen.place else ""
    after = f", after {first}" if first and first not in text else ""
    return FailureReason(f"{text}{place}{after}", chosen.behind, of_exception=True)


def _of_line(text: str) -> FailureReason:
    return FailureReason(text, of_exception=bool(re.match(r"[\w.]*(?:Error|Exception)\b", text)))


def _survived(one: _Traceback, bodies: Sequence[str], most: int) -> bool:
    """Whether the program went on after the exception: for more than so many lines."""
    later = (line for line in bodies[one.end + 1 :] if not line[:1].isspace() and not _NOISE.search(line))
    return len(list(islice(later, most + 1))) > most


def _error_line(bodies: Sequence[str]) -> str:
    """Return the last error in other words than a traceback's; empty if there is none."""
    said = [line for line in bodies[-4 * _NEAR :] if not _NOISE.search(line)][-_NEAR:]
    for place in reversed(range(len(said))):
        line = said[place]
        if line[:1].isspace() or not _ERROR.search(line):  # a stack's lines are indented
            continue
        following = said[place + 1].strip() if place + 1 < len(said) else ""
        if thrown := _TERMINATE.search(line):
            return f"{thrown[1]}: {following.removeprefix('what():').strip()}".rstrip(": ")
        if place and said[place - 1].rstrip().endswith(":") and _ERROR.search(said[place - 1]):
            return f"{said[place - 1].strip()} {line.strip()}"
        return f"{line.strip()} {following}" if line.rstrip().endswith(":") else line.strip()
    return ""


def _last_line(bodies: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(bodies) if not _NOISE.search(line)), "")


def _last_words(later: Sequence[str]) -> str:
    """Return the last line of those after a caught exception; empty if it ended the program nevertheless."""
    if any(_HYDRA in line for line in later):  # it catches the exception, prints it and exits
        return ""
    said = [line for line in later if not _NOISE.search(line)]
    last = max((place for place, line in enumerate(said) if not line[:1].isspace()), default=len(said))
    return _line(
        " ".join(said[last:] if "".join(said[last : last + 1]).endswith(":") else said[last : last + 1])
    )


def _line(text: str) -> str:
    flat = " ".join(text.split()).rstrip(":")
    return flat if len(flat) <= _LONGEST else flat[: _LONGEST - 1] + "…"

"""Take snapshots of a machine and the results on it: ``python -m orchestrator.ui.monitor.probe``.

The first line of its stdin is the configuration, JSON; it answers each further line with one line, JSON. It
ends with all that it started when its stdin does, or after a long silence.
"""

from __future__ import annotations

import ctypes
import glob
import json
import math
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.core.formats import stamp
from orchestrator.core.records import plain
from orchestrator.ui.monitor.snapshot import (
    Disk,
    Gpu,
    MachineLoad,
    MonitorSnapshot,
    Quota,
    TensorBoardState,
)
from orchestrator.ui.monitor.tree import WatchedTree

_QUOTA_EVERY_S = 120
_PATIENCE_S = 8
_LONGEST_TEXT = 8192
_GPU_FIELDS = "index,name,utilization.gpu,memory.used,memory.total"
_URL = re.compile(rb"http://[^/\s]+:(\d+)/")
# A TensorBoard that ended is started again after so long.
_AGAIN_S = 60
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before there are threads


class Machine:
    """Processor, memory, GPUs, and the file system of a results tree."""

    def __init__(self, tree: str) -> None:
        self._tree, self._ticks = tree, _ticks()
        self._mount = _mount(os.path.realpath(tree))
        self._quota, self._quota_at = "", 0.0
        self._smi = shutil.which("nvidia-smi")
        if self._ticks is not None:
            time.sleep(0.2)  # for a first difference

    def look(self) -> MachineLoad:
        """Return the machine's load and its file system."""
        memory = _memory()
        return MachineLoad(
            os.cpu_count(),
            self._busy(),
            os.getloadavg()[0],
            memory.get("MemTotal"),
            memory.get("MemAvailable"),
            self._gpus(),
            self._disk(),
        )

    def _busy(self) -> float | None:
        """Percent of all cores since the last look."""
        before, self._ticks = self._ticks, _ticks()
        if before is None or self._ticks is None or self._ticks[0] <= before[0]:
            return None
        return 100.0 * (1 - (self._ticks[1] - before[1]) / (self._ticks[0] - before[0]))

    def _gpus(self) -> tuple[Gpu, ...]:
        if self._smi is None:
            return ()
        return parse_gpus(_output([self._smi, f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits"]))

    def _disk(self) -> Disk:
        seen = os.statvfs(self._tree)
        places = [self._mount.get(key, "") for key in ("source", "point")]
        return Disk(
            seen.f_blocks * seen.f_frsize,
            seen.f_bavail * seen.f_frsize,
            seen.f_files,
            seen.f_favail,
            places[1],
            parse_quota(self._ask_quota(), places),
        )

    def _ask_quota(self) -> str:
        """Return the output of the file system's own program about the user's quota."""
        if not self._quota_at or time.monotonic() - self._quota_at > _QUOTA_EVERY_S:
            if self._mount.get("type") == "lustre":
                self._quota = _output(["lfs", "quota", "-q", "-u", _user(), self._mount["point"]])
            else:
                self._quota = _output(["quota", "-w", "-p"])
            self._quota_at = time.monotonic()
        return self._quota


class TensorBoard:
    """A TensorBoard that shows a tree: one that this user runs already, or its own.

    ``commands``: beginnings of command lines that start one, tried in turn until one has it installed.
    """

    def __init__(self, tree: str, commands: list[list[str]]) -> None:
        self._tree, self._commands = tree, list(commands)
        self._process: subprocess.Popen[bytes] | None = None
        self._said: list[bytes] = []
        self._port: int | None = None
        self._started, self._closed, self._lock = 0.0, False, threading.RLock()

    def look(self, has_events: bool) -> TensorBoardState:
        """Return its state; start one if there are events to show."""
        if self._process is None or self._process.poll() is not None:
            port = _found_tensorboard(self._tree)
            if port is not None:
                return TensorBoardState("serving", port)
        if self._process is None:
            return self._start() if has_events else TensorBoardState("waiting")
        if self._process.poll() is None:
            if self._port is not None and _listens(self._port):
                return TensorBoardState("serving", self._port, ours=True)
            return TensorBoardState("starting")
        return self._after_end()

    def close(self) -> None:
        """End a TensorBoard that this probe started."""
        with self._lock:
            self._closed = True
        if self._process is not None and self._process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self._process.pid, number)
                    self._process.wait(3)
                    return
                except subprocess.TimeoutExpired:
                    continue
                except OSError:
                    return

    def _start(self) -> TensorBoardState:
        if not self._commands:
            return TensorBoardState("absent")
        options = ["--logdir", self._tree, "--host", "127.0.0.1", "--port", "0"]
        self._said, self._port, self._started = [], None, time.monotonic()
        with self._lock:
            if self._closed:
                return TensorBoardState("waiting")
            try:
                self._process = subprocess.Popen(
                    [*self._commands[0], *options],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
            except OSError:
                del self._commands[0]
                return self._start()
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        return TensorBoardState("starting")

    def _after_end(self) -> TensorBoardState:
        """Handle an ended TensorBoard: try the next Python, or start it again later."""
        assert self._process is not None
        said = b"".join(self._said)
        if b"No module named" in said or self._process.returncode in (126, 127):
            del self._commands[0]
            self._process = None
            return self._start()
        if time.monotonic() - self._started > _AGAIN_S:
            self._process = None
        words = said.decode(errors="replace").strip().split("\n")[-1]
        return TensorBoardState("failed", message=words[:300])

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._said = [*self._said[-20:], line]
                address = _URL.search(line)
                if address and b"TensorBoard" in line:
                    self._port = int(address.group(1))


def main() -> None:
    """Read the configuration, then answer each line with a snapshot."""
    config = json.loads(sys.stdin.buffer.readline())
    tree = config["tree"]
    commands = [[part.replace("{tree}", tree) for part in command] for command in config["tensorboard"]]
    board = TensorBoard(tree, commands)
    asked = threading.Semaphore(0)
    _Requests(asked, board, config["silence"]).start()
    results, machine = WatchedTree(Path(tree)), Machine(tree)
    while asked.acquire():
        began, now = time.monotonic(), time.time()
        sweeps, runs = results.look(now, config["rows"])
        load = machine.look()
        seen = board.look(results.has_events) if commands else None
        seconds = time.monotonic() - began
        snapshot = MonitorSnapshot(now, socket.gethostname(), tree, seconds, sweeps, runs, load, seen)
        sys.stdout.write(json.dumps({**stamp(), **plain(snapshot)}) + "\n")
        sys.stdout.flush()


class _Requests:
    """End the probe when requests stop, even while a snapshot hangs in a file system.

    ``silence``: seconds without a request after which it ends.
    """

    def __init__(self, asked: threading.Semaphore, board: TensorBoard, silence: float) -> None:
        self._asked, self._board, self._silence = asked, board, silence
        self._last = time.monotonic()

    def start(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: self._leave())
        for work in (self._read, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        while sys.stdin.buffer.readline():
            self._last = time.monotonic()
            self._asked.release()
        self._leave()

    def _watch(self) -> None:
        while time.monotonic() - self._last < self._silence:
            time.sleep(self._silence / 60)
        self._leave()

    def _leave(self) -> None:
        self._board.close()
        os._exit(0)


def _ticks() -> tuple[int, int] | None:
    """Return the ticks of all cores together: all, and idle ones."""
    try:
        with open("/proc/stat") as file:
            numbers = [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(numbers), sum(numbers[3:5])


def _memory() -> dict[str, int]:
    """Return the kernel's figures on memory, in bytes."""
    try:
        with open("/proc/meminfo") as file:
            lines = [line.replace(":", " ").split() for line in file]
    except OSError:
        return {}
    return {words[0]: int(words[1]) * 1024 for words in lines if len(words) == 3}


def _mount(path: str) -> dict[str, str]:
    """Return the file system of a path: its type, its source and its mount point."""
    best: dict[str, str] = {}
    try:
        with open("/proc/self/mounts") as file:
            for line in file:
                source, point, kind = line.split()[:3]
                point = point.replace("\\040", " ")
                inside = path == point or path.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best.get("point", "")):
                    best = {"source": source, "point": point, "type": kind}
    except (OSError, ValueError):
        pass
    return best


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Parse nvidia-smi's lines: index, name, utilisation in percent, memory and total memory in MiB."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and parts[0].isdigit():
            busy, used, total = (_figure(part) for part in parts[2:])
            gpus.append(Gpu(parts[0], parts[1], busy, _mebibytes(used), _mebibytes(total)))
    return tuple(gpus)


def parse_quota(text: str, places: Sequence[str]) -> Quota | None:
    """Parse the output of `quota -w -p` or `lfs quota -q` for one of these places (a device, a mount point).

    Both print, after the place: kilobytes, quota, limit, grace, and the same for files. A star marks excess.
    """
    words = text.split()
    for at, word in enumerate(words):
        if word in places:
            figures = [_figure(figure.rstrip("*")) for figure in words[at + 1 : at + 8]]
            if len(figures) < 7:
                return None
            used, soft, hard, _, files, files_soft, files_hard = figures
            if used is not None and files is not None:
                limit = _limit(soft, hard)
                return Quota(used * 1024, limit and limit * 1024, files, _limit(files_soft, files_hard))
    return None


def _limit(soft: float | None, hard: float | None) -> float | None:
    """Return the lower of two limits; 0 is none."""
    return min((limit for limit in (soft, hard) if limit), default=None)


def _figure(text: str) -> float | None:
    try:
        figure = float(text)
    except ValueError:
        return None
    return figure if math.isfinite(figure) else None


def _mebibytes(figure: float | None) -> float | None:
    return None if figure is None else figure * (1 << 20)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _output(argv: list[str]) -> str:
    """Return the output of a program; empty if it is missing, fails or takes long."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")[:_LONGEST_TEXT]


def _found_tensorboard(tree: str) -> int | None:
    """Return the port of a TensorBoard that this user runs for the tree, from TensorBoard's notes."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), ".tensorboard-info", "pid-*.info")):
        try:
            with open(path) as file:
                if os.fstat(file.fileno()).st_uid != os.getuid():
                    continue
                note = json.load(file)
            process = f"/proc/{int(note['pid'])}"
            with open(f"{process}/cmdline", "rb") as file_of_words:
                words = file_of_words.read()
            same = os.stat(process).st_uid == os.getuid() and b"tensorboard" in words
            if same and note["logdir"] == tree and _listens(int(note["port"])):
                return int(note["port"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _end_with_parent() -> None:
    """Have the kernel end this process when its parent ends for any reason."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main()

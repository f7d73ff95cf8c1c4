"""Take snapshots of a machine and the results on it: ``python -m orchestrator.ui.monitor.probe``.

The first line of its stdin is the configuration, JSON; it answers each further line with one line, JSON. It
ends with all that it started when its stdin does, or after a long silence.
"""

from __future__ import annotations

import ctypes
import glob
import json
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
from pathlib import Path
from typing import Any

from orchestrator.core.formats import stamp
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

    def look(self) -> dict[str, Any]:
        """Return the machine's load and its file system."""
        memory = _memory()
        return {
            "cores": os.cpu_count(),
            "cpu": self._busy(),
            "load": os.getloadavg()[0],
            "memory_total": memory.get("MemTotal"),
            "memory_free": memory.get("MemAvailable"),
            "gpus": self._gpus(),
            "disk": self._disk(),
        }

    def _busy(self) -> float | None:
        """Percent of all cores since the last look."""
        before, self._ticks = self._ticks, _ticks()
        if before is None or self._ticks is None or self._ticks[0] <= before[0]:
            return None
        return 100.0 * (1 - (self._ticks[1] - before[1]) / (self._ticks[0] - before[0]))

    def _gpus(self) -> str:
        if self._smi is None:
            return ""
        return _output([self._smi, f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits"])

    def _disk(self) -> dict[str, Any]:
        seen = os.statvfs(self._tree)
        return {
            "total": seen.f_blocks * seen.f_frsize,
            "free": seen.f_bavail * seen.f_frsize,
            "files": seen.f_files,
            "files_free": seen.f_favail,
            "mount": self._mount,
            "quota": self._ask_quota(),
        }

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

    def look(self, has_events: bool) -> dict[str, Any]:
        """Return its state; start one if there are events to show."""
        if self._process is None or self._process.poll() is not None:
            found = _found_tensorboard(self._tree)
            if found is not None:
                return {"state": "serving", "port": found, "ours": False}
        if self._process is None:
            return self._start() if has_events else {"state": "waiting"}
        if self._process.poll() is None:
            if self._port is not None and _listens(self._port):
                return {"state": "serving", "port": self._port, "ours": True}
            return {"state": "starting"}
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

    def _start(self) -> dict[str, Any]:
        if not self._commands:
            return {"state": "absent"}
        options = ["--logdir", self._tree, "--host", "127.0.0.1", "--port", "0"]
        self._said, self._port, self._started = [], None, time.monotonic()
        with self._lock:
            if self._closed:
                return {"state": "waiting"}
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
        return {"state": "starting"}

    def _after_end(self) -> dict[str, Any]:
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
        return {"state": "failed", "message": words[:300]}

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._said = [*self._said[-20:], line]
                found = _URL.search(line)
                if found and b"TensorBoard" in line:
                    self._port = int(found.group(1))


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
        seen = {**stamp(), "time": now, "host": socket.gethostname(), "tree": tree}
        seen |= results.look(now, config["rows"])
        seen["machine"] = machine.look()
        seen["tensorboard"] = board.look(results.has_events) if commands else None
        seen["seconds"] = time.monotonic() - began
        _answer(seen)


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


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


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
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def _end_with_parent() -> None:
    """Have the kernel end this process when its parent ends for any reason."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main()

"""Probe PyTorch, OpenGL and Procgen in a process of its own, as the control plane loads neither."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

# Loading PyTorch takes two seconds, and over a network file system that others use a minute.
PATIENCE_S = 60.0

Facts = Mapping[str, Any]
# The facts about "torch", "drawing" or "procgen" from :mod:`jobs.probe`; `broken` is why there are none.
Probe = Callable[[str], Facts]


class Probing:
    """The probing process, while the block lasts. A call with a probe's name waits for its facts.

    There is an answer within ``patience`` seconds, even if the libraries crash or hang.
    """

    def __init__(self, patience: float | None = None, python: str = sys.executable) -> None:
        self._patience, self._python = PATIENCE_S if patience is None else patience, python
        self._process: subprocess.Popen[bytes] | None = None
        self._facts: dict[str, Facts] = {}
        self._unread, self._over = b"", ""

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()
        self._deadline = time.monotonic() + self._patience
        # -P: do not import a folder named jobs or torch in the current folder.
        argv = [self._python, "-P", "-m", "jobs.probe"]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._over = f"{self._python} cannot be started: {error.strerror}"
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._process is not None:
            self._end(self._process)
            assert self._process.stdout is not None
            self._process.stdout.close()
        self._errors.close()

    def __call__(self, name: str) -> Facts:
        while name not in self._facts and not self._over:
            self._over = self._read()
        return self._facts.get(name, {"broken": self._over})

    def _read(self) -> str:
        """Read facts from the process; return why no more will come, or an empty text."""
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        if not select.select([pipe], [], [], max(0.0, self._deadline - time.monotonic()))[0]:
            self._end(self._process)
            return f"no answer within {self._patience:.0f} s"
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return self._exit_reason(self._process.wait())
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            facts = json.loads(line)
            self._facts[facts.pop("probe")] = facts
        return ""

    def _exit_reason(self, code: int) -> str:
        if code < 0:
            return f"the process that loaded it was killed by {_signal_name(-code)}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process that loaded it ended with exit code {code}"

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the process group has ended
        process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""Run a Python module as a child process that exchanges lines of JSON."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import Any


class JsonProcess:
    """The child process `python -m module`: it reads a request per line and writes a reply per line.

    Requests are no arguments: other users of the machine can read those. With ``own_session`` Ctrl-C does not
    reach it.
    """

    def __init__(self, module: str, *, own_session: bool = False) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        # -P: a folder named jobs in the working directory must not shadow this package.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=own_session,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def fileno(self) -> int:
        """Return the descriptor of its replies, to wait for one."""
        return self._replies.fileno()

    def send(self, request: Any) -> None:
        """Send a request; that the process has ended shows in :meth:`receive`."""
        with suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()

    def receive(self, patience: float | None = None) -> Any:
        """Return the next reply. Raises ``TimeoutError`` after ``patience`` s, ``EOFError`` at the end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            if not selector.select(patience):
                raise TimeoutError
        line = self._replies.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def error_lines(self) -> list[str]:
        """Return what it wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip().splitlines()

    def close(self, patience: float = 0.0) -> int:
        """Close its input, kill it after ``patience`` seconds, and return its exit code."""
        with suppress(BrokenPipeError):
            self._requests.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        self._replies.close()
        self._errors.close()
        return code

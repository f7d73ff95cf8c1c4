"""Messages about the sweep, sent by the command that the grid names (`notify`)."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import IO

from jobs.worker.assignment import Assignment
from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import SubmissionEntry

# Seconds for a command, and for those still at work when the worker has to leave soon.
PATIENCE_S, HURRY_S = 20.0, 5.0


class Occasion(Enum):
    """What a message is about."""

    END = "end"
    FAILURE = "failure"
    BUDGET = "budget"


class Notices:
    """The messages of one submission, each sent at most once, by the first of its workers to see the reason.

    A file of the sweep marks the message before it is sent. A command that fails is named in the worker's
    output and changes nothing else.
    """

    def __init__(self, sweep: SweepDir, submission: SubmissionEntry, patience: float = PATIENCE_S) -> None:
        self._sweep, self._submission, self._patience = sweep, submission, patience
        self._sent: set[Occasion] = set()
        self._commands: list[tuple[subprocess.Popen[bytes], float]] = []

    def send(self, occasion: Occasion, message: Callable[[], str]) -> None:
        """Start the command, unless this submission's message of that kind is sent already."""
        command = self._submission.notify
        if not command or occasion in self._sent:
            return
        self._sent.add(occasion)
        mark = f"{self._submission.number:04d}-{occasion.value}"
        try:
            if not self._sweep.mark_notice(mark, secrets.token_hex(8)):
                return
            text = f"{self._sweep.name}: {message()}"
            words = {"event": occasion.value, "sweep": self._sweep.name, "message": text}
            argv = [re.sub(r"\{(event|sweep|message)\}", lambda m: words[m[1]], item) for item in command]
            self._start(argv, text)
        except (OSError, OrchestrateError, ValueError) as error:
            self._complain(command[0], str(error))

    def send_end(self, assignment: Assignment) -> None:
        """Send the last message if every run of the submission is over."""
        run_ids = [run_id for job in self._submission.jobs for run_id in job.run_ids]
        if not self._submission.notify or not all(map(assignment.is_over, reversed(run_ids))):
            return

        def ended() -> str:
            done = sum(self._sweep.run(run_id).has_result() for run_id in run_ids)
            others = f", {len(run_ids) - done} failed or cancelled" if done < len(run_ids) else ""
            return f"ended: {done} of {len(run_ids)} runs done{others}"

        self.send(Occasion.END, ended)

    def attend(self) -> None:
        """End commands that take too long, and name those that failed."""
        for process, until in list(self._commands):
            code = process.poll()
            if code is None and time.monotonic() < until:
                continue
            if code is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if code != 0:
                problem = f"took more than {self._patience:g} s" if code is None else f"exit code {code}"
                self._complain(str(process.args[0]), problem)  # type: ignore[index]
            self._commands.remove((process, until))

    def finish(self, *, hurry: bool) -> None:
        """Wait for the commands at work."""
        if hurry:
            latest = time.monotonic() + HURRY_S
            self._commands = [(process, min(until, latest)) for process, until in self._commands]
        while self._commands:
            with suppress(subprocess.TimeoutExpired):
                process, until = self._commands[0]
                process.wait(max(0.0, until - time.monotonic()))
            self.attend()

    def _start(self, argv: list[str], text: str) -> None:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()),
        )
        self._commands.append((process, time.monotonic() + self._patience))
        assert process.stdin is not None
        _fill(process.stdin, text)

    @staticmethod
    def _complain(program: str, problem: str) -> None:
        sys.stderr.write(f"notify: {program}: {problem}: no message was sent; the runs go on\n")


def _fill(pipe: IO[bytes], text: str) -> None:
    """Write the message to the command's input, where it fits at once, and close it."""
    with suppress(BrokenPipeError), pipe:
        pipe.write(text.encode() + b"\n")

"""``python -P -m jobs.instance RESULTS SWEEP TOKEN --hold SECONDS``: run a job on a cloud instance.

Starts a worker, sends new files to a store at once (``--store WHERE``), and holds the instance until all
files are safe: in the store, or at home, which leaves a mark in the tree. The instance is taken down when
this process ends.

Its output is for people. Its exit code is the worker's, 2 for bad input.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Protocol

from jobs.cloud.delivery import Courier, Delivery
from jobs.cloud.store import open_store
from jobs.training.processes.process_tree import die_with_parent
from jobs.training.records import provenance
from jobs.worker.assignment import find_job, pool_of
from jobs.worker.scheduler_job import MAILBOX_VARIABLE, VARIABLES
from jobs.worker.signals import STOP_SIGNALS
from orchestrator.core.errors import DamagedFileError, OrchestrateError, StorageError
from orchestrator.core.secret_detection import looks_secret
from orchestrator.core.types import Job
from orchestrator.rundir import Event, SweepDir
from orchestrator.rundir.attempts.holder import JOB_VARIABLE
from orchestrator.rundir.copies.handover import Handover, JobFiles, WorkerEnd
from orchestrator.rundir.copies.synced import require_own
from orchestrator.rundir.files.plain_files import open_to_write, read_plain
from orchestrator.rundir.records.journal import CLAIMED, ENDED
from orchestrator.rundir.records.ledger_entries import SubmissionEntry, obtained_prices

_POLL_S = 0.2
# Between two looks at the job's progress.
_LOOK_S = 2.0
# Results are waited for this long whatever the budget: home exchanges more often.
_LEAST_HOLD_S = 60.0
# For a last delivery after a signal during the hold.
_LAST_S = 15.0
_INTERRUPTED, _KILLED = 130, 128 + signal.SIGKILL
# SkyPilot may have the machine from Slurm; that Slurm job is not this job.
_FOREIGN = (*VARIABLES, JOB_VARIABLE)
_TAIL_LINES = 5
# Where SkyPilot leaves scripts on an instance, with the secrets of the job's environment in them.
_SCRIPTS = (
    "/tmp/sky_app_*",  # noqa: S108 (others' names)
    "/tmp/sky_setup_*",  # noqa: S108
    "/tmp/sky_task_*",  # noqa: S108
    "~/.sky/sky_app/*",
)
_LEAST_SECRET = 8
# Characters that quoting in a script leaves unchanged.
_PLAIN = re.compile(rf"[\w.+/=@:-]{{{_LEAST_SECRET},}}", re.ASCII)


class Work(Protocol):
    """The job's worker."""

    def ended(self) -> int | None:
        """Return the worker's exit code as a shell reports it; ``None`` while it works."""

    def ask(self, number: int) -> None:
        """Pass a signal on."""


class OwnWorker:
    """A worker started by this process."""

    def __init__(self, sweep: SweepDir, token: str) -> None:
        self._mailbox = sweep.mailbox(token)  # home may have written a signal into it already
        self._asked = 0
        env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        env[provenance.ON_INSTANCE] = "1"
        parent = os.getpid()
        with open_to_write(sweep.worker_output(token), "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "jobs.worker", str(sweep.results), sweep.name, token],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**env, MAILBOX_VARIABLE: str(self._mailbox)},
                start_new_session=True,
                # Killed, this process can hold nothing any more: then the worker is to save and to leave.
                preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
            )

    def ended(self) -> int | None:
        code = self._process.poll()
        if code is not None:
            with suppress(OSError):  # a disk that takes nothing is no reason to end early
                self._mailbox.unlink(missing_ok=True)
        return code if code is None or code >= 0 else 128 - code

    def ask(self, number: int) -> None:
        """Write the signal into the mailbox; send it directly the second time.

        A job may be ended by signalling all its processes, and a worker takes a second signal for *at once*.
        """
        self._asked += 1
        try:
            with open_to_write(self._mailbox, "a", encoding="ascii") as letters:
                letters.write(signal.Signals(number).name.removeprefix("SIG") + "\n")
        except OSError:  # a full disk
            self._asked += 1
        if self._asked > 1:
            self._process.send_signal(number)


class FormerWorker:
    """The worker of a killed predecessor of this process; it may be leaving just now."""

    def __init__(self, sweep: SweepDir, token: str) -> None:
        self._sweep, self._token = sweep, token

    def ended(self) -> int | None:
        log = self._sweep.worker_log(self._token)
        if log is None or log.holder is None:
            return 0  # the token was given up, or folded away: its job is over
        if log.holder.alive():
            return None
        if not log.exited:
            return _KILLED
        return _INTERRUPTED if log.events[-1].exit.asked else 0

    def ask(self, number: int) -> None:
        log = self._sweep.worker_log(self._token)
        if log is not None and log.holder is not None:
            log.holder.signal(number)


class Instance:
    """One job on an instance, from the start of its worker to the end of the hold."""

    def __init__(
        self,
        sweep: SweepDir,
        submission: SubmissionEntry,
        job: Job,
        hold: float,
        courier: Courier | None,
        secrets: Sequence[str],
    ) -> None:
        self._sweep, self._job, self._hold, self._courier = sweep, job, hold, courier
        self._submission = submission
        self._secrets = secrets
        self._handover = Handover(sweep, job.token)
        self._signals: list[int] = []
        self._events_printed = 0
        for number in STOP_SIGNALS:
            signal.signal(number, lambda got, _frame: self._signals.append(got))

    def run(self) -> int:
        """Work and hold; return the worker's exit code."""
        ended = self._ended_before() or WorkerEnd(exit_code=self._work(), time=time.time())
        remove_scripts(_SCRIPTS, os.environ, self._secrets)
        # By the time of the end: one that is begun again holds no longer for it.
        self._hold_on(ended, max(0.0, min(ended.time + self._hold, self._paid_until()) - time.time()))
        return ended.exit_code

    def _paid_until(self) -> float:
        """Return until when the job's share of the budget pays for the wait for its results."""
        allowance, submission = self._job.allowance, self._submission
        if allowance is None:
            return math.inf
        price = obtained_prices(self._sweep.read_ledger(strict=False)).get(self._job.token)
        paid = submission.cost.lifetime(allowance, price) - (submission.cost.idle or 0.0)
        return max(submission.time + paid, time.time() + _LEAST_HOLD_S)

    def _ended_before(self) -> WorkerEnd | None:
        try:
            return self._handover.ended()
        except DamagedFileError:
            return None

    def _work(self) -> int:
        work = self._begin()
        next_look = 0.0
        while (code := work.ended()) is None:
            while self._signals:
                number = self._signals.pop(0)
                say(f"received {signal.Signals(number).name}: the runs save and leave")
                work.ask(number)
            if time.monotonic() >= next_look:
                self._print_events()
                if self._courier is not None:
                    self._courier.turn()
                next_look = time.monotonic() + _LOOK_S
            time.sleep(_POLL_S)
        self._print_events()
        say(f"the worker ended with exit code {code}")
        if code:
            self._print_output()
        return code

    def _begin(self) -> Work:
        token, number = self._job.token, len(self._job.run_ids)
        if self._sweep.has_begun(token):
            say(f"job {token} of sweep {self._sweep.name} was begun before: no worker is started again")
            return FormerWorker(self._sweep, token)
        runs = f"{number} run{'s' * (number != 1)}"
        say(f"job {token} of sweep {self._sweep.name} begins: {runs}, {self._job.slots} at once")
        return OwnWorker(self._sweep, token)

    def _hold_on(self, ended: WorkerEnd, seconds: float) -> None:
        """Wait until the job's files are safe, for this many seconds at most."""
        end = time.monotonic() + seconds
        self._signals.clear()
        self._mark(ended)
        where = "the store has everything" if self._courier else "home has everything"
        say(f"the instance is held until {where}, for {seconds:.0f} s at most")
        while not self._is_safe():
            if self._courier is not None:
                self._courier.turn(ended=True)
            if self._signals and not self._last_delivery(end):
                say("stopped: files that are not at home are lost with this instance")
                return
            if time.monotonic() >= end:
                say(f"held for {seconds:.0f} s: files that are not at home are lost with this instance")
                return
            time.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))

    def _mark(self, ended: WorkerEnd) -> None:
        try:
            self._handover.mark_ended(ended)
        except StorageError as error:  # home sees the end of the SkyPilot job, too
            say(f"the end of the job could not be marked: {error}")

    def _last_delivery(self, end: float) -> bool:
        """Deliver once more within a short time; return whether the store has everything."""
        if self._courier is None:
            return False
        say(f"stopped: one more delivery, for {_LAST_S:.0f} s at most")
        self._signals.clear()
        self._courier.hurry()
        self._courier.turn(ended=True)
        end = min(end, time.monotonic() + _LAST_S)
        while self._courier.is_busy and not self._signals and time.monotonic() < end:
            time.sleep(_POLL_S)
        return self._courier.is_done

    def _is_safe(self) -> bool:
        if self._handover.is_safe:
            say("everything is at home")
            return True
        if self._courier is not None and self._courier.is_done:
            say("everything is in the store")
            return True
        return False

    # What people see

    def _print_events(self) -> None:
        """Print the worker's new journal entries."""
        try:
            log = self._sweep.worker_log(self._job.token)
        except OSError:  # as above
            return
        for event in () if log is None else log.events[self._events_printed :]:
            self._events_printed += 1
            if text := _wording(event):
                say(text)

    def _print_output(self) -> None:
        try:
            output = read_plain(self._sweep.worker_output(self._job.token)).decode(errors="replace")
        except (DamagedFileError, OSError):
            return
        for line in output.splitlines()[-_TAIL_LINES:]:
            say(f"  {line}")


def remove_scripts(
    patterns: Iterable[str], environment: Mapping[str, str], names: Collection[str] = ()
) -> None:
    """Remove files of this user that hold a secret of the environment; no process reads them any more.

    Secrets are the variables ``names`` and those with a name that looks like a secret. An instance that is
    stopped, and not taken down, keeps its disk.
    """
    found = {
        value
        for name, value in environment.items()
        if value and (name in names or (looks_secret(name) and len(value) >= _LEAST_SECRET))
    }
    secrets = [_unquoted_part(value).encode(errors="surrogateescape") for value in found]
    if not secrets:
        return
    for path in (Path(name) for pattern in patterns for name in glob(os.path.expanduser(pattern))):
        with suppress(OSError, DamagedFileError):
            if path.lstat().st_uid == os.getuid():
                text = read_plain(path)
                if any(secret in text for secret in secrets):
                    path.unlink()


def _unquoted_part(secret: str) -> str:
    """Return the part of a secret that stands unchanged in a script, however the whole is quoted."""
    return max(_PLAIN.findall(secret), key=len, default=secret)


def _wording(event: Event) -> str:
    if event.kind == CLAIMED:
        return f"run {event.run_id}: attempt {event.attempt} begins"
    if event.kind == ENDED:
        end = event.end
        message, frames = end.message, end.frames
        more = f": {message}" if message else f", {frames:,} frames" if isinstance(frames, int) else ""
        return f"run {event.run_id}: {end.outcome.value}{more}"
    return ""


def say(text: str) -> None:
    """Print a line with the time of day. The reader of the output may be gone."""
    try:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201 (what `sky logs` shows)
    except OSError:
        pass


def serve(asked: argparse.Namespace) -> int:
    """Run the job of this token; return the worker's exit code."""
    sweep = SweepDir.existing(asked.results.absolute(), asked.sweep)
    require_own(sweep)
    submission, job = find_job(sweep, asked.token)
    courier = None
    if asked.store is not None:
        store = open_store(asked.store)
        delivery = Delivery(
            store, sweep.results, JobFiles(sweep, job.token), list(pool_of(submission, job)), say
        )
        courier = Courier(delivery, store, say)
    try:
        return Instance(sweep, submission, job, asked.hold, courier, asked.secrets).run()
    finally:
        if courier is not None:
            courier.stop()


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -P -m jobs.instance", description="A job on a cloud instance."
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("sweep")
    parser.add_argument("token")
    parser.add_argument("--hold", type=_seconds, required=True, metavar="SECONDS")
    parser.add_argument("--store", metavar="WHERE")
    parser.add_argument("--secrets", nargs="+", default=(), metavar="NAME", help="variables that hold them")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run a job on this instance; return the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        return serve(asked)
    except OrchestrateError as error:
        say(f"error: {error}" + (f"; {error.hint}" if error.hint else ""))
        return error.exit_code


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a delivery that hangs holds up nothing

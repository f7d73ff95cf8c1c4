"""When a job that ends submits what the sweep has left, and how it does."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.worker.leaving import submit_rest
from jobs.worker.leaving.submit_rest import submit_remaining
from jobs.worker.scheduler_job import SlurmJob
from jobs.worker.signals import STOP_SIGNALS
from orchestrator.core.records import plain
from orchestrator.rundir import Event, Holder, SweepDir
from orchestrator.rundir.records.journal import ENDED, STARTED
from tests.helpers import command_run, make_sweep, submit

IN_SLURM = SlurmJob("123_4")

# No shell: some of them unblock what they find blocked.
_PROGRAM = """import sys
from pathlib import Path
states = dict(line.split(":\\t") for line in Path("/proc/self/status").read_text().splitlines())
Path({log!r}).write_text("\\n".join([*sys.argv[1:], states["SigBlk"], states["SigIgn"]]))
"""


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    return make_sweep(results, [command_run(["-c", "pass"])])


@pytest.fixture(autouse=True)
def _as_a_worker() -> Iterator[None]:
    """With the stop signals blocked, and everything as it was afterwards."""
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def proceed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The log of a program in Python's place: its arguments and which signals it has blocked."""
    log, program = tmp_path / "calls", tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{_PROGRAM.format(log=str(log))}")
    program.chmod(0o755)
    monkeypatch.setattr(submit_rest.sys, "executable", str(program))
    monkeypatch.setenv("ORCHESTRATE_FEED", "1")
    return log


def journal(sweep: SweepDir, token: str, outcomes: list[str]) -> None:
    started = Event(STARTED, time.time(), data={"holder": plain(Holder.current())})
    log = sweep.take_token(token, started)
    assert log is not None
    for attempt, outcome in enumerate(outcomes, start=1):
        log.append(Event(ENDED, time.time(), sweep.run_ids()[0], attempt, {"outcome": outcome}))


@pytest.mark.parametrize(
    ("outcomes", "fed"),
    [(["failed"] * 3, True), (["failed", "done", "failed"], False), (["interrupted"] * 4, False)],
)
def test_many_failures_are_looked_into(
    sweep: SweepDir, proceed: Path, outcomes: list[str], fed: bool
) -> None:
    token = submit(sweep).token
    journal(sweep, token, outcomes)
    submit_remaining(sweep, token, IN_SLURM, wanted=False)
    assert proceed.exists() is fed


def test_failures_of_earlier_submissions_were_looked_into(sweep: SweepDir, proceed: Path) -> None:
    token = submit(sweep).token
    journal(sweep, token, ["failed"] * 3)
    submit(sweep)
    submit_remaining(sweep, token, IN_SLURM, wanted=False)
    assert not proceed.exists()
    submit_remaining(sweep, token, IN_SLURM, wanted=True)
    assert proceed.read_text().splitlines()[:3] == ["-P", "-m", "orchestrator.control.continue_from_job"]


def test_what_submits_can_be_stopped(sweep: SweepDir, proceed: Path) -> None:
    """It is started by a process that has the signals blocked."""
    submit_remaining(sweep, submit(sweep).token, IN_SLURM, wanted=True)
    *_, blocked, ignored = proceed.read_text().splitlines()
    ours = sum(1 << number - 1 for number in STOP_SIGNALS)
    assert (int(blocked, 16) | int(ignored, 16)) & ours == 0

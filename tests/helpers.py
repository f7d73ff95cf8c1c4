"""What several tests share: waiting, sweeps of tiny runs, and workers as real processes."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orchestrator.backends.base import Backend
from orchestrator.config.trainers import get_trainer
from orchestrator.control.submit import (
    SubmissionReport,
    inspect_sweep,
    plan_sweep,
    submit_checked,
)
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources, Run, RunState, Sweep
from orchestrator.planning.plan import AS_USUAL, SubmitOptions
from orchestrator.rundir import AttemptDir, IndexRow, LedgerEntry, Result, RunDir, SweepDir
from orchestrator.rundir.records.ledger_entries import OtherEntry, parse_entry
from orchestrator.status.survey import RunStatus, Survey

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
COMMANDS = Path(__file__).parent / "commands"
# How long anything may take on a machine that is busy with other things.
PATIENCE_S = 900.0


def surveyed(
    states: Mapping[str, RunState], reasons: Mapping[str, str] | None = None
) -> Callable[[SweepDir], Survey]:
    """Return a function that surveys any sweep as these states by run id; it reads no folder."""
    statuses = {
        run_id: RunStatus(run_id, state, message=(reasons or {}).get(run_id))
        for run_id, state in states.items()
    }
    return lambda _: Survey([], statuses, frozenset())


def from_cell(text: str) -> str:
    """A text before it was escaped for a CSV cell."""
    return re.sub(r"^'(?='*[=+\-@\t\r])", "", text)


def wait_for(predicate: Callable[[], T], timeout: float = PATIENCE_S, what: str = "what was awaited") -> T:
    """Poll until ``predicate`` is true, and return what it returned; fail after ``timeout`` seconds."""
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        value = predicate()
        if value:
            return value
        now = time.monotonic()
        if now > began + timeout:
            raise AssertionError(f"{what} did not happen within {timeout} s")
        # What is waited for needs the processor too: rest as long as it took to ask, and in a long wait more.
        time.sleep(max(0.02, now - asked, min(0.1, (now - began) / 100)))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar file of ours. Only newer releases of Python 3.11 know `extractall(filter=…)`."""
    with tarfile.open(archive) as opened:
        opened.extraction_filter = lambda member, _: member
        opened.extractall(folder)


def free_port() -> int:
    """A free port of loopback, below those that the kernel gives to outgoing connections."""
    while True:
        port = secrets.randbelow(22000) + 10000  # not from a seed that tests set alike in several processes
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def command_run(argv: Sequence[str | Path], seed: int = 0, **overrides: Any) -> Run:
    """A run of the `command` trainer under this Python."""
    command = [sys.executable, *(str(item) for item in argv)]
    return get_trainer("command").identify({"command": command, **overrides}, seed, threads=1)


def count_runs(
    audit: Path, number: int, steps: int = 20, seconds: float | Path = 0.005, every: int = 3
) -> list[Run]:
    """Runs of tests/commands/count.py that leave their trace in ``audit``; ``seconds`` may be a file.

    In the order of their ids, in which a worker of one slot does them (see :func:`submit`).
    """
    argv = [COMMANDS / "count.py", audit, str(steps), str(seconds), str(every)]
    return sorted((command_run(argv, seed) for seed in range(number)), key=lambda run: run.run_id)


def make_sweep(results: Path, runs: Iterable[Run], name: str = "tiny") -> SweepDir:
    """A sweep's folder with these runs described, as a submission leaves it."""
    sweep = SweepDir(results, name)
    sweep.create()
    runs = list(runs)
    sweep.record_grid("name: tiny\n")
    sweep.write_index([IndexRow(run.run_id, True, run.point) for run in runs])
    assert sweep.describe(runs) == {}
    return sweep


def submit(
    sweep: SweepDir,
    run_ids: Iterable[str] | None = None,
    slots: int = 1,
    resources: Resources | None = None,
) -> Job:
    """Put a job into the ledger, as a submission does; nothing is started."""
    entries = sweep.read_ledger()
    number = entries[-1].number + 1 if entries else 1
    job = Job(
        token=f"{number:04d}-0001",
        sweep=sweep.name,
        target="local",
        run_ids=tuple(run_ids if run_ids is not None else sweep.run_ids()),
        slots=slots,
        resources=resources or Resources(),
    )
    data = {
        "time": time.time(),
        "grid": 1,
        "backend": "local",
        "target": "local",
        "on": "local",
        "trainer": "command",
        "jobs": [plain(job)],
        "job_ids": {},
        "skipped": {},
    }
    assert enter(sweep, "submission", data) == number
    return job


def submit_sweep(
    sweep: Sweep, sweep_dir: SweepDir, backend: Backend, options: SubmitOptions = AS_USUAL
) -> SubmissionReport:
    """Inspect, plan and submit a sweep, without the check of its runs."""
    planned = plan_sweep(inspect_sweep(sweep, sweep_dir), backend.capacity(), options)
    return submit_checked(planned, backend)


def enter(sweep: SweepDir, kind: str, data: Mapping[str, Any]) -> int:
    """Append a ledger entry with just this in its file; its number."""
    return sweep.add_to_ledger(OtherEntry(name=kind, more=data))


def ledger_entry(number: int, kind: str, data: Mapping[str, Any]) -> LedgerEntry:
    """A ledger entry as it is read from its file."""
    return parse_entry({"kind": kind, **data}, number)


def start_worker(
    sweep: SweepDir, job: Job, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """A worker as a process of its own session; its words go where a backend puts them."""
    argv = [*prefix, sys.executable, "-m", "jobs.worker", str(sweep.results), sweep.name, job.token]
    with open(sweep.worker_output(job.token), "ab") as output:
        return subprocess.Popen(
            argv,
            cwd=sweep.results.parent,  # a project of few files, which each run gets
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def work(sweep: SweepDir, timeout: float = PATIENCE_S, slots: int = 1) -> int:
    """Submit all of the sweep's runs to one worker and wait for it; its exit code."""
    return finish(start_worker(sweep, submit(sweep, slots=slots)), timeout)


def published(run: RunDir) -> Result:
    """The result of a run that has one."""
    result = run.result()
    assert result is not None, run.path
    return result


def finish(process: subprocess.Popen[bytes], timeout: float = PATIENCE_S) -> int:
    """The process's exit code; it is killed, and the test fails, after ``timeout`` seconds."""
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def children(pid: int) -> list[int]:
    """The processes that this one started and that are not reaped."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def run_processes(worker: int) -> list[int]:
    """The processes of a worker's runs, each below its keeper."""
    return [run for keeper in children(worker) for run in children(keeper)]


def running(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(") ", 1)[1][0] not in "ZX"


def signals_pending(pid: int) -> bool:
    """Whether signals were sent to the process that it has not taken yet."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["ShdPnd"], 16) != 0


def unshared(*flags: str) -> list[str]:
    """The beginning of a command line that runs in namespaces of its own (flags of unshare)."""
    prefix = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), *flags]
    answer = subprocess.run([*prefix, "true"], capture_output=True, text=True)
    if answer.returncode:
        pytest.fail(
            f"this test needs namespaces of its own, and `{' '.join(prefix)}` says: {answer.stderr.strip()}. "
            "Run it as root, or allow user namespaces (sysctl user.max_user_namespaces)"
        )
    return prefix


def inodes(folder: Path) -> int:
    """Files and folders below and with ``folder``."""
    return 1 + sum(1 for _ in folder.rglob("*"))


def events(sweep: SweepDir, run: RunDir | None = None) -> list[tuple[str, int | None, dict[str, Any]]]:
    """Kind, attempt and data of what journals tell, of one run or of all."""
    return [
        (event.kind, event.attempt, dict(event.data))
        for log in sweep.read_journals()
        for event in log.events
        if run is None or event.run_id == run.run_id
    ]


def end_record(attempt: AttemptDir) -> dict[str, Any]:
    """How an attempt ended, as its file has it; empty if that is not on record."""
    return plain(attempt.end()) or {}

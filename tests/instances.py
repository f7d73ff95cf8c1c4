"""Jobs as cloud instances run them, without a cloud: the real process, and what can be seen of it outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.core.types import Job
from orchestrator.rundir import SweepDir
from orchestrator.rundir.copies.handover import Handover
from tests import helpers


class InstanceProcess:
    """`jobs.instance` as SkyPilot starts it: in a session of its own, its words in a file."""

    def __init__(
        self,
        sweep: SweepDir,
        job: Job,
        *,
        hold: float = 120.0,
        store: str | Path | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.sweep, self.job = sweep, job
        self.handover = Handover(sweep, job.token)
        self._output = sweep.results.parent / "instance.out"
        argv = [sys.executable, "-P", "-m", "jobs.instance", str(sweep.results), sweep.name, job.token]
        argv += ["--hold", str(hold), *([] if store is None else ["--store", str(store)])]
        argv += ["--secrets", *secrets] if secrets else []
        with open(self._output, "ab") as output:
            self.process = subprocess.Popen(
                argv,
                cwd=sweep.results.parent,
                env={**os.environ, "PYTHONPATH": str(helpers.ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def worker(self) -> int:
        """The pid of its worker, once that has begun its job."""
        log = helpers.wait_for(lambda: self.sweep.worker_log(self.job.token), what="the worker's start")
        assert log.holder is not None
        return log.holder.pid

    def says(self, text: str) -> None:
        """Wait until it said so."""
        helpers.wait_for(lambda: text in self.output, timeout=600, what=f"{text!r} in {self.output!r}")

    @property
    def output(self) -> str:
        """All words so far, also of those before it in the same tree."""
        return self._output.read_text()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self, timeout: float = helpers.PATIENCE_S) -> int:
        return helpers.finish(self.process, timeout)

    def end(self) -> None:
        """Kill it and its worker, whatever they are at."""
        log = self.sweep.worker_log(self.job.token)
        for pid in (self.process.pid, *([log.holder.pid] if log and log.holder else [])):
            helpers.kill(pid, signal.SIGKILL)
        self.process.wait()


def checkpoints(sweep: SweepDir) -> list[Path]:
    return sorted(sweep.path.glob("runs/*/attempts/*/checkpoints/*.pt"))


def check_order(sweep: SweepDir, jobs: Iterable[Job]) -> None:
    """Assert that in this tree each result came after its files, and the word of the end after everything.

    By the times of names, which nobody can set. All results are whole.
    """

    def named(path: Path) -> int:
        return path.stat().st_ctime_ns

    for run_id in sweep.run_ids():
        run = sweep.run(run_id)
        if (result := run.result()) is not None:
            run.verify(result, checksums=True)
            assert named(run.result_path) >= max(named(run.path / item.path) for item in result.manifest)
    for job in jobs:
        ended = sweep.path / Handover(sweep, job.token).ended_name
        own = [sweep.run(run_id).path for run_id in job.run_ids]
        files = [path for folder in own for path in folder.rglob("*") if path.is_file()]
        assert named(ended) >= max(map(named, files))

"""The local backend: detached workers, ids that name one process only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.backends.base import Backend
from orchestrator.backends.local import LocalBackend
from orchestrator.backends.script import Script, Setting
from orchestrator.config.code.snapshot import freeze
from orchestrator.core.errors import BackendUnavailableError, StorageError
from orchestrator.core.types import Array, Job, JobState, Resources
from orchestrator.rundir import SweepDir
from tests import helpers
from tests.helpers import wait_for

JOB = Job("0001-0001", "one", "local", (), 1, Resources())


def setting_of(sweep: SweepDir) -> Setting:
    sweep.create()
    return Setting(sweep, freeze(sweep, sweep.results.parent))


def submit(backend: Backend, command: str, results: Path) -> str:
    """Have the backend run a command in place of a worker; its id."""
    setting = setting_of(SweepDir(results, "one"))
    script = Script(Array(JOB.token, (JOB,), JOB.resources), command, setting)
    return backend.submit(script)[JOB.token]


@pytest.fixture
def backend() -> Backend:
    return LocalBackend()


def test_a_job_runs_detached_and_ends(backend: Backend, results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1))
    job = helpers.submit(sweep)
    setting, array = setting_of(sweep), Array(job.token, (job,), job.resources)
    job_id = backend.submit(Script(array, backend.render(array, setting), setting))[job.token]
    assert backend.poll([job_id])[job_id].state is JobState.RUNNING
    pid = int(job_id.split(":")[3])
    assert os.getsid(pid) == pid
    wait_for(lambda: backend.poll([job_id])[job_id].state is JobState.ENDED)
    assert sweep.run(sweep.run_ids()[0]).result_path.exists()
    backend.cancel([job_id])


def test_a_job_outlives_the_command_line(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from orchestrator.backends.local import LocalBackend\n"
        "from tests.integration.test_local_backend import submit\n"
        f"print(submit(LocalBackend(), 'sleep 100', Path({str(tmp_path)!r})), flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    answer = subprocess.run([sys.executable, "-c", script], cwd=helpers.ROOT, capture_output=True, text=True)
    job_id = answer.stdout.strip()
    backend = LocalBackend()
    assert backend.poll([job_id])[job_id].state is JobState.RUNNING
    backend.cancel([job_id])
    wait_for(lambda: backend.poll([job_id])[job_id].state is JobState.ENDED)


def test_an_id_never_means_another_process(backend: Backend, tmp_path: Path) -> None:
    job_id = submit(backend, "true", tmp_path)
    wait_for(lambda: backend.poll([job_id])[job_id].state is JobState.ENDED)
    time.sleep(0.05)  # start times are told in ticks of 10 ms
    bystander = subprocess.Popen(["sleep", "100"])
    kind, boot, namespace, _, started = job_id.split(":")
    reused = f"{kind}:{boot}:{namespace}:{bystander.pid}:{started}"
    assert backend.poll([reused])[reused].state is JobState.ENDED
    backend.cancel([reused])
    assert bystander.poll() is None
    bystander.send_signal(signal.SIGKILL)
    assert bystander.wait() == -signal.SIGKILL


@pytest.mark.parametrize("job_id", ["", "slurm:7", "local:00000000:1:1:1", "local:x:1:1:1"])
def test_of_ids_from_elsewhere_nothing_is_known(backend: Backend, job_id: str) -> None:
    assert backend.poll([job_id])[job_id].state is JobState.UNKNOWN
    backend.cancel([job_id])


def test_what_cannot_start_is_an_error(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="no-such-program"):
        submit(backend, "no-such-program", tmp_path)


def test_where_no_output_can_be_written_nothing_starts(backend: Backend) -> None:
    with pytest.raises((StorageError, FileNotFoundError)):
        submit(backend, "true", Path("/proc/none"))


def test_capacity_is_what_this_process_may_use(backend: Backend) -> None:
    capacity = backend.capacity()
    assert capacity.target == "local"
    assert capacity.cores == len(os.sched_getaffinity(0))

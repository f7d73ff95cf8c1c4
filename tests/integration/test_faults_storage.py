"""Full disks, read-only folders, jumping clocks, damaged files: named, nothing corrupted, the rest goes on.

Mounts its own small file systems: as root, or under `unshare --user --map-root-user --mount`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.core.types import Job, Run
from orchestrator.rundir import RunDir, SweepDir
from tests import helpers, warm
from tests.audit import as_tuples, check_finished, expected_rows
from tests.disks import fill, mounted
from tests.helpers import enter


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, 4 MiB."""
    with mounted(tmp_path / "disk") as folder:
        yield folder


def slow_runs(folder: Path) -> tuple[list[Run], Callable[[], object]]:
    """Two runs that stay in the middle until they are told to hurry."""
    pace = folder / "pace"
    pace.write_text("0.02 30")
    runs = helpers.count_runs(folder / "audit", 2, steps=60, seconds=pace)
    return runs, lambda: pace.write_text("0.001")


def worker_argv(sweep: SweepDir, job: Job) -> list[str]:
    return [sys.executable, "-m", "jobs.worker", str(sweep.results), sweep.name, job.token]


def run_worker(sweep: SweepDir, job: Job) -> tuple[int, str]:
    """A worker whose words do not go to the results tree: exit code and words."""
    folder = sweep.results.parent
    answer = subprocess.run(worker_argv(sweep, job), cwd=folder, capture_output=True, text=True, timeout=600)
    return answer.returncode, answer.stderr


@pytest.mark.disk
@pytest.mark.parametrize("leave", [100_000, 30_000])
def test_a_full_disk_stops_the_worker_and_loses_nothing(small_disk: Path, tmp_path: Path, leave: int) -> None:
    audit = tmp_path / "audit"
    runs = helpers.count_runs(audit, 4)
    sweep = helpers.make_sweep(small_disk, runs)
    job = helpers.submit(sweep)
    filler = fill(small_disk, leave)
    code, words = run_worker(sweep, job)
    assert code == 3, words
    assert "the disk is full" in words
    assert "Traceback" not in words
    filler.unlink()
    code, words = run_worker(sweep, helpers.submit(sweep))
    assert code == 0, words
    check_finished(sweep, runs, audit)


@pytest.mark.disk
def test_a_full_disk_elsewhere_concerns_one_run_only(small_disk: Path, results: Path, tmp_path: Path) -> None:
    fill(small_disk, 0)
    script = tmp_path / "writer.py"
    script.write_text(f"open({str(small_disk / 'big')!r}, 'wb').write(bytes(100_000))")
    other = helpers.count_runs(tmp_path / "audit", 1)[0]
    sweep = helpers.make_sweep(results, [helpers.command_run([script]), other])
    assert helpers.work(sweep) == 0
    full = next(run_id for run_id in sweep.run_ids() if run_id != other.run_id)
    end = helpers.end_record(sweep.run(full).attempt(1))
    assert (end["outcome"], end["reason"]) == ("interrupted", "disk full")
    assert sweep.run(other.run_id).result_path.exists()


@pytest.mark.disk
def test_a_read_only_tree_is_named(small_disk: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(small_disk, helpers.count_runs(tmp_path / "audit", 1))
    job = helpers.submit(sweep)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    code, words = run_worker(sweep, job)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert code == 3
    assert "read-only" in words
    assert str(small_disk) in words
    assert not sweep.read_journals()


@pytest.mark.disk
def test_a_disk_that_fills_meanwhile_stops_the_worker(small_disk: Path, tmp_path: Path) -> None:
    runs, hurry = slow_runs(tmp_path)
    sweep = helpers.make_sweep(small_disk, runs)
    job = helpers.submit(sweep)
    process = subprocess.Popen(worker_argv(sweep, job), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    helpers.wait_for(lambda: sweep.run(runs[0].run_id).checkpoints())
    subprocess.run(["dd", "if=/dev/zero", f"of={small_disk}/filler", "status=none"], check=False)
    hurry()
    _, words = process.communicate(timeout=600)
    assert process.returncode == 3, words
    assert "cannot write" in words


@pytest.mark.disk
def test_a_sweep_whose_disk_fills_meanwhile_leaves_with_3_and_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    """Some runs are done, and yet there is nothing to be collected: what is left comes first."""
    with mounted(tmp_path / "disk", "16m") as disk:
        _fill_in_mid_sweep(disk, tmp_path)


def _fill_in_mid_sweep(disk: Path, tmp_path: Path) -> None:
    program, filler = tmp_path / "program.py", disk / "filler"
    program.write_text(
        "import json, os, pathlib\n"
        f"filled = pathlib.Path({str(tmp_path / 'filled')!r})\n"
        "if os.environ['ORCHESTRATE_SEED'] == '1' and not filled.exists():\n"
        "    filled.touch()\n"
        f"    with open({str(filler)!r}, 'wb') as file:\n"
        "        while True: file.write(bytes(1000)) and file.flush()\n"
        "row = {'iteration': 1, 'frames': 1, 'total': 1, 'metrics': {'return': 1.0}}\n"
        "open(os.environ['ORCHESTRATE_METRICS'], 'a').write(json.dumps(row) + '\\n')\n"
    )
    results, grid = disk / "results", tmp_path / "full.yaml"
    argv = json.dumps([sys.executable, str(program)])
    grid.write_text(f"name: full\ntrainer: command\nbase: {{command: {argv}}}\nmatrix: {{seed: range(4)}}\n")

    def sweep() -> subprocess.CompletedProcess[str]:
        argv = ["sweep", "--grid", grid.name, "--results", str(results), "--slots", "1"]
        command = [sys.executable, "-m", "orchestrator.ui.cli", *argv]
        env = {**os.environ, **warm.COMMANDS, "PYTHONPATH": str(helpers.ROOT)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)

    full = sweep()
    assert full.returncode == 3, full.stdout + full.stderr
    assert "the disk is full" in full.stdout + full.stderr
    assert "orchestrate collect" not in full.stdout
    filler.unlink()
    done = sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "next: orchestrate collect full" in done.stdout


def test_a_clock_that_jumps_moves_no_claim(results: Path, tmp_path: Path) -> None:
    """The file server's clock set back leaves claims from the future, set forward very old ones.

    Neither tells anything about a process that is seen to live, or to be dead.
    """
    runs, hurry = slow_runs(tmp_path)
    sweep = helpers.make_sweep(results, runs)
    first = helpers.start_worker(sweep, helpers.submit(sweep, slots=2))
    helpers.wait_for(lambda: all(sweep.run(run.run_id).checkpoints() for run in runs))
    for run, offset in zip(runs, (+86_400, -86_400), strict=True):
        moment = time.time() + offset
        os.utime(sweep.run(run.run_id).attempt(1).claim_path, (moment, moment))
    second = helpers.start_worker(sweep, helpers.submit(sweep))
    helpers.wait_for(lambda: len(sweep.read_journals()) == 2)
    first.kill()
    first.wait()
    hurry()
    assert helpers.finish(second) == 0
    for run in runs:
        assert as_tuples(sweep.run(run.run_id).history()) == expected_rows(run.seed, 60)
        assert len(sweep.run(run.run_id).attempts()) == 2


def interrupted_sweep(results: Path, tmp_path: Path) -> tuple[SweepDir, list[Run]]:
    """Two runs, both interrupted after a few checkpoints."""
    runs, hurry = slow_runs(tmp_path)
    sweep = helpers.make_sweep(results, runs)
    worker = helpers.start_worker(sweep, helpers.submit(sweep, slots=2))
    helpers.wait_for(lambda: all(len(sweep.run(run.run_id).checkpoints()) == 2 for run in runs))
    worker.kill()
    worker.wait()
    helpers.wait_for(lambda: all(sweep.run(run.run_id).blocked_by() is None for run in runs))
    hurry()
    return sweep, runs


def spoil_claim(run: RunDir) -> Path:
    return overwrite(run.attempt(1).claim_path, b'{"nonce": ')


def spoil_end(run: RunDir) -> Path:
    return overwrite(run.attempt(1).end_path, b"")


def misspell_end(run: RunDir) -> Path:
    return overwrite(run.attempt(1).end_path, b'{"outcome": "gone", "frames": "many"}')


def spoil_result(run: RunDir) -> Path:
    return overwrite(run.result_path, b'{"run_id": "')


def spoil_metrics(run: RunDir) -> Path:
    path = run.attempt(1).metrics
    lines = path.read_bytes().split(b"\n")
    return overwrite(path, b"\n".join([lines[0], b"garbage", *lines[2:]]))


def spoil_description(run: RunDir) -> Path:
    return overwrite(run.description_path, b"[]")


def overwrite(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.nightly(but=["spoil_metrics", "spoil_claim"])
@pytest.mark.parametrize(
    "spoil", [spoil_claim, spoil_end, misspell_end, spoil_result, spoil_metrics, spoil_description]
)
def test_a_damaged_run_is_named_and_the_others_go_on(
    results: Path, tmp_path: Path, spoil: Callable[[RunDir], Path]
) -> None:
    sweep, (damaged, good) = interrupted_sweep(results, tmp_path)
    path = spoil(sweep.run(damaged.run_id))
    assert helpers.work(sweep) == 1
    assert as_tuples(sweep.run(good.run_id).history()) == expected_rows(good.seed, 60)
    assert sweep.run(good.run_id).result_path.exists()
    told = [data for kind, _, data in helpers.events(sweep, sweep.run(damaged.run_id)) if kind == "ended"]
    assert told[-1]["outcome"] == "failed"
    assert str(path) in told[-1]["message"]


def spoil_checkpoint(run: RunDir) -> None:
    newest = run.checkpoints()[0].path
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")


def truncate_checkpoint(run: RunDir) -> None:
    newest = run.checkpoints()[0].path
    newest.write_bytes(newest.read_bytes()[:100])


def cut_last_metrics_line(run: RunDir) -> None:
    path = run.attempt(1).metrics
    path.write_bytes(path.read_bytes() + b'{"iteration": 99, "fram')


def forget_checkpoints(run: RunDir) -> None:
    for file in run.checkpoints():
        file.path.unlink()


@pytest.mark.nightly(but=["spoil_checkpoint"])
@pytest.mark.parametrize(
    "spoil", [spoil_checkpoint, truncate_checkpoint, cut_last_metrics_line, forget_checkpoints]
)
def test_what_can_be_repaired_is(results: Path, tmp_path: Path, spoil: Callable[[RunDir], None]) -> None:
    """A checkpoint that is not whole gives way to the one before, a torn line was never there."""
    sweep, runs = interrupted_sweep(results, tmp_path)
    before = [file.frames for file in sweep.run(runs[0].run_id).checkpoints()]
    spoil(sweep.run(runs[0].run_id))
    assert helpers.work(sweep) == 0
    for run in runs:
        assert as_tuples(sweep.run(run.run_id).history()) == expected_rows(run.seed, 60)
    resumed = (sweep.run(runs[0].run_id).attempt(2).metrics.read_text()).split("\n")[0]
    expected = {spoil_checkpoint: before[1], truncate_checkpoint: before[1], cut_last_metrics_line: before[0]}
    assert f'"frames": {expected[spoil]}' in resumed if spoil in expected else "null" in resumed
    if spoil in (spoil_checkpoint, truncate_checkpoint):
        assert "is damaged" in sweep.run(runs[0].run_id).attempt(2).log.read_text()


@pytest.mark.nightly
def test_a_torn_journal_and_a_stray_ledger_file_stop_nobody(results: Path, tmp_path: Path) -> None:
    sweep, runs = interrupted_sweep(results, tmp_path)
    journal = next((sweep.path / "journals").glob("*.jsonl"))
    journal.write_bytes(journal.read_bytes()[:-20] + b"\n{]\n")
    (sweep.path / "ledger" / ".0001.json.0123.tmp").write_bytes(b"half")
    assert helpers.work(sweep) == 0
    assert sweep.read_journals()[0].damaged >= 1
    assert all(sweep.run(run.run_id).result_path.exists() for run in runs)


def test_a_damaged_ledger_is_named(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1))
    job = helpers.submit(sweep)
    entry = overwrite(sweep.path / "ledger" / "0001.json", b"{")
    assert helpers.finish(helpers.start_worker(sweep, job)) == 2
    assert str(entry) in sweep.worker_output(job.token).read_text()


def test_a_damaged_ledger_entry_hides_no_later_decision(results: Path, tmp_path: Path) -> None:
    sweep, (first, second) = interrupted_sweep(results, tmp_path)
    for run in (first, second):
        enter(sweep, "cancel", {"time": 0, "runs": {run.run_id: 1}})
    overwrite(sweep.path / "ledger" / "0002.json", b'{"kind": "cancel", "runs": [1]}')
    assert helpers.work(sweep) == 0
    assert sweep.run(first.run_id).result_path.exists()
    assert not sweep.run(second.run_id).result_path.exists()

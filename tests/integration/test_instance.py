"""A job on an instance: delivered while it works, held until it is safe, and no longer than it may be."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.core.types import Job
from orchestrator.rundir import RunDir, SweepDir
from tests import helpers
from tests.audit import check_finished
from tests.disks import fill, make_writable, mounted
from tests.helpers import end_record, running, wait_for
from tests.instances import InstanceProcess, check_order, checkpoints

Start = Callable[..., InstanceProcess]


@pytest.fixture
def start(results: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts instances, which are ended with the test."""
    started: list[InstanceProcess] = []

    def begin(sweep: SweepDir, job: Job, **options: object) -> InstanceProcess:
        started.append(InstanceProcess(sweep, job, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for one in started:
        one.end()


@pytest.fixture
def quick(results: Path, tmp_path: Path) -> tuple[SweepDir, Job]:
    """Two runs that are soon done."""
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 2))
    return sweep, helpers.submit(sweep, slots=2)


@pytest.fixture
def slow(results: Path, tmp_path: Path) -> tuple[SweepDir, Job]:
    """Two runs that checkpoint at once, and then go on until they are told to hurry."""
    (tmp_path / "pace").write_text("0.05")
    runs = helpers.count_runs(tmp_path / "audit", 2, steps=1000, seconds=tmp_path / "pace", every=5)
    sweep = helpers.make_sweep(results, runs)
    return sweep, helpers.submit(sweep, slots=2)


def hurry(folder: Path) -> None:
    """Have slow runs finish. In one step: they read the file at any time."""
    (folder / "new pace").write_text("0")
    (folder / "new pace").replace(folder / "pace")


def in_store(store: Path, sweep: SweepDir) -> SweepDir:
    return SweepDir(store, sweep.name)


def only_end(run: RunDir) -> dict[str, object]:
    (attempt,) = run.attempts()
    return end_record(attempt)


def test_it_is_held_until_home_says_so(quick: tuple[SweepDir, Job], start: Start) -> None:
    instance = start(*quick)
    ended = wait_for(instance.handover.ended, timeout=600)
    assert ended.exit_code == 0
    assert ended.time == pytest.approx(time.time(), abs=20)
    instance.says("held until home has everything, for 120 s at most")
    assert running(instance.process.pid)
    instance.handover.mark_safe()
    assert instance.finish() == 0
    for run_id in quick[0].run_ids():
        assert f"run {run_id}: done, 2,000 frames" in instance.output
    assert instance.output.endswith("everything is at home\n")


def test_it_is_held_no_longer_than_it_may_be(results: Path, start: Start) -> None:
    sweep = helpers.make_sweep(results, [helpers.command_run(["-c", "raise SystemExit('no luck')"])])
    instance = start(sweep, helpers.submit(sweep), hold=2)
    ended = wait_for(instance.handover.ended, timeout=600)
    assert instance.finish() == ended.exit_code == 1
    assert 1.9 < time.time() - ended.time < 12
    assert "held for 2 s: files that are not at home are lost" in instance.output


def test_the_store_has_results_last_and_ends_the_hold(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    sweep, job = quick
    instance = start(sweep, job, store=tmp_path / "disk" / "store")
    assert instance.finish() == 0
    assert instance.output.endswith("everything is in the store\n")
    there = in_store(tmp_path / "disk" / "store", sweep)
    assert there.run_ids() == sweep.run_ids()
    assert all(there.run(run_id).result() for run_id in sweep.run_ids())
    check_order(there, [job])
    assert [log.token for log in there.read_journals()] == [job.token]
    assert there.read_index() == sweep.read_index()
    assert not there.worker_output(job.token).exists()


def test_checkpoints_are_delivered_while_it_works(
    slow: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    sweep, job = slow
    instance = start(sweep, job, store=tmp_path / "store")
    there = in_store(tmp_path / "store", sweep)
    first = wait_for(lambda: checkpoints(there), timeout=600)
    wait_for(lambda: set(checkpoints(there)) - set(first), timeout=600, what="a newer checkpoint")
    assert instance.handover.ended() is None
    hurry(tmp_path)
    assert instance.finish() == 0
    names = [path.relative_to(there.path) for path in checkpoints(there)]
    assert names == [path.relative_to(sweep.path) for path in checkpoints(sweep)]
    check_order(there, [job])


def test_a_signal_while_it_works_saves_the_runs(
    slow: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    """To every process of it at once, as SkyPilot ends a job: the worker is not in a hurry for that."""
    sweep, job = slow
    instance = start(sweep, job, store=tmp_path / "store")
    worker = instance.worker()
    wait_for(lambda: len(checkpoints(sweep)) >= 2, timeout=600)
    for pid in (instance.process.pid, worker, *helpers.children(worker), *helpers.run_processes(worker)):
        helpers.kill(pid, signal.SIGTERM)
    assert instance.finish() == 130
    there = in_store(tmp_path / "store", sweep)
    for run_id in sweep.run_ids():
        end = only_end(there.run(run_id))
        assert (end["outcome"], end["reason"]) == ("interrupted", "stopped")
        assert end["checkpointed"] == end["frames"]
    assert "received SIGTERM" in instance.output
    assert not sweep.mailbox(job.token).exists()


def test_a_signal_ends_the_hold(quick: tuple[SweepDir, Job], start: Start) -> None:
    instance = start(*quick)
    instance.says("the instance is held")
    instance.send(signal.SIGINT)
    assert instance.finish() == 0
    assert "stopped: files that are not at home are lost" in instance.output


def test_a_worker_that_is_killed_ends_the_job(
    slow: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    sweep, job = slow
    instance = start(sweep, job, store=tmp_path / "store")
    worker = instance.worker()
    wait_for(lambda: len(checkpoints(sweep)) >= 2, timeout=600)
    helpers.kill(worker)
    assert instance.finish() == 137
    there = in_store(tmp_path / "store", sweep)
    for run_id in sweep.run_ids():
        here, copy = (tree.run(run_id).attempt(1) for tree in (sweep, there))
        assert copy.metrics.read_bytes() == here.metrics.read_bytes()
        assert copy.checkpointed() == here.checkpointed()
    check_order(there, [job])


def test_one_that_is_killed_at_work_and_begun_again(
    slow: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    """Its worker saves and leaves. The next one starts no second worker, and delivers what is left to."""
    sweep, job = slow
    instance = start(sweep, job)
    worker = instance.worker()
    wait_for(lambda: len(checkpoints(sweep)) >= 2, timeout=600)
    instance.send(signal.SIGKILL)
    instance.finish()
    again = start(sweep, job, store=tmp_path / "store")
    assert again.finish() == 130
    assert not running(worker)
    assert "no worker is started again" in again.output
    there = in_store(tmp_path / "store", sweep)
    for run_id in sweep.run_ids():
        assert only_end(there.run(run_id))["reason"] == "stopped"
    check_order(there, [job])


def test_one_that_is_killed_in_its_hold_and_begun_again(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    instance = start(*quick, hold=20)
    instance.says("the instance is held")
    ended = instance.handover.ended()
    instance.send(signal.SIGKILL)
    instance.finish()
    assert ended is not None
    wait_for(lambda: time.time() > ended.time + 2)
    again = start(*quick, hold=2)
    assert again.finish() == 0
    assert "for 0 s at most" in again.output
    last = start(*quick, hold=20)
    wait_for(lambda: again.output.count("the instance is held") == 3)
    assert last.handover.ended() == ended
    last.handover.mark_safe()
    assert last.finish() == 0
    assert again.output.count("begins: 2 runs") == 1


def test_a_store_that_is_away_holds_nothing_up(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.write_text("not mounted")
    instance = start(*quick, store=disk / "store")
    instance.says("the instance is held until the store has everything")
    instance.says("the store took nothing")
    assert instance.output.count("the store took nothing") == 1
    assert all(quick[0].run(run_id).result() for run_id in quick[0].run_ids())
    disk.unlink()
    assert instance.finish() == 0
    assert "the store takes files again" in instance.output
    check_order(in_store(disk / "store", quick[0]), [quick[1]])


def test_home_s_word_ends_the_hold_for_a_store_that_is_away(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    (tmp_path / "disk").write_text("not mounted")
    instance = start(*quick, store=tmp_path / "disk" / "store")
    instance.says("the instance is held")
    instance.handover.mark_safe()
    assert instance.finish() == 0
    assert "everything is at home" in instance.output


def test_a_signal_leaves_time_for_one_more_delivery(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.write_text("not mounted")
    instance = start(*quick, store=disk / "store")
    instance.says("the instance is held")
    instance.says("the store took nothing")
    disk.unlink()
    instance.send(signal.SIGTERM)
    assert instance.finish() == 0
    check_order(in_store(disk / "store", quick[0]), [quick[1]])


@pytest.mark.disk
def test_its_own_disk_is_full(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker ends for it, which cannot be written down. What it saved is delivered all the same."""
    (tmp_path / "pace").write_text("0.05")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")  # copies of its files would be removed at the end, and make room
    runs = helpers.count_runs(tmp_path / "audit", 1, steps=1000, seconds=tmp_path / "pace", every=5)
    with mounted(tmp_path / "disk") as disk:
        sweep = helpers.make_sweep(disk, runs)
        instance = start(sweep, helpers.submit(sweep), store=tmp_path / "store")
        wait_for(lambda: checkpoints(sweep), timeout=600)
        fill(disk)
        assert instance.finish() != 0
        assert "the end of the job could not be marked: cannot write" in instance.output
        saved = {path.name for path in checkpoints(sweep)}
        assert saved == {path.name for path in checkpoints(in_store(tmp_path / "store", sweep))} != set()


@pytest.mark.disk
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_store_that_takes_nothing(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path, trouble: str
) -> None:
    sweep, job = quick
    with mounted(tmp_path / "disk") as disk:
        filler = fill(disk) if trouble == "full" else None
        make_writable(disk, trouble == "full")
        instance = start(sweep, job, store=disk / "store")
        instance.says(f"the store took nothing: it is {trouble}")
        instance.says("the instance is held")
        assert instance.output.count("the store took nothing") == 1
        make_writable(disk, True)
        if filler is not None:
            filler.unlink()
        assert instance.finish() == 0
        check_order(in_store(disk / "store", sweep), [job])


def test_a_store_that_cannot_date_files(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As buckets that are mounted: rsync says so, and that it failed, though every file is there."""
    program = tmp_path / "bin" / "rsync"
    program.parent.mkdir()
    complaint = 'rsync: [receiver] failed to set times on "/mnt/x": Operation not permitted (1)'
    program.write_text(f"#!/bin/sh\n{shutil.which('rsync')} \"$@\" && echo '{complaint}' >&2 && exit 23\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    instance = start(*quick, store=tmp_path / "store")
    assert instance.finish() == 0
    assert instance.output.endswith("everything is in the store\n")
    check_order(in_store(tmp_path / "store", quick[0]), [quick[1]])


def test_a_letter_that_came_early_is_read(slow: tuple[SweepDir, Job], start: Start) -> None:
    sweep, job = slow
    sweep.mailbox(job.token).write_text("TERM\n")
    instance = start(sweep, job)
    assert wait_for(instance.handover.ended, timeout=600).exit_code == 130
    assert not checkpoints(sweep)


def test_an_instance_that_takes_over(quick: tuple[SweepDir, Job], start: Start, tmp_path: Path) -> None:
    """What another one left in the store of a run that home began again: a result stays, an attempt does not.

    Attempts of the same number are never mixed.
    """
    sweep, job = quick
    done, begun = (sweep.run(run_id) for run_id in sweep.run_ids())
    store = in_store(tmp_path / "store", sweep)
    for run, name in ((done, "result.json"), (begun, "attempts/1/checkpoints/old.pt")):
        path = store.run(run.run_id).path / name
        path.parent.mkdir(parents=True)
        path.write_text("another instance's")
    instance = start(sweep, job, store=tmp_path / "store")
    assert instance.finish() == 0
    assert f"run {done.run_id}: the store has a result of an earlier instance" in instance.output
    assert [path.read_text() for path in store.run(done.run_id).path.rglob("*")] == ["another instance's"]
    attempt = store.run(begun.run_id).attempt(1)
    ours = begun.attempt(1).checkpoints
    assert sorted(os.listdir(attempt.checkpoints)) == sorted(os.listdir(ours))
    assert store.run(begun.run_id).result() == begun.result()


def test_a_result_that_was_put_aside_gives_way(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    sweep, job = quick
    assert start(sweep, job, store=tmp_path / "store").finish() == 0
    run = sweep.run(sweep.run_ids()[0])
    before = run.result()
    run.retire_result()
    again = helpers.submit(sweep, [run.run_id])
    assert start(sweep, again, store=tmp_path / "store").finish() == 0
    there = in_store(tmp_path / "store", sweep).run(run.run_id)
    assert there.result() == run.result() != before
    assert there.retired == run.retired == 1
    check_order(in_store(tmp_path / "store", sweep), [again])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hold", "9", "--store", "somewhere"], "'somewhere'"),
        (["--hold", "9", "--store", "s3://No_Bucket/x"], "s3://bucket/prefix"),
        (["--hold", "inf"], "--hold"),
        ([], "--hold"),
    ],
)
def test_bad_input(quick: tuple[SweepDir, Job], arguments: list[str], words: str) -> None:
    sweep, job = quick
    argv = [sys.executable, "-m", "jobs.instance", str(sweep.results), sweep.name, job.token, *arguments]
    done = subprocess.run(argv, cwd=helpers.ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not sweep.has_begun(job.token)


def test_what_it_handed_over_goes_on_elsewhere(
    slow: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    """Of an instance that is gone, the store alone: a worker there completes the runs, each step once."""
    sweep, job = slow
    instance = start(sweep, job, store=tmp_path / "store")
    worker = instance.worker()
    there = in_store(tmp_path / "store", sweep)
    wait_for(lambda: len({path.parent for path in checkpoints(there)}) == 2, timeout=600)
    for pid in (instance.process.pid, worker):
        helpers.kill(pid)
    instance.finish()
    hurry(tmp_path)
    runs = [there.run(run_id).description() for run_id in there.run_ids()]
    assert helpers.work(there, slots=2) == 0
    check_finished(there, runs, tmp_path / "audit", steps=1000)


def test_scripts_with_secrets_are_gone_once_the_worker_ended(
    quick: tuple[SweepDir, Job], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot writes them, in the home of the instance's user; the other files there stay."""
    scripts = tmp_path / "home" / ".sky" / "sky_app"
    scripts.mkdir(parents=True)
    secrets = {"WANDB_API_KEY": "never-to-be-shown", "PLACE": "it's here:me@host", "PIN": "4711"}
    for name, value in secrets.items():
        (scripts / f"sky_job_{name}").write_text(f"export {name}={shlex.quote(value)}\n")
        monkeypatch.setenv(name, value)
    (scripts / "sky_job_2").write_text("echo of another job\n")
    os.mkfifo(scripts / "pipe")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    instance = start(*quick, hold=120, secrets=["PLACE", "PIN"])
    instance.says("the instance is held")
    assert sorted(path.name for path in scripts.iterdir()) == ["pipe", "sky_job_2"]
    instance.handover.mark_safe()
    assert instance.finish() == 0

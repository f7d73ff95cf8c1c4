"""A store behind a real sshd, and one that speaks S3: what a job hands over, and its way home from there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.cloud.store import open_store
from orchestrator.core.errors import StorageError
from orchestrator.core.types import Job
from orchestrator.rundir import SweepDir
from orchestrator.sync.source import store_source
from tests import helpers, warm
from tests.audit import check_finished
from tests.buckets import BUCKET, BucketServer
from tests.disks import fill, mounted
from tests.helpers import wait_for
from tests.instances import InstanceProcess, check_order, checkpoints
from tests.ssh.server import ALIAS, Server

WHERE = f"s3://{BUCKET}/some/folder"
Start = Callable[..., InstanceProcess]


@pytest.fixture
def quick(results: Path, tmp_path: Path) -> tuple[SweepDir, Job]:
    """Two runs that are soon done."""
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 2))
    return sweep, helpers.submit(sweep, slots=2)


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[InstanceProcess] = []

    def begin(sweep: SweepDir, job: Job, **options: Any) -> InstanceProcess:
        started.append(InstanceProcess(sweep, job, **options))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def command_line(*arguments: str | Path, code: int = 0) -> str:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", *map(str, arguments)]
    env = {**os.environ, **warm.COMMANDS}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def keys(server: BucketServer) -> list[str]:
    found = server.client().list_objects_v2(Bucket=BUCKET)
    return [item["Key"] for item in found.get("Contents", ())]


def same_tree(one: Path, other: Path, *, times: bool = True) -> bool:
    def files(folder: Path) -> dict[str, tuple[bytes, int]]:
        runs = (path for path in (folder / "runs").rglob("*") if path.is_file())
        plain = (path for path in runs if not path.name.startswith("."))
        return {
            path.relative_to(folder).as_posix(): (path.read_bytes(), int(path.stat().st_mtime) * times)
            for path in plain
        }

    return files(one) == files(other)


def test_a_host_keeps_what_a_job_makes(
    server: Server, quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    """And `sync-results` reads it like any tree. Its host key is accepted when it is first seen."""
    sweep, job = quick
    (server.laptop / ".ssh" / "known_hosts").unlink()
    instance = start(sweep, job, store=f"{ALIAS}:~/my store")
    assert instance.finish() == 0
    there = SweepDir(server.home / "my store", sweep.name)
    check_order(there, [job])
    said = command_line("sync", f"{ALIAS}:my store", tmp_path / "home")
    assert "2 runs verified; 2 of 2 runs are finished there" in said
    assert same_tree(tmp_path / "home" / "tiny", sweep.path)


def test_a_host_that_is_away_is_told_once_and_gets_it_all_later(
    server: Server, quick: tuple[SweepDir, Job], start: Start
) -> None:
    sweep, job = quick
    server.stop()
    instance = start(sweep, job, store=f"{ALIAS}:store")
    instance.says("the store took nothing: it cannot be reached")
    instance.says("the instance is held until the store has everything")
    server.start()
    assert instance.finish() == 0
    assert instance.output.count("the store took nothing") == 1
    check_order(SweepDir(server.home / "store", sweep.name), [job])


@pytest.mark.disk
def test_a_host_that_is_full_ends_no_training(
    server: Server, quick: tuple[SweepDir, Job], start: Start
) -> None:
    sweep, job = quick
    with mounted(server.home / "disk") as disk:
        filler = fill(disk)
        instance = start(sweep, job, store=f"{ALIAS}:disk/store")
        instance.says("the store took nothing: it is full")
        assert wait_for(instance.handover.ended, timeout=600).exit_code == 0
        filler.unlink()
        assert instance.finish() == 0
        check_order(SweepDir(disk / "store", sweep.name), [job])


def test_a_host_that_hangs_does_not_hold_longer(
    server: Server, quick: tuple[SweepDir, Job], start: Start
) -> None:
    """Its rsync never answers; nothing of the delivery is left when the instance ends."""
    program = server.folder / "hanging"
    program.mkdir()
    (program / "rsync").write_text("#!/bin/sh\nexec sleep 600\n")
    (program / "rsync").chmod(0o755)
    server.stop()
    server.start({"PATH": f"{program}:{os.environ['PATH']}"})
    instance = start(*quick, store=f"{ALIAS}:store", hold=2)
    assert instance.finish() == 0
    assert "held for 2 s" in instance.output
    wait_for(lambda: not server.sessions(), what="the end of the delivery")


def test_a_host_without_a_folder_is_asked_for_what_it_has(server: Server) -> None:
    store = open_store(f"{ALIAS}:nowhere/yet")
    assert store.names(["tiny/runs/0"]) == []
    assert store.get("tiny/runs/0/result.json") is None
    store.remove(["tiny/runs/0/result.json"])
    (server.laptop / "file").write_text("there; $(touch harm)")
    names = ["tiny/$(touch harm)", "tiny/a b", "tiny/-n", "tiny/'\"\n"]
    for name in names:
        (server.laptop / name).parent.mkdir(exist_ok=True)
        (server.laptop / name).write_text(name)
    store.put(server.laptop, [*names, "tiny/gone"])
    assert {name: store.get(name) for name in names} == {name: name.encode() for name in names}
    store.remove(names[:2])
    assert sorted(os.listdir(server.home / "nowhere/yet/tiny")) == sorted([".incoming", "'\"\n", "-n"])
    assert not list(server.home.rglob("harm"))


def test_a_bucket_keeps_what_a_job_makes(
    bucket: BucketServer, quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    """And `sync-results` brings it, what is new only, and leaves nothing else here."""
    sweep, job = quick
    instance = start(sweep, job, store=WHERE)
    assert instance.finish() == 0
    assert "never-to-be-shown" not in instance.output
    home = tmp_path / "home"
    before = os.listdir(tmp_path)
    assert "2 runs verified" in command_line("sync", WHERE, home)
    assert same_tree(home / "tiny", sweep.path, times=False)
    runs = [sweep.run(run_id).description() for run_id in sweep.run_ids()]
    check_finished(SweepDir(home, "tiny"), runs, tmp_path / "audit")
    fetched = bucket.fetched()
    assert sorted(fetched) == keys(bucket)
    assert "nothing new" in command_line("sync", WHERE, home)
    again = bucket.fetched()[len(fetched) :]
    assert [key for key in again if "/handover/" not in key] == []
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "home"])
    assert not (home / ".buckets").exists()


def test_a_result_is_put_into_a_bucket_last(
    bucket: BucketServer, quick: tuple[SweepDir, Job], start: Start
) -> None:
    """By the order in which requests came, which the server writes down."""
    sweep, job = quick
    assert start(sweep, job, store=WHERE).finish() == 0
    put = bucket.put()
    for run_id in sweep.run_ids():
        of_run = [name for name in put if f"/{run_id}/" in name]
        assert [name for name in of_run if name.endswith("result.json")] == of_run[-1:]
    assert put[-1].endswith(".ended.json")


def test_a_bucket_s_old_checkpoints_go(
    bucket: BucketServer, results: Path, start: Start, tmp_path: Path
) -> None:
    runs = helpers.count_runs(tmp_path / "audit", 1, steps=120, seconds=0.05, every=10)
    sweep = helpers.make_sweep(results, runs)
    instance = start(sweep, job := helpers.submit(sweep), store=WHERE)
    wait_for(lambda: len({key for key in bucket.put() if key.endswith(".pt")}) > 2, timeout=600)
    assert instance.finish() == 0
    kept = {key.removeprefix("some/folder/") for key in keys(bucket) if key.endswith(".pt")}
    assert kept == {path.relative_to(results).as_posix() for path in checkpoints(sweep)}
    assert job.token in instance.output


@pytest.mark.nightly
def test_a_bucket_that_is_away_and_comes_back(
    bucket: BucketServer, quick: tuple[SweepDir, Job], start: Start, tmp_path: Path
) -> None:
    bucket.stop()
    instance = start(*quick, store=WHERE)
    instance.says("the store took nothing: it cannot be reached")
    said = command_line("sync", WHERE, tmp_path / "home", code=3)
    assert f"{WHERE}: it cannot be reached" in said
    bucket.start()  # empty: its bucket is made by hand
    instance.says("there is no such bucket")
    assert "there is no such bucket" in command_line("sync", WHERE, tmp_path / "home", code=2)
    bucket.client().create_bucket(Bucket=BUCKET)
    assert instance.finish() == 0
    assert instance.output.endswith("everything is in the store\n")
    assert "2 runs verified" in command_line("sync", WHERE, tmp_path / "home")


def test_a_bucket_without_a_key(
    bucket: BucketServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StorageError, match="this machine has no key for it"):
        open_store(WHERE).names(["tiny"])
    assert "has no key for it" in command_line("sync", WHERE, tmp_path / "home", code=3)


def test_a_bucket_that_means_harm(bucket: BucketServer, tmp_path: Path) -> None:
    """Names that no tree has stay there and are named; what is left is a sweep like any."""
    client = bucket.client()
    hostile = [".harm/x", "harm", "tiny/" + 10 * "harm" + 900 * "x"]
    for name in ["tiny/grids/0001.yaml", "tiny/folder", "tiny/folder/file", "tiny/grids/", *hostile]:
        client.put_object(Bucket=BUCKET, Key=f"some/folder/{name}", Body=b"name: tiny\n")
    home = tmp_path / "a" / "home"
    said = command_line("sync", WHERE, home)
    assert "not fetched" in said
    assert ".harm/x" in said
    names = {path.name for path in tmp_path.rglob("*")}
    assert not {name for name in names if "harm" in name}
    assert (home / "tiny" / "folder" / "file").exists()


def test_of_a_bucket_only_one_sweep(bucket: BucketServer, tmp_path: Path) -> None:
    client = bucket.client()
    for name in ("tiny", "tiny-too"):
        client.put_object(Bucket=BUCKET, Key=f"some/folder/{name}/grids/0001.yaml", Body=b"name: tiny\n")
    command_line("sync", WHERE, tmp_path / "home", "--sweep", "tiny")
    assert bucket.fetched() == ["some/folder/tiny/grids/0001.yaml"]
    assert os.listdir(tmp_path / "home") == ["tiny"]
    (tmp_path / "known").mkdir()
    source = store_source(WHERE, tmp_path / "known" / "results", "tiny-too")
    assert os.listdir(source.root) == ["tiny-too"]
    assert source.text == WHERE


@pytest.mark.parametrize(
    ("store", "root", "host"),
    [("/mnt/store", "/mnt/store", None), ("me@disk:~/a b", "a b", "me@disk"), ("disk:/x", "/x", "disk")],
)
def test_a_store_is_a_source(store: str, root: str, host: str | None) -> None:
    source = store_source(store, Path("results"), "tiny")
    assert (source.root, source.host and source.host.name) == (root, host)


def test_nothing_is_deleted_in_a_bucket(bucket: BucketServer, tmp_path: Path) -> None:
    bucket.client().put_object(Bucket=BUCKET, Key="some/folder/tiny/grids/0001.yaml", Body=b"name: tiny\n")
    said = command_line("sync", WHERE, tmp_path / "home", "--prune-remote", "--yes", code=2)
    assert "deleting in a bucket is not supported" in said
    assert len(keys(bucket)) == 1

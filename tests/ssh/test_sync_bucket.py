"""A bucket that is busy, cut off, damaged or large: what came is kept, and the words are the right ones."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.synthetic import finished_sweep, matrix_runs, publish, result_of
from orchestrator.core.errors import OrchestrateError, StorageError, UnreachableError
from orchestrator.rundir import SweepDir
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport, kinds
from orchestrator.sync.source import find_source
from orchestrator.sync.sync import sync
from tests.buckets import BUCKET, BucketServer, Faults
from tests.disks import mounted
from tests.helpers import wait_for

MATRIX = {"algorithm": ["mappo", "iql"], "seed": [0, 1]}
WHERE = f"s3://{BUCKET}/some/folder"
SIZE = 300_000


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that tries twice."""
    monkeypatch.setattr("orchestrator.core.machine.s3._PATIENT_ATTEMPTS", 2)


@contextmanager
def faults(bucket: BucketServer, judge: Callable[[str, int], object]) -> Iterator[Faults]:
    """Have requests take a way that is not always good."""
    with Faults(bucket, judge) as way, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", way.url)
        yield way


@pytest.fixture
def there(bucket: BucketServer, tmp_path: Path) -> SweepDir:
    """Four finished runs with a checkpoint each, and all of it in the bucket."""
    sweep = finished_sweep(tmp_path / "there" / "results", "speed", MATRIX, iterations=2)
    for run in matrix_runs(MATRIX):
        attempt = sweep.run(run.run_id).attempt(1)
        attempt.checkpoints.mkdir()
        checkpoint = attempt.checkpoint_name(12_000, run.run_id)
        checkpoint.write_bytes(os.urandom(SIZE))
        publish(sweep.run(run.run_id), result_of(run, []), [attempt.metrics, checkpoint])
    put(bucket, sweep)
    return sweep


def put(bucket: BucketServer, sweep: SweepDir, part: int | None = None) -> None:
    """As a job's store puts it; in parts of so many bytes."""
    from boto3.s3.transfer import S3Transfer, TransferConfig

    config = TransferConfig(multipart_threshold=part, multipart_chunksize=part) if part else TransferConfig()
    with S3Transfer(bucket.client(), config) as transfer:  # one for all files: each starts threads of its own
        for path in sorted(sweep.path.rglob("*")):
            if path.is_file():
                key = f"some/folder/{path.relative_to(sweep.results)}"
                about = {"Metadata": {"mtime": f"{path.stat().st_mtime:.6f}"}}
                transfer.upload_file(str(path), BUCKET, key, extra_args=about)


def bring(home: Path, options: SyncOptions | None = None, dry: bool = False) -> SyncReport:
    (brought,) = sync(find_source(WHERE, home), home, options or SyncOptions(), SyncProgress(), dry=dry)
    return brought


def assert_same(there: SweepDir, home: Path) -> None:
    def contents(sweep: SweepDir) -> dict[str, bytes]:
        paths = [path for path in sorted((sweep.path / "runs").rglob("*")) if path.is_file()]
        return {path.relative_to(sweep.path).as_posix(): path.read_bytes() for path in paths}

    assert contents(SweepDir(home, "speed")) == contents(there)
    assert not (home / ".buckets").exists()


def plain_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def is_checkpoint(name: str) -> bool:
    return name.endswith(".pt")


def test_a_failed_object_costs_no_other(bucket: BucketServer, there: SweepDir, tmp_path: Path) -> None:
    """One may not be read: its run is named and not published, and nothing that came is fetched twice."""
    closed = next(iter(there.run(there.run_ids()[0]).attempt(1).checkpoints.iterdir())).name
    home = tmp_path / "results"
    with faults(bucket, lambda name, _: (403, "AccessDenied") if name.endswith(closed) else None) as way:
        brought = bring(home)
        assert len(brought.complete) == 3
        (problem,) = brought.problems
        assert closed in problem
        assert "access denied (AccessDenied)" in problem
        first = dict(way.asked)
    before = len(bucket.fetched())
    assert bring(home).problems == []
    again = bucket.fetched()[before:]
    assert {Path(name).name for name in again} == {closed, "result.json"}
    assert len(again) == 2
    assert len(first) > 20
    assert_same(there, home)


@pytest.mark.nightly
def test_a_bucket_that_asks_for_patience_gets_it(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    busy = {"left": 8}

    def judge(name: str, _: int) -> object:
        busy["left"] -= 1
        return (503, "SlowDown") if busy["left"] > 0 else None

    with faults(bucket, judge):
        assert bring(tmp_path / "results").problems == []
    assert_same(there, tmp_path / "results")


@pytest.mark.usefixtures("short_waits")
def test_a_bucket_that_stays_busy_says_so_and_what_came_is_kept(
    bucket: BucketServer, there: SweepDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "results"
    with faults(bucket, lambda name, _: (503, "SlowDown") if is_checkpoint(name) else None):
        with pytest.raises(UnreachableError, match=r"too many requests \(SlowDown\)") as caught:
            bring(home)
        assert "cannot be reached" not in str(caught.value)
        assert "the same command continues" in str(caught.value.hint)
    del caught  # which holds the mirror, and with it its lock
    gc.collect()
    assert bring(home).problems == []
    assert len(bucket.fetched()) == len(set(bucket.fetched()))
    assert_same(there, home)


def test_an_object_that_is_cut_is_asked_for_again(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    with faults(bucket, lambda name, number: "cut" if is_checkpoint(name) and number < 4 else None):
        assert bring(tmp_path / "results").problems == []
    assert_same(there, tmp_path / "results")


def test_bytes_that_change_on_the_way_are_fetched_again(
    bucket: BucketServer, there: SweepDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next sync; none of their runs is published before."""
    home = tmp_path / "results"
    with faults(bucket, lambda name, number: "corrupt" if is_checkpoint(name) and number == 1 else None):
        monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
        assert len(bring(home).problems) == 4
        assert not list(home.rglob("result.json"))
        assert bring(home).problems == []
    assert_same(there, home)


@pytest.mark.parametrize("validation", ["when_required", "when_supported"])
@pytest.mark.usefixtures("short_waits")
def test_bytes_that_change_each_time_are_called_so(
    bucket: BucketServer, there: SweepDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: str
) -> None:
    bad = next(iter(there.run(there.run_ids()[0]).attempt(1).checkpoints.iterdir())).name
    home = tmp_path / "results"
    with faults(bucket, lambda name, _: "corrupt" if name.endswith(bad) else None):
        monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", validation)
        brought = bring(home)
        assert len(brought.complete) == 3
        (problem,) = brought.problems
        assert "was damaged on the way" in problem or "has other content than its result says" in problem
        assert "cannot be reached" not in problem
    assert SweepDir(home, "speed").run(there.run_ids()[0]).result() is None


def test_a_sync_that_is_killed_leaves_nothing_for_ever_and_loses_nothing(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    """In the middle of the last objects."""
    home = tmp_path / "results"
    with faults(bucket, lambda name, number: "hang" if is_checkpoint(name) and number == 1 else None) as way:
        env = {**os.environ, "AWS_ENDPOINT_URL": way.url}
        argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", WHERE, str(home)]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        asked = lambda: sum(map(is_checkpoint, way.asked))  # noqa: E731
        others = [name for name in plain_files(there.results) if not is_checkpoint(name)]
        trees = lambda: [plain_files(tree) for tree in home.glob(".buckets/*/1/tree")]  # noqa: E731
        wait_for(lambda: asked() == 4 and trees() == [others], timeout=600, what="half of each checkpoint")
        process.kill()
        process.wait()
        before = dict(way.asked)
        assert bring(home).problems == []
        again = {name for name, number in way.asked.items() if number > before.get(name, 0)}
        assert all(map(is_checkpoint, again))
    assert_same(there, home)


def test_what_is_here_is_known_by_time_name_or_result(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    """A big object that was put in parts, too; a plain copy has lost all times."""
    big = there.run(there.run_ids()[0]).attempt(1).path / "big"
    big.write_bytes(os.urandom(12 << 20))
    put(bucket, there, part=5 << 20)
    home = tmp_path / "results"
    bring(home)
    before = len(bucket.fetched())
    assert bring(home).files == 0
    assert bucket.fetched()[before:] == []
    for path in home.glob("speed/runs/*/attempts/1/**/*"):
        if path.name == "metrics.jsonl" or is_checkpoint(path.name):
            os.utime(path, (1, 1))
    assert bring(home).problems == []
    assert bucket.fetched()[before:] == []
    assert bring(home).files == 0


def test_a_dry_run_fetches_only_the_index_and_writes_nothing(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    home = tmp_path / "results"
    total = sum(path.stat().st_size for path in there.path.rglob("*") if path.is_file())
    said = bring(home, dry=True)
    assert (said.size, said.due, said.problems) == (total, 4, [])
    assert [Path(name).name for name in bucket.fetched()] == ["index.tsv"]
    assert not home.exists()
    bring(home)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    assert (bring(home, dry=True).files, bring(home).files) == (0, 0)
    assert {
        path: path.stat().st_mtime_ns for path in before if path.is_file() and ".synced" not in path.parts
    } == {path: time for path, time in before.items() if path.is_file() and ".synced" not in path.parts}


@pytest.mark.parametrize("link", ["", "*", "*/1", "*/1/lock", "*/1/tree/speed", "*/1/parts"])
def test_links_among_what_comes_of_a_bucket_are_refused(tmp_path: Path, link: str) -> None:
    """Nothing is written to where they lead."""
    source, outside = find_source(WHERE, tmp_path / "results"), tmp_path / "outside"
    outside.mkdir()
    path = tmp_path / "results" / ".buckets" / link.replace("*", source.name)
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    assert source.mirror is not None
    with pytest.raises(OrchestrateError, match=re.escape(f"{path}: found a link")):
        source.mirror._open(source.name, dry=False)
    assert not list(outside.iterdir())


def test_kinds_that_are_not_wanted_are_not_fetched(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    home = tmp_path / "results"
    brought = bring(home, SyncOptions(only=kinds("metrics")))
    assert (len(brought.complete), brought.problems) == (4, [])
    assert not any(map(is_checkpoint, bucket.fetched()))
    assert not list(home.rglob("*.pt"))
    assert bring(home).problems == []
    assert_same(there, home)


@pytest.mark.parametrize("wish", ["run", "latest", "only"])
def test_only_what_the_wish_needs_is_fetched(
    bucket: BucketServer, there: SweepDir, tmp_path: Path, wish: str
) -> None:
    """By the bytes that came; a sync without the wish brings the rest."""
    first, *others = there.run_ids()
    for run_id in there.run_ids():
        older = there.run(run_id).attempt(1).checkpoint_name(6_000, run_id)
        older.write_bytes(os.urandom(SIZE))
    code = there.path / "code" / f"{0:016x}" / "tree"
    code.mkdir(parents=True)
    (code / "module.py").write_bytes(os.urandom(SIZE))
    put(bucket, there)
    wishes = {
        "run": SyncOptions(runs=(first,)),
        "latest": SyncOptions(latest_checkpoint=True),
        "only": SyncOptions(only=kinds("metrics")),
    }
    large = {"run": 3, "latest": 5, "only": 0}[wish]
    files = [path for path in there.path.rglob("*") if path.is_file()]
    small = sum(path.stat().st_size for path in files if path.stat().st_size != SIZE)
    home = tmp_path / "results"
    with faults(bucket, lambda *_: None) as way:
        said = bring(home, wishes[wish], dry=True)
        brought = bring(home, wishes[wish])
        listed = 64 * 1024  # what the lists of the bucket take
        assert large * SIZE <= way.sent <= large * SIZE + small + listed
    assert (said.size, said.problems) == (brought.size, [])
    assert (brought.problems, brought.finished, brought.runs) == ([], 4, 4)
    assert len(brought.complete) == (1 if wish == "run" else 4)
    home_sweep = SweepDir(home, "speed")
    assert [home_sweep.run(run_id).path.exists() for run_id in others] == 3 * [wish != "run"]
    assert (home_sweep.path / "code").exists() == (wish != "only")
    assert bring(home).problems == []
    assert_same(there, home)


@pytest.mark.usefixtures("short_waits")
def test_an_older_checkpoint_is_not_taken_for_the_newest(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    """The newest of a run under way is gone before it is fetched: a worker has removed it."""
    run = there.run(there.run_ids()[0])
    newest = next(iter(run.attempt(1).checkpoints.iterdir())).name
    older = run.attempt(1).checkpoint_name(6_000, run.run_id)
    older.write_bytes(os.urandom(SIZE))
    put(bucket, there)
    result = run.result_path.relative_to(there.results)
    bucket.client().delete_object(Bucket=BUCKET, Key=f"some/folder/{result}")
    home = tmp_path / "results"
    with faults(bucket, lambda name, _: (404, "NoSuchKey") if name.endswith(newest) else None):
        bring(home, SyncOptions(latest_checkpoint=True))
    assert not list(SweepDir(home, "speed").run(run.run_id).path.rglob("*.pt"))


def test_a_damaged_file_that_is_not_wanted_is_repaired(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    home = tmp_path / "results"
    bring(home)
    run = SweepDir(home, "speed").run(there.run_ids()[0])
    checkpoint = next(iter(run.attempt(1).checkpoints.iterdir()))
    checkpoint.unlink()
    checkpoint.write_bytes(os.urandom(SIZE))
    assert bring(home, SyncOptions(only=kinds("metrics"), verify=True)).problems == []
    assert_same(there, home)


@pytest.mark.usefixtures("short_waits")
def test_an_object_with_a_fault_is_named_and_the_others_come(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    """Also where nothing else is to come: by a sync after it, of a run without a result."""
    run = there.run(there.run_ids()[0])
    bad = next(iter(run.attempt(1).checkpoints.iterdir())).name
    result = run.result_path.relative_to(there.results)
    bucket.client().delete_object(Bucket=BUCKET, Key=f"some/folder/{result}")
    home = tmp_path / "results"
    with faults(bucket, lambda name, _: (500, "InternalError") if name.endswith(bad) else None) as way:
        for complete in (3, 0):
            way.asked.clear()
            brought = bring(home)
            assert len(brought.complete) == complete
            (problem,) = brought.problems
            (key,) = (name for name in way.asked if name.endswith(bad))
            assert f"{WHERE}/{key.removeprefix('some/folder/')}: internal error of the server" in problem
            assert f"(InternalError), after {way.asked[key]} requests; its run is not updated here" in problem
            assert f"aws s3api head-object --bucket {BUCKET} --key {key}" in problem
    assert bring(home).problems == []


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (500, "InternalError", r"internal error of the server \(InternalError\), after \d+ requests"),
        (403, "AccessDenied", r"access denied \(AccessDenied\), after 1 request"),
    ],
)
def test_a_bucket_that_gives_no_object_names_one(
    bucket: BucketServer, there: SweepDir, tmp_path: Path, status: int, code: str, words: str
) -> None:
    with (
        faults(bucket, lambda name, _: (status, code) if name else None),
        pytest.raises(OrchestrateError, match=rf"{WHERE}: {words} for speed/\S+$") as caught,
    ):
        bring(tmp_path / "results")
    assert caught.value.exit_code == 3


@pytest.mark.disk
def test_a_bucket_larger_than_the_disk_is_refused_with_figures(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    big = there.run(there.run_ids()[0]).attempt(1).path / "big"
    big.write_bytes(bytes(5 << 20))
    put(bucket, there)
    with mounted(tmp_path / "disk") as disk:
        assert bring(disk / "results", dry=True).lack is not None
        with pytest.raises(StorageError, match=r"needs 6\.\d+ MB in \d+ files.* free") as caught:
            bring(disk / "results")
        assert "--only" in str(caught.value.hint)
        assert bucket.fetched()[1:] == []  # the index, once, for the dry run
        assert not list(disk.rglob("*.pt"))


@pytest.mark.disk
def test_a_sweep_on_a_disk_of_its_own_needs_room_there(
    bucket: BucketServer, there: SweepDir, tmp_path: Path
) -> None:
    """Where objects cannot become links to what came to `.buckets`."""
    home = tmp_path / "results"
    with mounted(home / "speed", "1m") as disk:
        assert bring(home, dry=True).lack is not None
        with pytest.raises(StorageError, match=r"what is new of speed needs 1\.\d+ MB in \d+ files"):
            bring(home)
        assert not list(disk.rglob("*.pt"))


def test_two_at_once_do_not_share_a_mirror(bucket: BucketServer, there: SweepDir, tmp_path: Path) -> None:
    """And the one that ends last leaves nothing of either."""
    from orchestrator.sync.bucket_mirror import MirrorOptions

    home = tmp_path / "results"
    one, two = find_source(WHERE, home), find_source(WHERE, home)
    one.connect(MirrorOptions())
    two.connect(MirrorOptions())
    assert one.root != two.root
    assert len(list(Path(two.root).rglob("*.pt"))) == 4
    one.leave()
    assert len(list(Path(two.root).rglob("*.pt"))) == 4
    two.leave()
    assert not list(home.rglob("*"))

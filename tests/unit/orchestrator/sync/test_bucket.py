"""What a bucket lists, and which of it becomes a file here."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import OrchestrateError, StorageError
from orchestrator.core.machine.s3 import Address, is_bucket, parse_bucket
from orchestrator.sync import bucket_mirror
from orchestrator.sync.bucket_mirror import Mirror, MirrorOptions

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
HOSTILE = (
    "../harm",
    "tiny/../../harm",
    "tiny/..",
    "tiny//harm",
    "/etc/harm",
    "tiny/./x",
    "tiny/\x1b[2J",
    "..",
)


class Client:
    """S3 as far as a mirror uses it. ``later`` are objects that are put between two lists."""

    def __init__(self, objects: dict[str, bytes], later: dict[str, bytes] | None = None) -> None:
        self._objects, self._later = objects, later or {}
        self.got: list[str] = []

    def get_paginator(self, _: str) -> Client:
        return self

    def paginate(self, **asked: str) -> Iterator[dict[str, Any]]:
        for key in sorted(key for key in self._objects if key.startswith(asked["Prefix"])):
            data = self._objects[key]
            yield {"Contents": [{"Key": key, "Size": len(data), "LastModified": WHEN, "ETag": '"0"'}]}
        self._objects |= self._later

    def download(self, _: str, key: str, path: str, **__: Any) -> Future[None]:
        self.got.append(key)
        Path(path).write_bytes(self._objects[key])
        done: Future[None] = Future()
        done.set_result(None)
        return done


def mirror(client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Mirror, list[str]]:
    monkeypatch.setattr(bucket_mirror, "connect", lambda **_: client)
    monkeypatch.setattr("boto3.s3.transfer.create_transfer_manager", lambda *_: nullcontext(client))
    one = Mirror(Address("experiments", "here/"), folder / "results")
    return one, one.refresh("experiments-0", MirrorOptions())


def test_names_that_lead_elsewhere_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {f"here/{name}": b"x" for name in (*HOSTILE, "tiny/grids/0001.yaml")}
    one, refused = mirror(Client(objects), tmp_path, monkeypatch)
    assert sorted(refused) == sorted(HOSTILE)
    files = [path for path in one.path.rglob("*") if path.is_file()]
    assert [path.relative_to(one.path).as_posix() for path in files] == ["tiny/grids/0001.yaml"]
    assert files[0].stat().st_mtime == WHEN.timestamp()


@given(st.text())
def test_a_name_is_refused_or_stays_below(name: str) -> None:
    if bucket_mirror._is_of_tree(name):
        assert Path("/a/b", name).resolve().is_relative_to("/a/b/")
        assert len(Path("/a/b", name).parts) > 4


def test_a_result_that_is_put_meanwhile_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files may have been listed before they were there."""
    early, late = (f"here/tiny/runs/{run}/result.json" for run in ("0" * 16, "1" * 16))
    one, _ = mirror(Client({early: b"{}"}, {late: b"{}"}), tmp_path, monkeypatch)
    assert [path.parent.name for path in one.path.rglob("result.json")] == ["0" * 16]
    one.refresh("experiments-0", MirrorOptions())
    assert len(list(one.path.rglob("result.json"))) == 2


def test_what_is_here_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what only has the same name, or size, taken for it."""
    objects = {f"here/tiny/runs/x/{name}": name.encode() for name in ("same", "also", "diff")}
    known = tmp_path / "results" / "tiny"
    for path, text in (("runs/x/same", "same"), ("sources/experiments-0/runs/x/also", "also")):
        (known / path).parent.mkdir(parents=True)
        (known / path).write_text(text)
        os.utime(known / path, (WHEN.timestamp(), WHEN.timestamp()))
    (known / "runs/x/diff").write_text("DIFF")
    client = Client(objects)
    one, _ = mirror(client, tmp_path, monkeypatch)
    assert client.got == ["here/tiny/runs/x/diff"]
    assert (known / "runs/x/diff").read_text() == "DIFF"
    assert {path.name: path.read_text() for path in one.path.glob("tiny/runs/x/*")} == {
        "same": "same",
        "also": "also",
        "diff": "diff",
    }
    del client._objects["here/tiny/runs/x/also"]
    one.refresh("experiments-0", MirrorOptions())
    assert sorted(path.name for path in one.path.glob("tiny/runs/x/*")) == ["diff", "same"]
    assert client.got == ["here/tiny/runs/x/diff"]


def test_nothing_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = mirror(Client({"here/tiny/grids/0001.yaml": b"x"}), tmp_path, monkeypatch)
    assert len(list(one.path.rglob("0001.yaml"))) == 1
    one.clear()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", none)
    mirror = Mirror(Address("b", ""), tmp_path)
    with pytest.raises(StorageError, match=r"cannot lock .*not implemented"):
        mirror._open("source", dry=MirrorOptions().dry)
    assert len(list((tmp_path / ".buckets" / "source").iterdir())) == 1


@pytest.mark.parametrize("text", ["s3://", "s3://Bad/x", "s3://b", "s3://bucket/../x", "s3://bucket/a//b"])
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(OrchestrateError, match="s3://bucket/prefix"):
        parse_bucket(text)


@pytest.mark.parametrize(
    ("text", "prefix"), [("s3://bucket", ""), ("s3://bucket/", ""), ("s3://bucket/a/b/", "a/b/")]
)
def test_an_address(text: str, prefix: str) -> None:
    assert is_bucket(text)
    address = parse_bucket(text)
    assert (address.bucket, address.prefix) == ("bucket", prefix)
    assert address.text == text.rstrip("/")

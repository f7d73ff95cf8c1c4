"""How long a bucket gets: by what it answers, not by what else took time here."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import StorageError
from orchestrator.core.s3 import Address, BucketError
from orchestrator.sync import bucket_download
from orchestrator.sync.bucket_download import CUT_S, Downloads, Patience
from orchestrator.sync.bucket_mirror import Mirror, MirrorOptions
from orchestrator.sync.etags import Etags, S3Object

CONTENT = b"0123456789"
ITEM = S3Object("speed/policy.pt", len(CONTENT), hashlib.md5(CONTENT, usedforsecurity=False).hexdigest(), 1e9)


class _Body:
    def iter_chunks(self, size: int) -> Any:
        return iter([CONTENT[4:]])


class _Client:
    """Refuses so many requests, and then has the rest of the object."""

    def __init__(self, code: str, refusals: int) -> None:
        self.code, self.left = code, refusals

    def get_object(self, **asked: str) -> dict[str, Any]:
        from botocore.exceptions import ClientError

        if self.left:
            self.left -= 1
            raise ClientError({"Error": {"Code": self.code}}, "GetObject")
        assert asked["Range"] == "bytes=4-"
        return {"Body": _Body(), "ContentRange": "bytes 4-9/10", "ETag": f'"{ITEM.digest}"'}


@pytest.mark.parametrize("code", ["SlowDown", "InternalError"])
def test_an_object_that_began_to_come_is_not_given_up_for_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(bucket_download, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(bucket_download, "_LONGEST_WAIT_S", 0.001)
    etags = Etags(tmp_path / "etags")
    downloads = Downloads(_Client(code, 10), Address("b", ""), tmp_path / "parts", etags, Patience())
    downloads._part(ITEM).write_bytes(CONTENT[:4])
    assert downloads.fetch(ITEM, tmp_path / "policy.pt")
    assert (tmp_path / "policy.pt").read_bytes() == CONTENT


def test_patience_begins_with_the_first_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files here may have been compared for an hour since the bucket answered last."""
    patience, error = Patience(), BucketError("the connection was cut", passing=True)
    patience.came()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
    patience.stumble(error)
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600 + CUT_S + 1)
    with pytest.raises(BucketError):
        patience.stumble(error)


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", none)
    mirror = Mirror(Address("b", ""), tmp_path)
    with pytest.raises(StorageError, match=r"cannot lock .*not implemented"):
        mirror._open("source", dry=MirrorOptions().dry)
    assert len(list((tmp_path / ".buckets" / "source").iterdir())) == 1

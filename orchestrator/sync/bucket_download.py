"""Download objects of a bucket with boto3's transfer manager, several at once."""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.core.machine.s3 import Address, BucketError, is_gone, refusal, requests_of
from orchestrator.rundir.files.atomic import storage_errors
from orchestrator.sync.request import SyncProgress

# Refused objects in sequence until the rest is not requested: at the beginning of a download, or later for
# a fault of the bucket itself.
_HOPELESS = 16
_OF_LINKS = (ConnectionError, TimeoutError)


@dataclass(frozen=True)
class S3Object:
    """An object. ``name``: its path in the results tree. ``time``: of its upload, in epoch seconds.

    ``etag``: its version.
    """

    name: str
    size: int
    time: float
    etag: str


class Downloads:
    """Parallel downloads. ``ends``: errors that make further requests useless."""

    def __init__(self, manager: Any, address: Address, tree: Path, parts: Path, screen: SyncProgress) -> None:
        self._manager, self._address, self._tree, self._parts = manager, address, tree, parts
        self._screen, self._bytes, self._lock = screen, 0, threading.Lock()
        self.came: list[str] = []
        self.failed: dict[str, str] = {}
        self.ends: list[BaseException] = []
        self._in_vain = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether so many objects were refused, without any success, that the rest is not requested."""
        return len(self.failed) >= _HOPELESS and not self.came

    def fetch(self, item: S3Object) -> None:
        """Download one object, and record its failure."""
        if self.ends or self.is_hopeless:
            return
        try:
            with storage_errors(self._tree / item.name):
                self._fetch(item)
        except BucketError as error:
            self._in_vain += error.passing
            if error.passing and (not error.of_object or self._in_vain >= _HOPELESS):
                text = f"{error} for {item.name}"
                self.ends.append(BucketError(text, busy=error.busy, passing=error.passing))
            else:
                self.failed[item.name] = str(error)
        except BaseException as error:  # raised again by the waiting thread
            self.ends.append(error)
        else:
            self.came.append(item.name)
            self._in_vain = 0

    def _fetch(self, item: S3Object) -> None:
        """Download one object; one that no longer exists is passed over. Raises :class:`BucketError`."""
        from s3transfer.subscribers import BaseSubscriber

        count = self._count

        class Listed(BaseSubscriber):  # type: ignore[misc]
            """What the list of the bucket has of the object, so that no further request asks for it."""

            def on_queued(self, future: Any, **_: Any) -> None:
                future.meta.provide_transfer_size(item.size)
                future.meta.provide_object_etag(item.etag)

            def on_progress(self, bytes_transferred: int, **_: Any) -> None:
                count(bytes_transferred)

        part = self._parts / hashlib.sha256(item.name.encode()).hexdigest()[:32]
        key = self._address.prefix + item.name
        try:
            self._manager.download(self._address.bucket, key, str(part), subscribers=[Listed()]).result()
        except Exception as error:
            if isinstance(error, OSError) and error.errno and not isinstance(error, _OF_LINKS):
                raise  # an error of this machine's disk
            if is_gone(error):
                return
            raise _refused(error) from error
        os.utime(part, times=(item.time, item.time))
        os.replace(part, self._tree / item.name)

    def _count(self, size: int) -> None:
        with self._lock:
            self._bytes += size
            self._screen.came(self._bytes)


def _refused(error: Exception) -> BucketError:
    """Turn a client's error into one of an object, or of the way to the bucket."""
    failed, requests = refusal(error), requests_of(error)
    damaged = type(error).__name__ == "FlexibleChecksumError"
    failed.of_object = damaged or (failed.answered and not failed.busy)
    failed.args = (f"{failed}, after {requests} request{'s' * (requests > 1)}",)
    return failed

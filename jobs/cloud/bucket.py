"""A bucket as a store: objects named like the files of a results tree, below a prefix."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from orchestrator.core.errors import StorageError
from orchestrator.core.machine.s3 import AT_ONCE, Address, connect, is_gone, refusal

# Deleted in one request at most.
_MOST_KEYS = 1000


class Bucket:
    """A store in S3, where an object appears whole or not at all."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._made: Any = None
        self._stopped = threading.Event()
        # Files that a failed put has uploaded: the next one skips them.
        self._up: dict[str, tuple[int, int]] = {}

    @property
    def _client(self) -> Any:
        """Connect on first use: a failure is then reported as the store's problem."""
        self._made = self._made or connect()
        return self._made

    def put(self, results: Path, names: Sequence[str]) -> None:
        client = self._client

        def put_one(name: str) -> None:
            if self._stopped.is_set():
                raise StorageError("the delivery was ended")
            path = results / name
            try:
                stat = path.stat()
                version = (stat.st_size, stat.st_mtime_ns)
                if self._up.get(name) == version:
                    return
                client.upload_file(str(path), self._address.bucket, self._key(name))
            except FileNotFoundError:
                return
            except Exception as error:
                raise refusal(error) from error
            self._up[name] = version

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(put_one, names))
        self._up.clear()

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._up.pop(name, None)
        for start in range(0, len(names), _MOST_KEYS):
            keys = [{"Key": self._key(name)} for name in names[start : start + _MOST_KEYS]]
            wanted = {"Objects": keys, "Quiet": True}
            try:
                done = self._client.delete_objects(Bucket=self._address.bucket, Delete=wanted)
            except Exception as error:
                raise refusal(error) from error
            if errors := done.get("Errors"):
                raise StorageError(f"it does not delete {errors[0].get('Key')} ({errors[0].get('Code')})")

    def names(self, folders: Sequence[str]) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2")
        found = []
        try:
            for folder in folders:
                for page in pages.paginate(Bucket=self._address.bucket, Prefix=f"{self._key(folder)}/"):
                    found += [item["Key"] for item in page.get("Contents", ())]
        except Exception as error:
            raise refusal(error) from error
        return [key.removeprefix(self._address.prefix) for key in found]

    def get(self, name: str) -> bytes | None:
        try:
            answer = self._client.get_object(Bucket=self._address.bucket, Key=self._key(name))
            data: bytes = answer["Body"].read()
        except Exception as error:
            if is_gone(error):
                return None
            raise refusal(error) from error
        return data

    def stop(self) -> None:
        self._stopped.set()

    def _key(self, name: str) -> str:
        return self._address.prefix + name

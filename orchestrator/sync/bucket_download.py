"""Download objects of a bucket: resumed after a cut, verified by the bucket's checksum.

Requests slow down if the bucket asks for it, and repeat after connection errors as long as data arrives now
and then.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.core.s3 import Address, BucketError, is_gone, refusal, requests_of
from orchestrator.rundir.atomic import storage_errors
from orchestrator.rundir.attempt import sha256
from orchestrator.sync.etags import Etags, S3Object, matches

_T = TypeVar("_T")

# The most bytes lost by a cut.
_BLOCK = 1 << 17
# Seconds without data until giving up on a bucket that asks for fewer requests, or is unreachable.
BUSY_S, CUT_S = 300.0, 60.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
# Downloads of an object with a wrong checksum until it is given up.
_TRIES = 3
_CHANGED = ("PreconditionFailed", "412", "InvalidRange", "416")
_OF_LINKS = (ConnectionError, TimeoutError)
_ENCRYPTED = re.compile(r"aws:kms(:dsse)?")


class Patience:
    """Delay and retry limit of requests, shared by all threads."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say, self._lock = say, threading.Lock()
        self._since: float | None = None
        self._not_before, self._wait = 0.0, _FIRST_WAIT_S

    def came(self) -> None:
        """Reset the delay: data arrived."""
        with self._lock:
            self._since, self._wait = None, _FIRST_WAIT_S

    def stumble(self, error: BucketError, since: float | None = None) -> None:
        """Record a failed request. Raises the error if further retries are useless.

        ``since``: monotonic time of the first failure for one object, where only its requests fail.
        """
        now = time.monotonic()
        with self._lock:
            if self._since is None:  # from the first failure, as reading local files may take an hour before
                self._since = now
            begun = self._since if since is None else since
            if not error.passing or now - begun > (BUSY_S if error.busy else CUT_S):
                raise error
            if now < self._not_before:  # another thread has already set the delay
                return
            wait = self._wait * random.uniform(0.5, 1.0)
            self._not_before, self._wait = now + wait, min(2 * self._wait, _LONGEST_WAIT_S)
        if wait > 2 * _FIRST_WAIT_S:
            self._say(f"{error}: waiting {wait:.0f} s")

    def pause(self) -> None:
        """Wait until the next request may be sent."""
        while (left := self._not_before - time.monotonic()) > 0:
            time.sleep(left)

    def ask(self, request: Callable[[], _T], *, busy: bool) -> _T:
        """Repeat a request until it succeeds; return its answer. Raises :class:`BucketError`.

        ``busy``: retry only if the bucket asks for fewer requests; raise connection errors at once.
        """
        while True:
            self.pause()
            try:
                answer = request()
            except BucketError as error:
                if busy and not error.busy:
                    raise
                self.stumble(error)
            else:
                self.came()
                return answer


class Downloads:
    """Downloads objects of a bucket. ``parts``: a folder for incomplete objects. ``came``: bytes so far."""

    def __init__(self, client: Any, address: Address, parts: Path, etags: Etags, patience: Patience) -> None:
        self._client, self._address, self._parts = client, address, parts
        self._etags, self._patience = etags, patience
        self._lock, self.came = threading.Lock(), 0
        parts.mkdir(parents=True, exist_ok=True)

    def begun(self, item: S3Object) -> int:
        """Return the bytes of an object that were downloaded before a cut."""
        part = self._part(item)
        return part.stat().st_size if part.is_file() else 0

    def fetch(self, item: S3Object, path: Path) -> bool:
        """Download the object to ``path``; ``False`` if it no longer exists. Raises :class:`BucketError`."""
        part, digests = self._part(item), []
        for _ in range(_TRIES):
            answer = self._receive(item, part)
            if answer is None:
                return False
            digest = answer.get("ETag", item.digest).strip('"')
            same = None if _is_encrypted(answer) else matches(part, digest)
            digests.append(sha256(part))
            # Twice the same bytes: the object is intact, and its checksum is of another kind.
            if same is not False or digests.count(digests[-1]) > 1:
                self._keep(item, part, path, answer, digest if same is not False else "")
                return True
            part.unlink()
        text = f"the content does not match the bucket's checksum after {_TRIES} downloads"
        raise BucketError(text, of_object=True)

    def _receive(self, item: S3Object, part: Path) -> dict[str, Any] | None:
        """Read an object to its end, in as many requests as necessary; ``None`` if it no longer exists."""
        most, vain, asked = 0, 0, 0
        since: float | None = None
        while True:
            self._patience.pause()
            answer: dict[str, Any] | None = None
            try:
                answer, mode = self._ask(item, part)
                self._read(answer, part, mode)
                return answer
            except Exception as error:
                if isinstance(error, OSError) and error.errno and not isinstance(error, _OF_LINKS):
                    raise  # an error of this machine's disk
                if is_gone(error):
                    part.unlink(missing_ok=True)
                    return None
                failed, asked = refusal(error), asked + requests_of(error)
            if any(f"({code})" in str(failed) for code in _CHANGED):
                part.unlink(missing_ok=True)  # the object was replaced: restart from the beginning
                failed.passing = True
            have = part.stat().st_size if part.is_file() else 0
            if answer is not None:
                most, vain, since = max(most, have), vain + 1 if have <= most and have else 0, None
            since = since or time.monotonic()
            if vain >= _TRIES:  # replies without progress
                failed.of_object, failed.passing = True, False
            elif failed.answered and not failed.busy:  # other objects may still be readable
                failed.of_object = True
            try:
                self._patience.stumble(failed, since if failed.of_object else None)
            except BucketError:
                failed.args = (f"{failed}, after {asked} request{'s' * (asked > 1)}",)
                raise

    def _ask(self, item: S3Object, part: Path) -> tuple[dict[str, Any], str]:
        """Request the missing bytes of an object; return the answer, and the mode to write them in."""
        have = part.stat().st_size if part.is_file() else 0
        asked: dict[str, Any] = {"Bucket": self._address.bucket, "Key": self._address.prefix + item.name}
        if 0 < have < item.size:
            asked |= {"Range": f"bytes={have}-", "IfMatch": f'"{item.digest}"'}
        elif have:
            part.unlink()
            have = 0
        answer: dict[str, Any] = self._client.get_object(**asked)
        goes_on = "Range" in asked and "ContentRange" in answer
        return answer, "ab" if goes_on else "wb"

    def _read(self, answer: dict[str, Any], part: Path, mode: str) -> None:
        with open(part, mode) as file:
            for block in answer["Body"].iter_chunks(_BLOCK):
                file.write(block)
                with self._lock:
                    self.came += len(block)
                self._patience.came()

    def _keep(self, item: S3Object, part: Path, path: Path, answer: dict[str, Any], digest: str) -> None:
        with storage_errors(path):
            os.utime(part, times=(item.time, _time_of(answer, item)))
            os.replace(part, path)
        if digest:
            self._etags.add(item.name, digest, path)

    def _part(self, item: S3Object) -> Path:
        words = f"{item.name}\n{item.digest}".encode(errors="surrogateescape")
        return self._parts / hashlib.sha256(words).hexdigest()[:32]


def _is_encrypted(answer: dict[str, Any]) -> bool:
    """Return whether an object's checksum is not of its content, as with a customer's key."""
    kind = str(answer.get("ServerSideEncryption", ""))
    return _ENCRYPTED.fullmatch(kind) is not None or "SSECustomerAlgorithm" in answer


def _time_of(answer: dict[str, Any], item: S3Object) -> float:
    """Return the file's original modification time if the uploading client stored it; epoch seconds."""
    try:
        said = float(answer["Metadata"]["mtime"])
    except (KeyError, TypeError, ValueError):
        return item.time
    return said if 0 < said <= item.time + 1 else item.time

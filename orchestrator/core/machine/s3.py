"""Addresses, clients and errors of S3 buckets, for both sides of a transfer.

boto3 finds credentials, region and endpoint on the machine: its role, its environment, ~/.aws.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from orchestrator.core.errors import OrchestrateError, StorageError
from orchestrator.core.machine.installation import install_package

_SCHEME = "s3://"
_ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?", re.DOTALL)
_CONNECT_S, _READ_S = 20, 60
# Connections of one transfer.
AT_ONCE = 8
# Error codes by which S3 and compatible servers ask for fewer requests.
_BUSY = (
    *("SlowDown", "503", "ServiceUnavailable", "Throttling", "ThrottlingException", "429"),
    *("RequestLimitExceeded", "TooManyRequests", "TooManyRequestsException", "BandwidthLimitExceeded"),
)
_FAULTY = ("InternalError", "500", "502", "504", "RequestTimeout", "OperationAborted")
# The waits between attempts grow to 20 seconds.
_ATTEMPTS, _PATIENT_ATTEMPTS = 5, 12
# Messages by S3's error codes.
_REASONS = {
    "AccessDenied": "access denied",
    "BadDigest": "the data was damaged on the way there",
    "InvalidObjectState": "it is archived: have it restored first",
    "PermanentRedirect": "it is in another region: set AWS_DEFAULT_REGION",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "ExpiredToken": "its key is expired",
    "InvalidAccessKeyId": "its key is unknown",
    "NoSuchBucket": "there is no such bucket",
    "QuotaExceeded": "it is full",
    "SignatureDoesNotMatch": "its key is refused",
    **dict.fromkeys(_BUSY, "too many requests"),
    **dict.fromkeys(_FAULTY, "internal error of the server"),
}
# Messages by the client's error classes, for failures without an answer of the bucket.
_ON_THE_WAY = {
    "FlexibleChecksumError": "the data was damaged on the way here",
    "IncompleteReadError": "the connection was cut",
    "ResponseStreamingError": "the connection was cut",
    "ProtocolError": "the connection was cut",
    "ConnectionClosedError": "the connection was cut",
    "ReadTimeoutError": "it does not answer",
    "ConnectTimeoutError": "it does not answer",
    "SSLError": "its certificate is not accepted",
}
_NO_KEY = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError")
_GONE = ("404", "NoSuchKey")


@dataclass(frozen=True)
class Address:
    """A bucket and the prefix of its objects' names: empty, or ending in a slash."""

    bucket: str
    prefix: str = ""

    @property
    def text(self) -> str:
        """The address as ``s3://bucket/prefix``."""
        return f"{_SCHEME}{self.bucket}/{self.prefix}".rstrip("/")


class BucketError(StorageError):
    """A failed request to a bucket. ``busy``: it asks for fewer requests, and a later try helps.

    ``passing``: the same request may succeed soon, busy or not. ``of_object``: the fault lies with one
    object. ``answered``: the bucket itself returned the error.
    """

    def __init__(
        self,
        message: str,
        *,
        busy: bool = False,
        passing: bool = False,
        of_object: bool = False,
        answered: bool = False,
    ) -> None:
        super().__init__(message)
        self.busy, self.passing, self.of_object = busy, passing or busy, of_object
        self.answered = answered


def is_bucket(text: str) -> bool:
    """Return whether a text starts like a bucket's address."""
    return text.startswith(_SCHEME)


def parse_bucket(text: str) -> Address:
    """Parse a bucket's address, without network access. Raises :class:`OrchestrateError`."""
    match = _ADDRESS.fullmatch(text)
    prefix = (match["prefix"] or "").strip("/") if match else ""
    if match is None or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise OrchestrateError(
            f"found {text!r}, expected s3://bucket/prefix", hint="as in: s3://my-bucket/experiments"
        )
    return Address(match["bucket"], f"{prefix}/" if prefix else "")


def connect(*, patient: bool = False) -> Any:
    """Make a client for any bucket. Raises :class:`StorageError`.

    ``patient``: repeat a request for about a minute.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise StorageError(
            "it needs the package boto3, which is not installed",
            hint=f"install it: {install_package('boto3')}",
        ) from None
    config = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"mode": "standard", "total_max_attempts": _PATIENT_ATTEMPTS if patient else _ATTEMPTS},
        max_pool_connections=2 * AT_ONCE,
    )
    try:
        return boto3.session.Session().client("s3", config=config)
    except Exception as error:
        raise refusal(error) from error


def is_gone(error: Exception) -> bool:
    """Return whether the error means that an object does not exist."""
    return _code(error) in _GONE


def requests_of(error: Exception) -> int:
    """Return how many requests ended in this error, with the client's own retries."""
    about = getattr(error, "response", None) or {}
    return 1 + int(about.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def refusal(error: Exception) -> BucketError:
    """Turn a client's error into a :class:`BucketError`; its message holds nothing of a key."""
    code, name = _code(error), type(error).__name__
    if code:
        busy, text = code in _BUSY, f"{_REASONS.get(code, 'it refused')} ({code})"
        return BucketError(text, busy=busy, passing=code in _FAULTY, answered=True)
    if name in _NO_KEY:
        return BucketError(f"this machine has no key for it ({name})")
    text = f"{_ON_THE_WAY.get(name, 'it cannot be reached')} ({name})"
    return BucketError(text, passing=name != "SSLError")


def _code(error: Exception) -> str:
    """Return S3's error code; empty without an answer."""
    answered = error if hasattr(error, "response") else error.__context__  # the second for uploads of files
    response = getattr(answered, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))

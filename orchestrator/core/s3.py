"""Buckets of S3, or of a server that speaks like it: what both sides need to know of them.

Credentials, region and endpoint are what boto3 finds on the machine: its role, its environment, ~/.aws.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from orchestrator.core.errors import OrchestrateError, StorageError
from orchestrator.core.installation import install_package

_SCHEME = "s3://"
_ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?", re.DOTALL)
_CONNECT_S, _READ_S = 20, 60
# A transfer with all the connections that it has.
AT_ONCE = 8
# Ways of S3, and of servers that speak like it, to ask for patience.
_BUSY = (
    *("SlowDown", "503", "ServiceUnavailable", "Throttling", "ThrottlingException", "429"),
    *("RequestLimitExceeded", "TooManyRequests", "TooManyRequestsException", "BandwidthLimitExceeded"),
)
_FAULTY = ("InternalError", "500", "502", "504", "RequestTimeout", "OperationAborted")
_ATTEMPTS = 5
# What a refusal means, by S3's names.
_REASONS = {
    "AccessDenied": "access denied",
    "BadDigest": "what arrived there is not what was sent",
    "InvalidObjectState": "it is archived: have it restored first",
    "PermanentRedirect": "it is in another region: set AWS_DEFAULT_REGION",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "ExpiredToken": "its key is expired",
    "InvalidAccessKeyId": "its key is not known",
    "NoSuchBucket": "there is no such bucket",
    "QuotaExceeded": "it is full",
    "SignatureDoesNotMatch": "its key is refused",
    **dict.fromkeys(_BUSY, "it asks for fewer requests"),
    **dict.fromkeys(_FAULTY, "it has a fault of its own"),
}
# The same of errors that are no answer of the bucket's, by the client's names.
_ON_THE_WAY = {
    "FlexibleChecksumError": "what came is not what it has",
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
    """A bucket and how the names of its objects begin: empty, or ending in a slash."""

    bucket: str
    prefix: str = ""

    @property
    def text(self) -> str:
        return f"{_SCHEME}{self.bucket}/{self.prefix}".rstrip("/")


class BucketError(StorageError):
    """A bucket did not do what it was asked. ``busy``: it asks for patience, which helps.

    ``passing``: the same request may succeed in a moment, busy or not. ``of_object``: what is wrong is wrong
    with one object. ``answered``: the error is the bucket's own answer.
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
    """Whether a text is meant as a bucket's address."""
    return text.startswith(_SCHEME)


def parse_bucket(text: str) -> Address:
    """The address; raises :class:`OrchestrateError`. Asks nobody anything."""
    match = _ADDRESS.fullmatch(text)
    prefix = (match["prefix"] or "").strip("/") if match else ""
    if match is None or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise OrchestrateError(
            f"found {text!r}, expected s3://bucket/prefix", hint="as in: s3://my-bucket/experiments"
        )
    return Address(match["bucket"], f"{prefix}/" if prefix else "")


def connect() -> Any:
    """A client for any bucket. Raises :class:`StorageError`."""
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
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        max_pool_connections=2 * AT_ONCE,
    )
    try:
        return boto3.session.Session().client("s3", config=config)
    except Exception as error:
        raise refusal(error) from error


def is_gone(error: Exception) -> bool:
    """Whether an object is not there."""
    return _code(error) in _GONE


def requests_of(error: Exception) -> int:
    """How many requests ended in this error: a client repeats some itself."""
    about = getattr(error, "response", None) or {}
    return 1 + int(about.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def refusal(error: Exception) -> BucketError:
    """What a client's error means, in a line that repeats nothing of a key."""
    code, name = _code(error), type(error).__name__
    if code:
        busy, text = code in _BUSY, f"{_REASONS.get(code, 'it refused')} ({code})"
        return BucketError(text, busy=busy, passing=code in _FAULTY, answered=True)
    if name in _NO_KEY:
        return BucketError(f"this machine has no key for it ({name})")
    text = f"{_ON_THE_WAY.get(name, 'it cannot be reached')} ({name})"
    return BucketError(text, passing=name != "SSLError")


def _code(error: Exception) -> str:
    """S3's name for what is wrong; empty where it did not answer."""
    answered = error if hasattr(error, "response") else error.__context__  # the second where files go up
    response = getattr(answered, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))

"""Buckets of S3, or of a server that speaks like it: what both sides need to know of them.

Credentials, region and endpoint are what boto3 finds on the machine: its role, its environment, ~/.aws.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import OrchestrateError, StorageError

_SCHEME = "s3://"
_ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?", re.DOTALL)
_CONNECT_S, _READ_S = 20, 60
# A transfer with all the connections that it has.
AT_ONCE = 8
# What a refusal means, by S3's names.
_REASONS = {
    "AccessDenied": "access denied",
    "ExpiredToken": "its key is expired",
    "InvalidAccessKeyId": "its key is not known",
    "NoSuchBucket": "there is no such bucket",
    "QuotaExceeded": "it is full",
    "SignatureDoesNotMatch": "its key is refused",
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
            "it needs the package boto3, which is not installed", hint="install it: pip install boto3"
        ) from None
    config = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"total_max_attempts": 3},
        max_pool_connections=2 * AT_ONCE,
    )
    try:
        return boto3.session.Session().client("s3", config=config)
    except Exception as error:
        raise refusal(error) from error


def is_gone(error: Exception) -> bool:
    """Whether an object is not there."""
    return _code(error) in _GONE


def refusal(error: Exception) -> StorageError:
    """What a client's error means, in a line that repeats nothing of a key."""
    code, name = _code(error), type(error).__name__
    if code:
        return StorageError(f"{_REASONS.get(code, 'it refused')} ({code})")
    if name in _NO_KEY:
        return StorageError(f"this machine has no key for it ({name})")
    return StorageError(f"it cannot be reached ({name})")


def _code(error: Exception) -> str:
    """S3's name for what is wrong; empty where it did not answer."""
    answered = error if hasattr(error, "response") else error.__context__  # the second where files go up
    response = getattr(answered, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))

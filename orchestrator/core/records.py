"""Typed records: values of our types from JSON's objects, and back.

The fields of a type are the names in the file. A value of another type than its field's is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

_Record = TypeVar("_Record")


def parse(kind: type[_Record], data: Any) -> _Record:
    """Return a value of the type ``kind`` from parsed JSON. Raises ``ValueError`` that names the field."""
    return msgspec.convert(data, kind, dec_hook=_from_text)


def plain(record: Any) -> Any:
    """Return a record as JSON's values; sets are sorted lists."""
    return msgspec.to_builtins(record, order="deterministic", enc_hook=os.fspath)


def _from_text(kind: type, data: Any) -> Any:
    if kind is Path and isinstance(data, str):
        return Path(data)
    raise TypeError(f"found {data!r}"[:200])

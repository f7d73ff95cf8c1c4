"""The identity of a run: a hash of what decides its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from orchestrator.core.types import Value


def run_identity(
    trainer: str,
    overrides: Mapping[str, Value],
    seed: int,
    threads: int,
    target: str | None = None,
    **origin: str,
) -> str:
    """Hash the inputs that decide a run's result into 16 hexadecimal digits.

    The caller leaves out overrides that decide nothing. Equal numbers hash alike in any spelling (``1``,
    ``1.0``), keys are sorted, and text is hashed unchanged. ``origin``: the id of the run
    that it is a ``fork`` of, or of that which gives it its policy, ``init``.
    """
    keys = {"overrides": dict(overrides), "seed": seed, "threads": threads, "target": target, **origin}
    text = json.dumps(
        _canonical({"trainer": trainer, **keys}), sort_keys=True, ensure_ascii=True, allow_nan=True
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(value: Value) -> Value:
    if value is None or isinstance(value, (str, int)):  # most are, and this is quick
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value

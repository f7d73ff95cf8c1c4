"""What W&B wrote offline, read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def records(folder: Path) -> Iterator[Any]:
    """Every record of the one offline run in ``folder``, as W&B's own reader gives it."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    [file] = folder.glob("offline-run-*/run-*.wandb")
    store = DataStore()
    store.open_for_scan(str(file))
    try:
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            yield record
    finally:
        store._fp.close()  # it has no method that closes what it scans


def values(items: Any) -> dict[str, Any]:
    """The items of a record, by name."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Those that W&B keeps as numbers."""
    return {name: value for name, value in metrics.items() if value == value and abs(value) != float("inf")}

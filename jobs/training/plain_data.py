"""Write and read plain data: None, numbers, text, bytes, and lists, tuples, dicts and sets of these.

A file of plain data holds no code: reading it creates no object of any class.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NoReturn


class _Writer(pickle.Pickler):
    def reducer_override(self, value: Any) -> NoReturn:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"found a {kind}, expected None, numbers, text, bytes, lists, tuples, dicts or sets")


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"holds a {module}.{name}, which is no plain data")


def write_plain_data(path: Path, value: Any) -> None:
    """Write the value to a file. Raises ``TypeError`` if it is not plain data."""
    with open(path, "wb") as file:
        _Writer(file, protocol=5).dump(value)


def read_plain_data(path: Path) -> Any:
    """Return the value in the file. Raises ``pickle.UnpicklingError`` if it is not plain data."""
    with open(path, "rb") as file:
        return _Reader(file).load()

"""Read the YAML files of config groups, without Hydra."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def options_in(folders: tuple[Path, ...], group: str) -> tuple[str, ...]:
    """Return the options of a config group, such as ``vmas/navigation`` for ``task``."""
    return tuple(dict.fromkeys(name for folder in folders for name in _options_below(folder / group)))


@cache
def values_in(folders: tuple[Path, ...], group: str, option: str) -> Mapping[str, Any]:
    """Return the values in the file of an option and of its bases, without their types."""
    for folder in folders:
        path = folder / group / f"{option}.yaml"
        if not path.is_file():
            continue
        own = yaml.safe_load(path.read_bytes()) or {}
        below = own.pop("defaults", [])
        bases = [one for one in below if isinstance(one, str) and one in options_in(folders, group)]
        merged: dict[str, Any] = {}
        for base in bases:
            merged.update(values_in(folders, group, base))
        return {**merged, **own}
    return {}


def _options_below(folder: Path) -> list[str]:
    return [path.relative_to(folder).with_suffix("").as_posix() for path in sorted(folder.rglob("*.yaml"))]

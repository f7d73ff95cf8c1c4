"""Hash one file of a program; recognise grids and profiles, which do not count."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields
from functools import cache
from pathlib import Path

from orchestrator.config.worktree import LARGEST_FILE

_RUNS = frozenset(("base", "matrix", "zip", "include"))
_GRID_KEYS = _RUNS | frozenset(
    ("name", "trainer", "plugins", "loggers", "exclude", "targets", "compare", "resources")
)
# Profile keys that a program's own settings hardly have.
_OF_MACHINES = frozenset(
    (
        "accelerators",
        "account",
        "backend",
        "cpus_per_task",
        "instance_type",
        "partition",
        "price_per_hour",
        "qos",
    )
)
_CHUNK = 1 << 20


def digest_of(path: Path, *, asked: bool) -> str | None:
    """Hash a file's content; None for a missing file.

    Also None for grids and profiles unless ``asked`` for: they select runs and their place, and do not change
    the result of one.
    """
    try:
        about = os.stat(path)
    except OSError:
        return None
    if not os.path.isfile(path):
        return None
    mark = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    known = _known.get(os.fspath(path))
    if known is None or known[0] != mark:
        try:
            known = (mark, *_read(path, about.st_size))
        except OSError:
            return None
        _known[os.fspath(path)] = known
    return None if known[2] and not asked else known[1]


_known: dict[str, tuple[tuple[int, ...], str, bool]] = {}


def _read(path: Path, size: int) -> tuple[str, bool]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        first = file.read(_CHUNK)
        digest.update(first)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    is_yaml = path.suffix.lower() in (".yaml", ".yml") and size <= LARGEST_FILE
    return digest.hexdigest(), is_yaml and _is_grid_or_profile(first)


def _is_grid_or_profile(text: bytes) -> bool:
    keys = _top_keys(text)
    is_grid = {"name", "trainer"} <= keys <= _GRID_KEYS and bool(keys & _RUNS)
    return is_grid or (bool(keys & _OF_MACHINES) and keys <= _profile_keys())


@cache
def _profile_keys() -> frozenset[str]:
    from orchestrator.config.profiles.model import Profile  # at a YAML file: a worker starts without it

    return frozenset(key.name for key in fields(Profile) if "told" in key.metadata)


def _top_keys(text: bytes) -> set[str]:
    """Return the top-level keys of a YAML file; empty if it is cut short or no mapping."""
    import yaml

    try:
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return set()
    if not isinstance(root, yaml.MappingNode):
        return set()
    return {key.value for key, _ in root.value if isinstance(key, yaml.ScalarNode)}

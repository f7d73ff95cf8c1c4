"""Hash one file of a program; recognise grids and profiles, which do not count."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path

from orchestrator.config.code.syntax import program_hash
from orchestrator.config.code.worktree import LARGEST_FILE

_RUNS = frozenset(("base", "matrix", "zip", "include"))
# Profile keys that a program's own settings hardly have.
_OF_MACHINES = frozenset(
    (
        *("accelerators", "account", "backend", "cpus_per_task", "instance_type"),
        *("partition", "price_per_hour", "qos"),
    )
)
_CHUNK = 1 << 20
# The mark of a syntax tree's hash; that of a file's content has none.
_SYNTAX = "ast:"


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


def syntax_of(path: Path, *, asked: bool = True) -> str | None:
    """Hash a file as :func:`digest_of`, but of a Python file the syntax tree, without comments."""
    content = digest_of(path, asked=asked)
    if content is None or path.suffix != ".py":
        return content
    if content not in _syntax:
        try:
            _syntax[content] = _SYNTAX + program_hash(path.read_bytes())
        except OSError:
            return None
    return _syntax[content]


# The hashes of syntax trees by those of the content.
_syntax: dict[str, str] = {}


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
    top = _top_values(text)
    keys = top.keys()
    return _is_grid(top) or (bool(keys & _OF_MACHINES) and keys <= _profile_keys())


def _is_grid(top: Mapping[str, str]) -> bool:
    """Return whether a file has the sections of a grid, or of one that grids extend.

    The latter has a list `for`, or names a trainer; a program's settings may have a mapping of that name.
    """
    from orchestrator.config.grid.parse import SECTIONS  # at a YAML file: a worker starts without it

    if not top.keys() <= SECTIONS.keys():
        return False
    if "for" in top or "extends" in top:
        return top.get("for", "sequence") == "sequence" and len(top) > 1
    return top.get("trainer") == "scalar" and bool(top.keys() & _RUNS)


@cache
def _profile_keys() -> frozenset[str]:
    from orchestrator.config.profiles.model import Profile  # at a YAML file: a worker starts without it

    return frozenset(key.name for key in fields(Profile) if "told" in key.metadata)


def _top_values(text: bytes) -> dict[str, str]:
    """Map a YAML file's top-level keys to the kinds of their values; empty if it is cut or no mapping."""
    import yaml

    try:
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    if not isinstance(root, yaml.MappingNode):
        return {}
    return {key.value: value.id for key, value in root.value if isinstance(key, yaml.ScalarNode)}

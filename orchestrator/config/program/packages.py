"""Find out whether a Python file has to be started as a module of its package."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path


def module_of_file(script: str) -> str | None:
    """Return the name by which `python -m` starts a file; ``None`` if the file can be started by its path.

    A file that imports relatively, or modules of this folder that its own folder lacks, has to be a module.
    """
    path = Path(os.path.normpath(script))
    parts = path.with_suffix("").parts
    if len(parts) < 2 or path.is_absolute() or not all(part.isidentifier() for part in parts):
        return None
    needed = any(_is_module(Path(name)) and not _is_module(path.parent / name) for name in imports(path))
    return ".".join(parts) if needed or relative_import(path) else None


def relative_import(path: Path) -> str | None:
    """Return the first module that a file imports relatively, as ``.net``, without a condition.

    ``None`` for a file that sets ``__package__``, with which Python finds such modules.
    """
    for node in _statements(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            return "." * node.level + (node.module or node.names[0].name)
        if "__package__" in ast.unparse(node):
            return None
    return None


def imports(path: Path) -> tuple[str, ...]:
    """Return the top-level modules that a file imports without a condition, and not relatively."""
    names: list[str] = []
    for node in _statements(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return tuple(dict.fromkeys(name.partition(".")[0] for name in names))


def _statements(path: Path) -> Iterator[ast.stmt]:
    try:
        yield from ast.parse(path.read_bytes()).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return  # perhaps of another version of Python


def _is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()

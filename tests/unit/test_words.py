"""The words of docstrings: pronouns without a noun behind them stand for an object that has a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = re.compile(r"\b(nobody|somebody|whoever|whatever|whose)\b", re.IGNORECASE)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
ALLOWED: tuple[str, ...] = ()  # packages still to do


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line of every documented object in the file, and its docstring."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, DOCUMENTED):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


def test_docstrings_name_their_objects() -> None:
    found, files = [], 0
    for file in sorted(
        path for package in ("orchestrator", "jobs") for path in (ROOT / package).rglob("*.py")
    ):
        files += 1
        name = file.relative_to(ROOT).as_posix()
        if name.startswith(ALLOWED):
            continue
        for line, text in docstrings(file):
            found += [f"{name}:{line}: {word}" for word in WORDS.findall(text)]
    assert files > 300
    assert found == []

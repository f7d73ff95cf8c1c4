"""The size of the code: it grows only together with the figure in pyproject.toml."""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["orchestrate"]["size"]
SOURCES = sorted(path for package in ("orchestrator", "jobs") for path in (ROOT / package).rglob("*.py"))
BESIDE_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENDMARKER, tokenize.ENCODING),
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(source: str, tree: ast.Module) -> int:
    """Count lines with code: without blank lines, comments and docstrings."""
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BESIDE_CODE:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
            text = node.body[0]
            used -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(used)


def length(function: Function) -> int:
    """Count a function's lines, without its docstring."""
    text = function.body[0] if ast.get_docstring(function) is not None else None
    spent = 0 if text is None else (text.end_lineno or text.lineno) - text.lineno + 1
    return (function.end_lineno or function.lineno) - function.lineno + 1 - spent


def parameters(function: Function) -> int:
    given = function.args
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")])


def test_the_code_grows_only_with_its_figure() -> None:
    counted = 0
    for path in SOURCES:
        source = path.read_text()
        counted += code_lines(source, ast.parse(source))
    limit = FIGURES["code_lines"]
    assert counted <= limit, f"{counted:,} code lines: more than the {limit:,} of [tool.orchestrate.size]"
    # A figure far above the code would let it grow unnoticed.
    assert counted > limit - 200, f"{counted:,} code lines: lower the {limit:,} of [tool.orchestrate.size]"


def test_functions_stay_short_and_have_few_parameters() -> None:
    found: list[tuple[str, Function]] = []
    for path in SOURCES:
        nodes = ast.walk(ast.parse(path.read_text()))
        found += [(str(path.relative_to(ROOT)), node) for node in nodes if isinstance(node, Function)]
    lengths = sorted(length(function) for _, function in found)
    assert lengths[len(lengths) // 2] <= 7
    assert lengths[len(lengths) * 9 // 10] <= 18
    # A command's function declares its options, also in Python.
    commands = ("orchestrator/ui/cli/", "orchestrator/api.py")
    inner = [(name, function) for name, function in found if not name.startswith(commands)]
    long = [f"{name}:{one.name}" for name, one in inner if length(one) > 60]
    many = [f"{name}:{one.name}" for name, one in inner if parameters(one) > FIGURES["parameters"]]
    assert (long, many) == ([], [])

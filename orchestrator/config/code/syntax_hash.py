"""Hash what Python source does: its syntax tree without docstrings, comments and import statements."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable

_IMPORTS = (ast.Import, ast.ImportFrom)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Fields that only describe spelling.
_SPELLING = ("kind", "type_comment", "type_ignores")


def syntax_hash(source: bytes) -> str:
    """Hash a source into 64 hexadecimal digits, equal under every Python that can parse it.

    Source that this Python cannot parse is hashed byte by byte.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return hashlib.sha256(source).hexdigest()
    parts: list[str] = []
    _add(tree, parts.append)
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def _add(value: object, put: Callable[[str], None]) -> None:
    """Append a node, a list of nodes or a constant. Skip absent fields, as later Pythons have more."""
    if isinstance(value, ast.AST):
        put(type(value).__name__)
        for name in value._fields:
            field = getattr(value, name, None)
            if field is None or field == [] or name in _SPELLING:
                continue
            put(name)
            _add(field[1:] if name == "body" and _has_docstring(value) else field, put)
        put(")")
    elif isinstance(value, list):
        for one in value:
            if not isinstance(one, _IMPORTS):
                _add(one, put)
        put("]")
    else:
        put(repr(value))


def _has_docstring(node: ast.AST) -> bool:
    if not isinstance(node, _DOCUMENTED) or not node.body:
        return False
    first = node.body[0]
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )

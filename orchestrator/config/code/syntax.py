"""Read Python source: a hash of what it does, and the modules that it imports."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Fields that only describe spelling.
_SPELLING = frozenset(("kind", "type_comment", "type_ignores"))


@dataclass(frozen=True)
class ModuleSource:
    """``hash``: 64 hexadecimal digits of the syntax tree without docstrings, comments and import statements.

    It is equal under every Python that can parse the source. ``imports``: the import statements, those within
    functions too, without those for type checkers.
    """

    hash: str
    imports: tuple[ast.Import | ast.ImportFrom, ...] = ()

    def imported(self, package: str) -> Iterator[str]:
        """Yield the names of the imported modules, and of objects as if they were modules.

        ``package``: the package of the module, for relative imports.
        """
        for statement in self.imports:
            if isinstance(statement, ast.Import):
                yield from (alias.name for alias in statement.names)
                continue
            parents = package.split(".")[: len(package.split(".")) - statement.level + 1]
            above = parents if statement.level else []
            module = ".".join([*above, *([statement.module] if statement.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in statement.names)


def read_source(source: bytes) -> ModuleSource:
    """Read a module's source. One that this Python cannot parse is hashed byte by byte."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ModuleSource(hashlib.sha256(source).hexdigest())
    parts: list[str] = []
    imports: list[ast.Import | ast.ImportFrom] = []
    _add(tree, parts.append, imports.append)
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
    return ModuleSource(digest, tuple(imports))


def program_hash(source: bytes) -> str:
    """Hash a program's Python file: its syntax tree without docstrings and comments, with its imports.

    Docstrings count in a file that reads them.
    """
    if b"__doc__" in source:
        return hashlib.sha256(source).hexdigest()
    module = read_source(source)
    lines = [module.hash, *map(ast.unparse, module.imports)]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogatepass")).hexdigest()


def _add(
    node: ast.AST, put: Callable[[str], None], take: Callable[[ast.Import | ast.ImportFrom], None]
) -> None:
    """Put a node's hashed text; take its imports. Skip absent fields, as later Pythons have more."""
    put(type(node).__name__)
    for name in node._fields:
        field = getattr(node, name, None)
        if field is None or field == [] or name in _SPELLING:
            continue
        put(name)
        if isinstance(field, ast.AST):
            _add(field, put, take)
        elif isinstance(field, list):
            body = name == "body"
            taking = _leave if body and _is_for_types(node) else take
            _add_list(field[1:] if body and _has_docstring(node) else field, put, taking)
        else:
            put(repr(field))
    put(")")


def _add_list(
    items: Iterable[object],
    put: Callable[[str], None],
    take: Callable[[ast.Import | ast.ImportFrom], None],
) -> None:
    for item in items:
        if isinstance(item, ast.Import | ast.ImportFrom):
            take(item)
        elif isinstance(item, ast.AST):
            _add(item, put, take)
        else:
            put(repr(item))
    put("]")


def _leave(_: ast.Import | ast.ImportFrom) -> None:
    """Take no import."""


def _is_for_types(node: ast.AST) -> bool:
    """Return whether the node is an ``if TYPE_CHECKING``."""
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return (test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)) == "TYPE_CHECKING"


def _has_docstring(node: ast.AST) -> bool:
    if not isinstance(node, _DOCUMENTED) or not node.body:
        return False
    first = node.body[0]
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )

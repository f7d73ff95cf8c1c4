"""Evaluate constant expressions of a program's source, such as ``int(1e6)`` and ``10 * 128``."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.core.types import Value

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_LARGEST = 2**63
_LONGEST = 40


def constant(node: ast.expr, names: Mapping[str, ast.expr]) -> Value:
    """Return the JSON value of an expression. Raises ``ValueError`` for one that is not constant."""
    value = _evaluated(node, names)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not finite")
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise ValueError("beyond 64 bits")
    return value


def _evaluated(node: ast.expr, names: Mapping[str, ast.expr]) -> Value:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [constant(item, names) for item in node.elts]
    if isinstance(node, ast.Name) and node.id in names:
        return constant(names[node.id], {})
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _number(node.left, names), _number(node.right, names)
        if not isinstance(node.op, ast.Pow) or abs(right) < 64:
            try:
                value = _OPERATORS[type(node.op)](left, right)
            except ArithmeticError:
                value = None
            if isinstance(value, int | float):
                return value
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("int", "float") and len(node.args) == 1:
        number = _number(node.args[0], names)
        return int(number) if ast.unparse(node.func) == "int" else float(number)
    raise ValueError("not constant")


def _number(node: ast.expr, names: Mapping[str, ast.expr]) -> int | float:
    value = constant(node, names)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    return value


def default_of(node: ast.expr, names: Mapping[str, ast.expr], kind: str) -> tuple[Value, str]:
    """Return a default, and why it cannot be passed: empty if it can."""
    try:
        value = constant(node, names)
    except RecursionError:
        return None, "its default is a long expression"
    except ValueError:
        text = ast.unparse(node)
        return None, f"its default is {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}"
    if value is None:
        return None, "its default is None"
    if kind in ("int", "integer") and isinstance(value, float) and value.is_integer():
        value = int(value)
    return value, ""

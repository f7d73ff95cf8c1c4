"""Resolve plain YAML scalars: YAML 1.2's core schema, plus ``_`` in numbers and integers in exponent form.

``6e4`` and ``6.0e4`` are the integer 60000, ``1.0`` is a float, ``no`` and ``20:00:00`` are text.
"""

from __future__ import annotations

import math
import re

from orchestrator.core.types import Value

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_INTEGER = re.compile(rf"[-+]?{_DIGITS}")
_OCTAL = re.compile(r"0o[0-7]+(?:_[0-7]+)*")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*")
_FLOAT = re.compile(rf"[-+]?(?:\.{_DIGITS}|{_DIGITS}(?:\.(?:{_DIGITS})?)?)(?P<exponent>[eE][-+]?[0-9]+)?")
LARGEST = 2**63


def resolve(text: str) -> Value:
    """Return the value of a plain scalar. Raises ``ValueError`` for a number beyond 64 bits."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text, 10)
    if _OCTAL.fullmatch(text):
        return _integer(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return _integer(text[2:], 16)
    number = _FLOAT.fullmatch(text)
    return text if number is None else _real(text, exponent=number["exponent"] is not None)


def _integer(text: str, base: int) -> int:
    digits = text.replace("_", "")
    # int() of thousands of digits is slow, and refuses with a message about the interpreter.
    value = int(digits, base) if len(digits) <= 100 else LARGEST
    if not -LARGEST <= value < LARGEST:
        raise ValueError("an integer beyond 64 bits")
    return value


def _real(text: str, *, exponent: bool) -> float | int:
    value = float(text.replace("_", ""))
    if math.isinf(value):
        raise ValueError("a number too large for a float (infinity is .inf)")
    if exponent and value.is_integer() and abs(value) < LARGEST:
        return int(value)
    return value

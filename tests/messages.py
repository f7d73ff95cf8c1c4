"""Every message that the program can give for an error or a finding, read from its code.

A message in the code is a template. Its values stand here in capitals: `found the target NAME twice`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.helpers import ROOT

CATALOGUE = ROOT / "tests" / "golden" / "messages.txt"
# A finding of `check` about some runs; it becomes an error of the sweep where it stops them.
_FINDING = "Problem"
_FIRST_TEXT = {"DamagedFileError": 1, _FINDING: 2}
_ANYTHING = "…"


@dataclass(frozen=True, order=True)
class Message:
    """One message: the class of the error, its text, and what to type next (empty if there is nothing)."""

    kind: str
    text: str
    hint: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}\n" + (f"  {self.hint}\n" if self.hint else "")


def messages(*packages: str) -> list[Message]:
    """Return the messages of the packages' code, in the order of their text."""
    code = [file.read_text() for package in packages for file in (ROOT / package).rglob("*.py")]
    trees = [ast.parse(text) for text in code if "Error(" in text or f"{_FINDING}(" in text]
    kinds = {*_errors(trees), _FINDING}
    return sorted({message for tree in trees for message in _of_module(tree, kinds)})


def read_catalogue(file: Path = CATALOGUE) -> list[Message]:
    """Return the messages of the golden file."""
    lines = re.findall(r"^(\w+): (.*)\n(?:  (.*)\n)?", file.read_text(), re.MULTILINE)
    return [Message(*line) for line in lines]


def _errors(trees: list[ast.Module]) -> set[str]:
    """Return the names of all classes below `OrchestrateError`."""
    bases = {
        node.name: {_last(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"OrchestrateError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def _of_module(tree: ast.Module, kinds: set[str]) -> Iterator[Message]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for function in [*tree.body, *(member for owner in classes for member in owner.body)]:
        if isinstance(function, ast.FunctionDef):
            nodes = list(ast.walk(function))
            texts = {
                target.id: node.value
                for node in nodes
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for call in nodes:
                if isinstance(call, ast.Call) and (kind := _last(call.func)) in kinds:
                    yield from _of_call(kind, call, texts)


def _of_call(kind: str, call: ast.Call, texts: dict[str, ast.expr]) -> Iterator[Message]:
    first = _FIRST_TEXT.get(kind, 0)
    hints = [word.value for word in call.keywords if word.arg == "hint"] + call.args[first + 1 :]
    for text in _texts(call.args[first], texts) if len(call.args) > first else ():
        words = re.sub(rf"[A-Z_]{{2,}}|{_ANYTHING}|\W", "", text)
        if len(words) > 8:
            hint = next(iter(_texts(hints[0], texts)), "") if hints else ""
            text = f"FILE: {text}" if kind == "DamagedFileError" else text
            yield Message(kind, text, "" if hint == _ANYTHING else hint)


def _texts(node: ast.expr, texts: dict[str, ast.expr]) -> list[str]:
    """Return what an expression can say: both cases of a choice, and what a variable was given."""
    match node:
        case ast.Constant(value=str(text)):
            return [" ".join(text.split())]
        case ast.JoinedStr():
            return [" ".join(_joined(node.values).split())]
        case ast.IfExp():
            return [*_texts(node.body, texts), *_texts(node.orelse, texts)]
        case ast.Name(id=name) if name in texts:
            return _texts(texts[name], texts)
        case ast.Constant(value=None):
            return []
    return [_ANYTHING]


def _joined(values: list[ast.expr]) -> str:
    """Join the parts of a text. A value that touches a word is there at times only: it becomes `…`."""
    text = ""
    for value, following in pairwise([*values, ast.Constant("")]):
        part = _part(value)
        if isinstance(value, ast.FormattedValue):
            touches = text[-1:].isalpha() or text.endswith((")", _ANYTHING))
            if touches or (isinstance(following, ast.Constant) and _part(following)[:1].isalpha()):
                part = _ANYTHING
        text = text.removesuffix(_ANYTHING) + part if part == _ANYTHING else text + part
    return text


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    if isinstance(node.value, ast.Name):
        return node.value.id.strip("_").upper()
    if isinstance(node.value, ast.Attribute):
        name = node.value.attr
        return (_last(node.value.value) if name in ("name", "value", "id") else name).strip("_").upper()
    return _ANYTHING


def _last(node: ast.expr) -> str:
    """Return the last name of `a.b.C`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else _ANYTHING

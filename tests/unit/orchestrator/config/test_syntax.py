"""The hash of source code follows what the code does, and not how it is told."""

from __future__ import annotations

import pytest

from orchestrator.config.code.syntax import read_source

SOURCE = '''"""A module."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Net:
    """A class."""

    width = 64  # neurons

    def forward(self, x: float) -> float:
        """A method."""
        import torch
        return math.tanh(x * self.width + 1)


def lr(step: int) -> str:
    text = f"{step:>4} of {1e-3!r}"
    return text if step > 0 else "first"
'''
TIDIED = [
    ('"""A module."""', "# no docstring\n"),
    ("import math\n", "import math\nimport os\n"),
    ("from typing import TYPE_CHECKING", "from typing import (\n    TYPE_CHECKING,\n)"),
    ("    from pathlib import Path", "    from orchestrator.rundir import Run"),
    ('    """A class."""\n', ""),
    ("  # neurons", ""),
    ('        """A method."""', '        """Say it better.\n\n        At length."""'),
    ("        import torch\n", ""),
    ("x * self.width + 1", "(x * self.width\n            + 1)"),
    ('"first"', "'first'"),
]
CHANGED = [
    ("+ 1", "- 1"),
    ("width = 64", "width = 65"),
    ("64", "64.0"),
    ("step > 0", "step >= 0"),
    ('"first"', '"First"'),
    ("{step:>4}", "{step:>5}"),
    ("self.width", "self.depth"),
    ("    text = f", '    "no docstring"\n    text = g = f'),
    ("class Net:", "@final\nclass Net:"),
]


@pytest.mark.parametrize(("old", "new"), TIDIED)
def test_tidying_changes_nothing(old: str, new: str) -> None:
    assert old in SOURCE
    assert read_source(SOURCE.replace(old, new).encode()).hash == read_source(SOURCE.encode()).hash


@pytest.mark.parametrize(("old", "new"), CHANGED)
def test_what_the_code_does_changes_it(old: str, new: str) -> None:
    assert old in SOURCE
    assert read_source(SOURCE.replace(old, new).encode()).hash != read_source(SOURCE.encode()).hash


def test_it_is_the_same_under_every_python() -> None:
    """A laptop and a cluster may have different ones: what this Python finds is what the others found."""
    assert read_source(SOURCE.encode()).hash.startswith("b6df214d8bf8")


@pytest.mark.parametrize("source", [b"def f(:\n", b"print 'x'\n", b"a = 1\0", b"\xff\xfe"])
def test_what_cannot_be_parsed_counts_byte_by_byte(source: bytes) -> None:
    assert read_source(source).hash != read_source(source + b" ").hash


IMPORTING = """
import numpy
from typing import TYPE_CHECKING
from . import sibling
from .beside import thing
from ..above import Other

if TYPE_CHECKING:
    import for_types
else:
    import otherwise

def later():
    try:
        from package.module import name
    except ImportError:
        import package.second as other
"""


def test_imports_are_those_of_functions_too_and_none_for_type_checkers() -> None:
    found = set(read_source(IMPORTING.encode()).imported("pack.inner"))
    assert found == {
        *("numpy", "typing", "typing.TYPE_CHECKING", "otherwise", "package.second"),
        *("pack.inner", "pack.inner.sibling", "pack.inner.beside", "pack.inner.beside.thing"),
        *("pack.above", "pack.above.Other", "package.module", "package.module.name"),
    }

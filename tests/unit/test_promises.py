"""Each promise of tests/promises.yaml has tests that exist, one of them outside the nightly ones."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROMISES = yaml.safe_load((ROOT / "tests" / "promises.yaml").read_text())
TESTS = {promise: tests for group in PROMISES.values() for promise, tests in group.items()}


@cache
def functions(file: str) -> dict[str, bool]:
    """Return by the name of each test in the file whether it is nightly, in all its cases."""
    path = ROOT / file
    tree = ast.parse(path.read_bytes() if path.is_file() else "")
    marks = [node for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    everywhere = any("mark.nightly" in ast.unparse(mark) for mark in marks)
    return {
        node.name: everywhere
        or any(ast.unparse(mark).endswith("mark.nightly") for mark in node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def test_no_promise_lost_its_tests() -> None:
    lost, nightly = [], []
    for promise, tests in TESTS.items():
        places = [test.partition("::") for test in tests]
        lost += [f"{promise}: {file}::{name}" for file, _, name in places if name not in functions(file)]
        if all(functions(file).get(name, True) for file, _, name in places):
            nightly.append(promise)
    assert lost == [], (
        "tests/promises.yaml names tests that do not exist: name those that hold the promise now"
    )
    assert nightly == [], (
        f"{nightly}: these promises have nightly tests only: name one that runs in `make test`"
    )


def test_promises_are_all_that_there_are() -> None:
    assert len(TESTS) == sum(map(len, PROMISES.values())) >= 50

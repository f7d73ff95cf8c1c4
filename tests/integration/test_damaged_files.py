"""Values of wrong kinds in any file of a results tree: every command answers, with all other runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.cli import app
from orchestrator.ui.monitor.tree import WatchedTree
from tests.integration.test_odd_files import make_tree

_DEEP = "a hundred thousand lists"
_VALUES: list[Any] = [
    *(0, -1, 2.5, 10**30, 10**400, float("nan"), float("inf"), True, None),
    *("", "x", "\ud800", "1e400", "a\nb\x1b[31m", [], {}, [1], {"a": 1}, {"\ud800": 1}, _DEEP),
]
# Inputs that once ended a command, or took all runs away: file, path in its JSON, value.
_KNOWN: list[tuple[str, tuple[Any, ...], Any]] = [
    ("metrics.jsonl", ("metrics",), {"\ud800": 1.0}),
    ("metrics.jsonl", ("metrics",), {"return": [1]}),
    ("0001-0001.jsonl", ("data",), {"outcome": "failed", "message": 7}),
    ("0001-0001.jsonl", ("data",), {"host": "node7"}),
    ("0001-0001.jsonl", ("time",), 10**400),
    ("result.json", ("versions",), "\ud800"),
    ("result.json", ("code_ids",), [1, None]),
    ("result.json", ("final_return",), _DEEP),
    ("compacted.jsonl", ("time",), _DEEP),
    ("metrics.jsonl", ("metrics",), _DEEP),
    ("0001.json", ("jobs", 0, "plugins"), "x"),
    ("0001.json", ("jobs", 0, "resources"), {"mem": 1}),
    ("index.tsv", (), [1]),
    ("index.tsv", ("task",), {"\ud800": 1}),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("damaged"))


def spelled(value: Any) -> str:
    return json.dumps(value).replace(f'"{_DEEP}"', "[" * 100_000 + "]" * 100_000)


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in a JSON value."""
    yield above
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from paths(part, (*above, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    return (
        {**value, path[0]: replaced(value.get(path[0]), path[1:], new)}
        if isinstance(value, dict)
        else [
            replaced(part, path[1:], new) if number == path[0] else part for number, part in enumerate(value)
        ]
    )


def records(path: Path) -> list[tuple[str, Any]]:
    """The JSON values of a file, one or a line each, with the columns before them."""
    text = path.read_text()
    try:
        return [("", json.loads(text))]
    except ValueError:
        pass
    found = []
    for line in text.splitlines():
        columns, tab, record = line.rpartition("\t")
        try:
            found.append((columns + tab, json.loads(record)))
        except ValueError:
            found.append((line, None))
    return found


def damage(path: Path, number: int, place: tuple[Any, ...], value: Any) -> None:
    lines = []
    for position, (columns, record) in enumerate(records(path)):
        new = replaced(record, place, value) if position == number else record
        lines.append(columns if record is None else columns + spelled(new))
    path.write_text("\n".join(lines) + "\n")


def require_answers(tree: Path, monkeypatch: pytest.MonkeyPatch, *commands: tuple[str, ...]) -> None:
    """Three of the four runs at least are in what the commands answer."""
    monkeypatch.chdir(tree)
    for command in (("status", "odd", "--json"), ("collect", "odd"), *commands):
        answer = CliRunner().invoke(app, list(command))
        assert isinstance(answer.exception, OrchestrateError | SystemExit | None), answer.exception
        assert answer.exit_code == 0, (command, answer.exception, answer.output)
        if "--json" in command:
            assert len(json.loads(answer.stdout)[0]["runs"]) >= 3
    assert len(pl.read_parquet("results/odd/results.parquet")) >= 3
    WatchedTree(Path("results")).look(time.time(), 10)


@pytest.mark.parametrize(("name", "place", "value"), _KNOWN)
def test_one_odd_value_takes_no_other_run_away(
    tree: Path, name: str, place: tuple[Any, ...], value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sorted((tree / "results" / "odd").rglob(name))[0]
    before = path.read_bytes()
    last = len(records(path)) - 1
    damage(path, last if path.suffix in (".tsv", ".jsonl") else 0, place, value)
    try:
        require_answers(tree, monkeypatch, *([("report", "odd")] if name == "metrics.jsonl" else []))
    finally:
        path.write_bytes(before)


def test_a_byte_that_is_no_text_takes_no_run_away(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tree / "results" / "odd" / "index.tsv"
    before = path.read_bytes()
    path.write_bytes(before.replace(b"mappo", b"map\xffo", 1))
    try:
        require_answers(tree, monkeypatch)
    finally:
        path.write_bytes(before)


@given(data=st.data())
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_value_of_any_kind(tree: Path, data: st.DataObject, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        path for path in sorted((tree / "results").rglob("*")) if path.suffix in (".json", ".jsonl", ".tsv")
    ]
    path = data.draw(st.sampled_from(files))
    known = records(path)
    number = data.draw(st.sampled_from([n for n, (_, record) in enumerate(known) if record is not None]))
    place = data.draw(st.sampled_from(list(paths(known[number][1]))))
    before = path.read_bytes()
    damage(path, number, place, data.draw(st.sampled_from(_VALUES)))
    try:
        require_answers(tree, monkeypatch)
    finally:
        path.write_bytes(before)

"""The grid's keys as columns, whatever they are called and whatever they hold."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.run_table import RunReading, metrics_table, runs_table
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text("ab"), SCALARS, max_size=2)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from(
    ["frames", "state", "run_id", "grid.frames", "threads", "seed", "task", "*", "^.*$"]
)


def table_of(points: list[dict[str, Any]]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    readings = [
        RunReading("speed", IndexRow(f"{number:016x}", True, point), RunState.PENDING, "")
        for number, point in enumerate(points)
    ]
    return runs_table(readings, {"speed": "command"})


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2], pl.Int64, [1, 2]),
        ([1, 0.5], pl.Float64, [1.0, 0.5]),
        ([True, False], pl.Boolean, [True, False]),
        ([True, 1], pl.String, ["true", "1"]),
        ([1, "cpu"], pl.String, ["1", "cpu"]),
        ([2**70, 1], pl.String, [str(2**70), "1"]),
        ([[64, 64], [32]], pl.String, ["[64, 64]", "[32]"]),
        ([None, 3], pl.String, ["null", "3"]),
        ([None, None], pl.String, ["null", "null"]),
        ([None, True, [64, 64]], pl.String, ["null", "true", "[64, 64]"]),
    ],
)
def test_a_keys_values_get_one_type_that_holds_them_all(
    values: list[Any], dtype: pl.DataType, expected: list[Any]
) -> None:
    table, keys = table_of([{"key": value} for value in values])
    assert keys == ("key",)
    assert table.schema["key"] == dtype
    assert table["key"].to_list() == expected


def test_a_key_that_a_run_does_not_have_is_not_null() -> None:
    table, _ = table_of([{"key": None}, {}, {"key": 1}])
    assert table["key"].to_list() == ["null", None, "1"]
    table, _ = table_of([{"key": 2}, {}])
    assert table["key"].to_list() == [2, None]


def test_a_key_named_like_a_column_of_ours_steps_aside() -> None:
    table, keys = table_of([{"frames": 100, "grid.frames": 7, "seed": 0}])
    assert keys == ("grid.frames", "grid.grid.frames", "seed")
    assert table.select(keys).rows() == [(100, 7, 0)]
    assert table["frames"].to_list() == [None]


def test_threads_asked_for_and_threads_used_are_one_column() -> None:
    table, keys = table_of([{"threads": 2, "seed": 0}, {"seed": 0}])
    assert keys == ("seed", "threads")
    assert table["threads"].to_list() == [2, 1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=4))
def test_any_grid_becomes_a_table_that_can_be_written(points: list[dict[str, Any]]) -> None:
    table, keys = table_of(points)
    assert len(table) == len(points)
    assert len(set(table.columns)) == len(table.columns)
    assert len(keys) == len({key for point in points for key in point})
    for key in keys:
        assert len(table.get_column(key)) == len(points)
    table.write_csv()


def test_no_runs_make_empty_tables_of_the_same_columns() -> None:
    empty, keys = table_of([])
    assert keys == ()
    assert set(table_of([{}])[0].columns) == set(empty.columns)
    assert metrics_table([]).columns == [
        "sweep",
        "run_id",
        "iteration",
        "frames",
        "name",
        "value",
        "wall_time",
    ]

"""Run folders as tables: what a row holds, in which order, and what damage does."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import orchestrator.core.machine.bulk_read
from benchmarks.synthetic import (
    COLLECTION,
    HOST,
    VERSIONS,
    create_sweep,
    end_attempt,
    finish,
    finished_sweep,
    matrix_runs,
    publish,
    result_of,
    training_rows,
    write_attempt,
)
from orchestrator.analysis.collect import Collected, collect, write
from orchestrator.core.types import Run, RunState
from orchestrator.rundir import Row, RunDir, SweepDir
from tests.helpers import from_cell, surveyed

COLUMNS = (
    "run_id sweep trainer in_grid algorithm task seed state target attempts device environments "
    "frames iterations wall_time train_time training_fps end_to_end_fps steady_iterations provisional "
    "seconds_per_iteration collection_seconds learning_seconds "
    "training_episodes initial_return final_return best_return return_metric training_levels_return "
    "generalization_gap evaluation_episodes dropped_metrics caught_error exactness "
    "hostname cpu_model cpu_capability cores gpu_model gpu_capability actors processes threads run_cores "
    "peak_memory_mb flop_per_frame machine_flops_per_core "
    "versions code_id accepted_as prefix adopted_from verified commit dirty config_hash metrics_hash started "
    "ended reason"
)


@pytest.fixture
def runs() -> list[Run]:
    return matrix_runs({"task": ["vmas/navigation"], "algorithm": ["mappo", "iql"], "seed": range(2)})


@pytest.fixture
def sweep(results: Path, runs: list[Run]) -> SweepDir:
    return create_sweep(results, "speed", runs)


def row_of(collected: Collected, run: Run) -> dict[str, Any]:
    (row,) = collected.runs.filter(pl.col("run_id") == run.run_id).iter_rows(named=True)
    return row


def test_a_row_a_run_with_the_grids_keys_and_the_facts_of_its_result(results: Path) -> None:
    sweep = finished_sweep(
        results,
        "speed",
        {"task": ["vmas/navigation"], "algorithm": ["mappo", "iql"], "seed": range(2)},
        iterations=4,
    )
    collected = collect([sweep])
    assert " ".join(collected.runs.columns) == COLUMNS
    assert collected.keys == ("algorithm", "task", "seed")
    assert collected.runs["run_id"].to_list() == [row.run_id for row in sweep.read_index()]
    assert collected.missing == collected.problems == collected.warnings == ()
    first = collected.runs.row(0, named=True)
    assert (first["algorithm"], first["seed"], first["state"], first["frames"]) == (
        "mappo",
        0,
        "done",
        24_000,
    )
    assert (first["trainer"], first["cpu_model"], first["gpu_model"]) == (
        "benchmarl",
        HOST["cpu_model"],
        None,
    )
    assert json.loads(first["versions"]) == VERSIONS


def test_metrics_are_long_and_ordered_by_run_iteration_and_name(sweep: SweepDir, runs: list[Run]) -> None:
    for run in reversed(runs):
        finish(sweep.run(run.run_id), run, training_rows(run, 12))
    metrics = collect([sweep]).metrics
    assert metrics.columns == ["sweep", "run_id", "iteration", "frames", "name", "value", "wall_time"]
    expected = [
        ("speed", run.run_id, row.iteration, row.frames, name, row.wall_time)
        for run in runs
        for row in training_rows(run, 12)
        for name in sorted(row.metrics)
    ]
    assert metrics.drop("value").rows() == expected


def test_values_survive_bit_for_bit_and_nan_and_inf_stay_what_they_are(
    sweep: SweepDir, runs: list[Run]
) -> None:
    metrics = {"a": 0.1 + 0.2, "b": math.nan, "c": math.inf, "d": -math.inf, "e": 5e-324, "f": 2**53}
    finish(sweep.run(runs[0].run_id), runs[0], [Row(0, 10, 1.0, metrics), Row(1, 20, 2.0)])
    values = dict(collect([sweep]).metrics.select("name", "value").rows())
    assert math.isnan(values.pop("b"))
    assert values == {"a": 0.1 + 0.2, "c": math.inf, "d": -math.inf, "e": 5e-324, "f": 2.0**53}


def test_attempts_are_merged_at_the_point_the_next_one_resumed_from(sweep: SweepDir, runs: list[Run]) -> None:
    run, rows = runs[0], training_rows(runs[0], 6)
    folder = sweep.run(run.run_id)
    lost = [Row(row.iteration, row.frames, row.wall_time, {COLLECTION: -1.0}) for row in rows[3:5]]
    write_attempt(folder.attempt(1), rows[:3] + lost)
    end_attempt(folder.attempt(1), "interrupted", "preempted")
    write_attempt(folder.attempt(2), rows[3:], {"attempt": 1, "frames": rows[2].frames})
    publish(folder, result_of(run, rows, attempts=2), [folder.attempt(n).metrics for n in (1, 2)])
    collected = collect([sweep])
    assert row_of(collected, run)["attempts"] == 2
    assert -1.0 not in collected.metrics["value"].to_list()
    assert collected.metrics["iteration"].unique().sort().to_list() == list(range(6))


def test_runs_that_are_not_done_are_rows_with_state_reason_and_progress(
    sweep: SweepDir, runs: list[Run]
) -> None:
    failed, interrupted, pending, finished = runs
    write_attempt(sweep.run(failed.run_id).attempt(1), training_rows(failed, 3))
    end_attempt(sweep.run(failed.run_id).attempt(1), "failed", "out of memory", "needed 2 GiB more")
    write_attempt(sweep.run(interrupted.run_id).attempt(1), [])
    end_attempt(sweep.run(interrupted.run_id).attempt(1), "interrupted", "preempted")
    finish(sweep.run(finished.run_id), finished, training_rows(finished, 3))
    collected = collect([sweep])
    assert [row_of(collected, run)["state"] for run in runs] == ["failed", "interrupted", "pending", "done"]
    row = row_of(collected, failed)
    assert (row["reason"], row["frames"], row["attempts"]) == ("out of memory: needed 2 GiB more", 18_000, 1)
    assert row["final_return"] is None
    assert failed.run_id in collected.metrics["run_id"].to_list()
    assert [(item.run_id, item.why) for item in collected.missing] == [
        (failed.run_id, "failed: out of memory: needed 2 GiB more"),
        (interrupted.run_id, "interrupted: preempted"),
        (pending.run_id, "pending"),
    ]
    assert collected.missing[0].point == failed.point


def test_what_is_told_of_runs_counts_where_their_folders_say_less(sweep: SweepDir, runs: list[Run]) -> None:
    stale, skipped, gone, newer = runs
    finish(sweep.run(stale.run_id), stale, training_rows(stale, 2))
    finish(sweep.run(newer.run_id), newer, training_rows(newer, 2))
    told = {
        stale.run_id: RunState.STALE,
        skipped.run_id: RunState.SKIPPED,
        gone.run_id: RunState.DONE,
        newer.run_id: RunState.RUNNING,
    }
    reasons = {skipped.run_id: "needs a GPU", stale.run_id: "other code"}
    collected = collect([sweep], surveyed(told, reasons))
    assert [row_of(collected, run)["state"] for run in runs] == ["stale", "skipped", "unknown", "done"]
    assert [row_of(collected, run)["reason"] for run in runs[:2]] == ["other code", "needs a GPU"]
    assert "no result in its folder" in collected.problems[0]
    assert collected.warnings == ("1 stale: made by other code or configuration than today's",)


def _truncate_result(folder: RunDir) -> None:
    folder.result_path.write_bytes(folder.result_path.read_bytes()[:100])


def _change_result(**changes: Any) -> Callable[[RunDir], None]:
    def change(folder: RunDir) -> None:
        result = json.loads(folder.result_path.read_text())
        folder.result_path.write_text(json.dumps({**result, **changes}))

    return change


DAMAGES = {
    "result cut": (_truncate_result, "is not valid JSON"),
    "result of another run": (_change_result(run_id="0" * 16), "is not the result of run"),
    "text for a number": (_change_result(frames="many"), "$.frames"),
    "a number for no table": (_change_result(frames=10**30), "$.frames"),
    "no host": (_change_result(host=7), "$.host"),
    "no manifest": (_change_result(manifest=None), "$.manifest"),
    "metrics gone": (lambda folder: folder.attempt(1).metrics.unlink(), "is missing"),
    "metrics shorter": (lambda folder: folder.attempt(1).metrics.write_bytes(b"{}\n"), "holds 3 bytes"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_run_is_named_and_the_rest_goes_on(sweep: SweepDir, runs: list[Run], kind: str) -> None:
    damage, expected = DAMAGES[kind]
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 2))
    damage(sweep.run(runs[1].run_id))
    collected = collect([sweep])
    assert [row_of(collected, run)["state"] for run in runs] == ["done", "unknown", "done", "done"]
    assert all(text.startswith(f"speed/{runs[1].run_id}: ") for text in collected.problems)
    assert expected in collected.problems[0]
    assert [item.run_id for item in collected.missing] == [runs[1].run_id]
    assert expected in collected.missing[0].why


def test_checksums_find_what_sizes_do_not(sweep: SweepDir, runs: list[Run]) -> None:
    finish(sweep.run(runs[0].run_id), runs[0], training_rows(runs[0], 2))
    path = sweep.run(runs[0].run_id).attempt(1).metrics
    path.write_bytes(path.read_bytes().replace(b'"iteration": 1', b'"iteration": 7'))
    assert row_of(collect([sweep]), runs[0])["state"] == "done"
    collected = collect([sweep], checksums=True)
    assert row_of(collected, runs[0])["state"] == "unknown"
    assert "other content" in collected.problems[0]


@pytest.mark.parametrize(
    "damage", [b"\xff\n", b'{"iteration": 0, "frames": 1e30}\n', b'{"iteration": 1e30, "frames": 0}\n']
)
def test_damaged_metrics_of_an_unfinished_run_are_named(
    sweep: SweepDir, runs: list[Run], damage: bytes
) -> None:
    write_attempt(sweep.run(runs[0].run_id).attempt(1), training_rows(runs[0], 2))
    sweep.run(runs[0].run_id).attempt(1).metrics.write_bytes(damage)
    finish(sweep.run(runs[1].run_id), runs[1], training_rows(runs[1], 2))
    collected = collect([sweep])
    assert len(collected.problems) == 1
    assert collected.metrics["run_id"].unique().to_list() == [runs[1].run_id]


@pytest.mark.parametrize("index", [b"", b"run_id\tin_grid\tpoint\nnonsense\n", b"\xff\xfe\n"])
def test_without_a_usable_index_the_folders_still_count(
    sweep: SweepDir, runs: list[Run], index: bytes
) -> None:
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 2))
    sweep.index_path.write_bytes(index)
    collected = collect([sweep])
    assert sorted(collected.runs["run_id"]) == sorted(run.run_id for run in runs)
    assert not collected.runs["in_grid"].any()
    assert row_of(collected, runs[0])["algorithm"] == "mappo"


def test_an_index_cannot_lead_out_of_the_sweep(sweep: SweepDir) -> None:
    with sweep.index_path.open("a") as file:
        file.write("../../etc\t1\t{}\n")
    collected = collect([sweep])
    assert len(collected.runs) == 4
    (problem,) = collected.problems
    assert "line 6 is not a run" in problem


def test_reading_by_threads_gives_the_same_tables(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = finished_sweep(results, "speed", {"algorithm": ["mappo"], "seed": range(30)}, iterations=2)
    plain = collect([sweep])
    monkeypatch.setattr(orchestrator.core.machine.bulk_read, "_FIRST", 4)
    monkeypatch.setattr(orchestrator.core.machine.bulk_read, "_SLOW", 0)
    threaded = collect([sweep])
    assert threaded.runs.equals(plain.runs)
    assert threaded.metrics.equals(plain.metrics)


def test_written_tables_read_back_and_the_same_tree_gives_the_same_bytes(
    sweep: SweepDir, runs: list[Run]
) -> None:
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 2))
    collected = collect([sweep])
    write(collected, sweep)
    paths = (sweep.table_parquet, sweep.table_csv, sweep.metrics_parquet)
    before = [path.read_bytes() for path in paths]
    assert pl.read_parquet(sweep.table_parquet).equals(collected.runs)
    assert pl.read_parquet(sweep.metrics_parquet).equals(collected.metrics)
    assert pl.read_csv(sweep.table_csv)["run_id"].to_list() == collected.runs["run_id"].to_list()
    write(collect([sweep]), sweep)
    assert [path.read_bytes() for path in paths] == before
    assert [path.name for path in sweep.path.iterdir() if path.name.endswith(".tmp")] == []


def test_csv_holds_no_formula_and_reads_back(results: Path) -> None:
    hostile = ["=HYPERLINK(1)", "@SUM(1)", "+1+1", "-2+3", "'=1", "plain", "-0.5"]
    runs = matrix_runs({"algorithm": ["mappo"], "+note": hostile, "seed": [0]})
    sweep = create_sweep(results, "sheet", runs)
    collected = collect([sweep])
    write(collected, sweep)
    with open(sweep.table_csv, newline="") as file:
        rows = list(csv.reader(file))
    assert [cell for row in rows for cell in row if re.match(r"[=+@\t\r]|-(?![\d.]+$)", cell)] == []
    column = list(map(from_cell, rows[0])).index("+note")
    assert [from_cell(row[column]) for row in rows[1:]] == collected.runs["+note"].to_list() == hostile
    assert pl.read_parquet(sweep.table_parquet)["+note"].to_list() == hostile


def test_each_of_several_sweeps_gets_its_own_part(results: Path) -> None:
    one = finished_sweep(results, "one", {"algorithm": ["mappo"], "seed": range(2)}, iterations=2)
    two = finished_sweep(
        results, "two", {"algorithm": ["iql"], "experiment.lr": [1e-4], "*": [1], "seed": [0]}, iterations=2
    )
    both = collect([one, two])
    assert both.runs["sweep"].to_list() == ["one", "one", "two"]
    assert both.runs["experiment.lr"].to_list() == [None, None, 1e-4]
    write(both, one)
    table = pl.read_parquet(one.table_parquet)
    assert len(table) == 2
    assert {"run_id", "algorithm", "seed"} < set(table.columns)
    assert {"experiment.lr", "*"}.isdisjoint(table.columns)
    assert pl.read_parquet(one.metrics_parquet)["sweep"].unique().to_list() == ["one"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"host": {**HOST, "cpu_capability": "AVX512"}},
            "CPU capability differs (AVX2: 3 runs; AVX512: 1 run)",
        ),
        ({"threads": 2}, "threads differs (1: 3 runs; 2: 1 run)"),
        ({"code_id": "other"}, "code differs"),
        ({"code_ids": ["old", "new"]}, "the code changed within 1 run ("),
        (
            {"versions": {**VERSIONS, "torch": "2.14.0"}},
            "version of torch differs (2.13.0: 3 runs; 2.14.0: 1 run)",
        ),
    ],
)
def test_what_keeps_rows_from_being_compared_bitwise_is_said(
    sweep: SweepDir, runs: list[Run], change: dict[str, Any], expected: str
) -> None:
    for run in runs[1:]:
        finish(sweep.run(run.run_id), run, training_rows(run, 2))
    finish(sweep.run(runs[0].run_id), runs[0], training_rows(runs[0], 2), **change)
    (warning,) = collect([sweep]).warnings
    assert warning.startswith("not comparable bitwise: ")
    assert expected in warning

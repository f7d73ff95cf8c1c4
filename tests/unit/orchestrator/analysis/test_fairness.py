"""Each red flag where runs differ in just that, and none where they are equal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import COLLECTION, EPOCH, EVAL, create_sweep, finish, matrix_runs, training_rows
from orchestrator.analysis.collect import Collected, collect
from orchestrator.analysis.groups.grouping import final_returns, groups
from orchestrator.analysis.report.blocks import Text
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.sections.runs.audit import section
from orchestrator.analysis.verdict.fairness import audit, red_flags
from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
from orchestrator.analysis.verdict.leaders import answers
from orchestrator.core.types import Run
from orchestrator.rundir import Row, SweepDir
from orchestrator.ui.cli import app

HOST = {"hostname": "node2", "cpu_model": "Another CPU"}
DIFFERENT: dict[str, Mapping[str, Any]] = {
    "frames": {"frames": 90_000},
    "evaluation episodes": {"evaluation": {"episodes": 2}},
    "code": {"code_id": "feed" * 4},
    "hardware": {"host": HOST},
    "threads": {"threads": 4},
}


def sweep_of(results: Path, changes: Mapping[str, Any], seeds: int = 3) -> SweepDir:
    """Two algorithms with equal conditions, except for these of ``iql``."""
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(seeds)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        own = changes if run.overrides["algorithm"] == "iql" else {}
        finish(sweep.run(run.run_id), run, training_rows(run, 4), **{"evaluation": {"episodes": 10}, **own})
    return sweep


def flags(collected: Collected) -> list[str]:
    found = groups(collected)
    return red_flags(audit(found, final_returns(found, intervals=False)))


def test_equal_runs_have_no_red_flag(results: Path) -> None:
    assert flags(collect([sweep_of(results, {})])) == []


def test_what_is_known_of_one_variant_alone_is_not_compared(results: Path) -> None:
    """Of a sweep without finished runs nothing is."""
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(2)})
    sweep = create_sweep(results, "speed", runs)

    def compared() -> list[str]:
        collected = measured_by(collect([sweep]), FinalMeasure.parse("last"))
        found = groups(collected)
        return sorted(one.name for one in audit(found, final_returns(found, intervals=False)) if one.compared)

    assert compared() == []
    page = section(report_data([sweep], collect([sweep])))
    assert page is not None
    assert page.blocks == (
        Text("There is nothing to compare yet: no task has two variants with finished runs."),
    )
    for run in runs[:2]:
        finish(sweep.run(run.run_id), run, training_rows(run, 20))
    assert compared() == []
    finish(sweep.run(runs[2].run_id), runs[2], [Row(0, 6000, 1.0, {"loss": 1.0})], final_return=None)
    assert compared() == ["hardware", "threads"]
    finish(sweep.run(runs[3].run_id), runs[3], training_rows(runs[3], 20))
    every = ["code", "evaluation episodes", "evaluation interval", "frames", "hardware", "identical metrics"]
    assert compared() == [*every, "return metric", "threads"]


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_condition_that_differs_has_the_only_red_flag(results: Path, name: str) -> None:
    assert flags(collect([sweep_of(results, DIFFERENT[name])])) == [name]


def test_returns_of_collection_beside_evaluations_have_a_red_flag(results: Path) -> None:
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(3)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        name = EVAL if run.overrides["algorithm"] == "mappo" else COLLECTION
        rows = [Row(at, 6000 * (at + 1), float(at), {name: float(at), "loss": run.seed}) for at in range(4)]
        finish(sweep.run(run.run_id), run, rows, final_return=3.0)
    assert flags(collect([sweep])) == ["return metric"]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("return metric", {}),
        ("frames", {"frames": 90_000}),
        ("evaluation episodes", {"evaluation": {"episodes": 2}}),
        ("code", {"code_id": "feed" * 4}),
    ],
)
def test_groups_that_are_mixtures_have_a_red_flag_and_no_verdict(
    results: Path, name: str, changes: Mapping[str, Any]
) -> None:
    """All but one run of the one are as one run of the other; the two kinds of runs differ in return."""
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(10)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        odd = (run.seed == 0) == (run.overrides["algorithm"] == "mappo")
        metric = COLLECTION if odd and not changes else EVAL
        value = 100.0 + run.seed - 50.0 * odd
        rows = [Row(at, 6000 * (at + 1), float(at), {metric: value}) for at in range(4)]
        own = {"evaluation": {"episodes": 10}, **(changes if odd else {})}
        finish(sweep.run(run.run_id), run, rows, **own)
    collected = collect([sweep])
    assert name in flags(collected)
    (told,) = map(str, answers(final_returns(groups(collected), intervals=False)))
    assert told == "t: not ranked against each other: mappo, iql (10 seeds)"


def test_equal_mixtures_of_code_are_ranked_below_a_red_flag(results: Path) -> None:
    """The code was changed after every other seed of both."""
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(6)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        own = DIFFERENT["code"] if run.seed % 2 else {}
        value = run.seed + 50.0 * (run.overrides["algorithm"] == "iql")
        finish(sweep.run(run.run_id), run, [Row(0, 6000, 1.0, {EVAL: value})], **own)
    collected = collect([sweep])
    (answer,) = answers(final_returns(groups(collected), intervals=False))
    assert answer.verdict == "iql leads significantly (6 seeds)"
    assert flags(collected) == ["code"]
    assert CliRunner().invoke(app, ["report", "speed", "--results", str(results)]).exit_code == 0
    page = (sweep.report / "index.html").read_text()
    assert page.index("<b>red flags:</b> code") < page.index('<article class="card">')
    assert "results of different code are averaged together: 3 × " in page


@pytest.mark.parametrize(("every", "flagged"), [(2, ["evaluation interval"]), (1, [])])
def test_evaluations_at_other_intervals_have_a_red_flag(
    results: Path, every: int, flagged: list[str]
) -> None:
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(3)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        step = every if run.overrides["algorithm"] == "iql" else 1
        rows = [
            Row(
                at,
                6000 * (at + 1),
                float(at),
                {"loss": int(run.run_id, 16), **({EVAL: float(at)} if at % step == 0 else {})},
            )
            for at in range(9)
        ]
        finish(sweep.run(run.run_id), run, rows)
    collected = measured_by(collect([sweep]), FinalMeasure())
    assert flags(collected) == flagged


def test_machines_that_all_variants_share_have_none(results: Path) -> None:
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(4)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        host = {"host": HOST} if run.seed % 2 else {}
        finish(sweep.run(run.run_id), run, training_rows(run, 4), **host)
    assert flags(collect([sweep])) == []


@pytest.mark.parametrize(("name", "changes"), [("hardware", {"host": HOST}), ("threads", {"threads": 4})])
@pytest.mark.parametrize(("theirs", "flagged"), [(9, True), (4, False)])
def test_machines_that_each_variant_used_for_another_share_have_one(
    results: Path, name: str, changes: Mapping[str, Any], theirs: int, flagged: bool
) -> None:
    """One of ten runs of the one was elsewhere, and nine or four of the other."""
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(10)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        elsewhere = run.seed < (1 if run.overrides["algorithm"] == "mappo" else theirs)
        finish(sweep.run(run.run_id), run, training_rows(run, 3), **(changes if elsewhere else {}))
    found = groups(collect([sweep]))
    checks = audit(found, final_returns(found, intervals=False))
    assert red_flags(checks) == [name] * flagged
    if flagged and name == "threads":
        assert checks[0].flags == ("t: 9 × 1, 1 × 4 (mappo); 1 × 1, 9 × 4 (iql)",)


@pytest.mark.parametrize(
    ("key", "values", "changes"),
    [
        ("threads", [1, 2], {}),
        ("experiment.train_device", ["cpu", "cuda"], {"host": HOST}),
        ("target", ["here", "there"], {"host": HOST}),
    ],
)
def test_what_the_grid_compares_has_none(
    results: Path, key: str, values: list[Any], changes: Mapping[str, Any]
) -> None:
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], key: values, "seed": range(2)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        second = run.point.get(key) == values[1]
        finish(sweep.run(run.run_id), run, training_rows(run, 4), **(changes if second else {}))
    assert flags(collect([sweep])) == []


def test_of_one_target_the_machines_are_still_compared(results: Path) -> None:
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "target": ["a", "b"], "seed": [0]})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        odd = (run.point["target"], run.overrides["algorithm"]) == ("b", "iql")
        finish(sweep.run(run.run_id), run, training_rows(run, 4), **({"host": HOST} if odd else {}))
    assert flags(collect([sweep])) == ["hardware"]


def test_a_slow_hour_has_a_red_flag_in_collect_and_before_the_ranking(results: Path) -> None:
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(15)})
    sweep = create_sweep(results, "speed", runs)

    def speed(run: Run) -> dict[str, float]:
        fps = (600.0 if run.seed >= 10 else 1000.0) + 7 * (run.seed * 5 % 11)
        return {"training_fps": fps, "end_to_end_fps": fps, "seconds_per_iteration": 1.0}

    for run in runs:
        started = EPOCH + 60 * run.seed
        finish(sweep.run(run.run_id), run, training_rows(run, 3), speed=speed(run), started=started)
    said = CliRunner().invoke(app, ["collect", "speed", "--json", "--results", str(results)])
    notes = json.loads(said.output)["notes"]
    assert any(note.startswith("red flag, speed over time: speed depends on when") for note in notes)
    assert CliRunner().invoke(app, ["report", "speed", "--results", str(results)]).exit_code == 0
    page = (sweep.report / "index.html").read_text()
    assert page.index("<b>red flags:</b> speed over time") < page.index('<article class="card">')
    assert "speed depends on when runs were started" in page

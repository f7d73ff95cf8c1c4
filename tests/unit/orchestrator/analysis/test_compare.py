"""Values of one key against each other: who is paired with whom, and what is made of their figures."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import (
    COLLECTION,
    EVAL,
    create_sweep,
    end_attempt,
    finish,
    matrix_runs,
    result_of,
    write_attempt,
)
from orchestrator.analysis.collect import Collected, collect
from orchestrator.analysis.compare import ComparedValue, KeyComparison, compare_by
from orchestrator.analysis.compare.table import as_csv, as_json, columns, sections
from orchestrator.analysis.compare.wording import notes, verdict
from orchestrator.analysis.statistics import bootstrap
from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run
from orchestrator.rundir import Row, SweepDir

LR, DEVICE, SAMPLING = "experiment.lr", "experiment.train_device", "experiment.sampling_device"
Speed = Callable[[Run], float]


def train(
    sweep: SweepDir, run: Run, fps: float, returns: Sequence[float] | None = None, **changes: Any
) -> None:
    """A finished run of 6,000 frames an iteration that returned this, one value after each."""
    values = returns if returns is not None else [1.0, 2.0]
    seconds = 6000 / fps
    rows = [
        Row(number, 6000 * (number + 1), seconds * (number + 1), {EVAL: value, "loss": run.seed})
        for number, value in enumerate(values)
    ]
    speed = {**result_of(run, rows)["speed"], "training_fps": fps, "end_to_end_fps": fps}
    finish(sweep.run(run.run_id), run, rows, **{"speed": speed, "wall_time": rows[-1].wall_time, **changes})


def trained(results: Path, matrix: Mapping[str, Sequence[Any]], speed: Speed, name: str = "lab") -> Collected:
    runs = matrix_runs({"task": ["vmas/navigation"], **matrix})
    sweep = create_sweep(results, name, runs)
    for run in runs:
        train(sweep, run, speed(run))
    return collect([sweep])


def cell(found: KeyComparison, label: str, value: str) -> ComparedValue:
    [one] = [one for one in found.combinations if one.label == label]
    own = one.cell(value)
    assert own is not None
    return own


def test_threads_are_compared_within_each_combination_of_the_other_keys(results: Path) -> None:
    def speed(run: Run) -> float:
        usual = 1000 if run.overrides["algorithm"] == "mappo" else 4000
        return usual * (1 + run.seed / 10) * (1.5 if run.threads == 2 else 1)

    matrix = {"algorithm": ["mappo", "iql"], "threads": [1, 2], "seed": range(5)}
    found = compare_by(trained(results, matrix, speed), "threads")
    assert [one.label for one in found.combinations] == ["mappo", "iql"]
    assert (found.values, found.baseline, found.per) == (("1", "2"), "1", "thread")
    two = cell(found, "iql", "2")
    assert two.speed is not None
    assert (two.speed.value, two.speed.n, two.speed.paired) == (pytest.approx(1.5), 5, True)
    assert two.efficiency.value == pytest.approx(0.75)  # type: ignore[union-attr]
    assert cell(found, "iql", "1").efficiency.value == pytest.approx(1)  # type: ignore[union-attr]
    whole = found.overall[1]
    assert whole.speed is not None
    assert (whole.speed.value, whole.speed.n) == (pytest.approx(1.5), 10)
    assert whole.efficiency is not None
    assert whole.efficiency.value == pytest.approx(0.75)
    assert verdict(found).startswith(
        "threads=2 trains 1.50 times as fast as threads=1 (95 % interval 1.50 to 1.50"
    )
    assert "75% efficiency per thread" in verdict(found)


@pytest.mark.parametrize(("cores", "per"), [((2, 4), "core"), ((4, 4), ""), ((2, None), "")])
def test_any_key_that_changes_the_cores_of_runs_is_compared_per_core(
    results: Path, cores: tuple[int | None, int | None], per: str
) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], LR: [0.1, 0.2], "actors": [1, 2], "seed": range(2)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        actors = run.overrides["actors"]
        train(sweep, run, 1000.0 * actors**0.5, cores=cores[actors - 1])
    found = compare_by(collect([sweep]), "actors")
    assert found.per == per
    two = cell(found, "lr=0.2", "2").efficiency
    assert (two and two.value) == (pytest.approx(2**0.5 / 2) if per else None)
    assert ("71% efficiency per core" in verdict(found)) is bool(per)
    assert compare_by(collect([sweep]), LR).per == "", "within each number of actors the cores are the same"


def test_a_key_may_be_named_by_its_end_and_another_value_be_the_baseline(results: Path) -> None:
    collected = trained(results, {LR: [0.1, 0.01], "algorithm": ["mappo"], "seed": [0]}, lambda run: 1000.0)
    for name in ("lr", LR, "++experiment.lr"):
        found = compare_by(collected, name, baseline="1e-2")
        assert (found.key, found.short, found.baseline) == (LR, "lr", "0.01")
        assert found.per == ""
        assert cell(found, "mappo", "0.1").efficiency is None


def test_the_key_for_both_kinds_of_algorithm_is_written_short(results: Path) -> None:
    on, off = ("experiment.on_policy_n_envs_per_worker", "experiment.off_policy_n_envs_per_worker")
    collected = trained(results, {on: [60, 600], off: [f"${{{on}}}"]}, lambda run: 1000.0)
    found = compare_by(collected, "n_envs")
    assert (found.key, found.short) == (on, "n_envs")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("seed", "seeds are not compared"),
        ("task", "task is vmas/navigation in all runs"),
        ("gamma", "no run has that key; keys with several values: algorithm, lr"),
        ("fps", "no run has that key"),
        ("sweep", "sweep is lab in all runs"),
        ("", "no run has that key"),
    ],
)
def test_a_key_that_is_no_use_is_refused_with_those_that_are(results: Path, key: str, words: str) -> None:
    collected = trained(results, {"algorithm": ["mappo", "iql"], LR: [0.1, 0.2]}, lambda run: 1000.0)
    with pytest.raises(OrchestrateError) as error:
        compare_by(collected, key)
    assert words in str(error.value)
    assert "algorithm, lr" in f"{error.value} {error.value.hint}"


def test_a_misspelt_baseline_says_what_there_is(results: Path) -> None:
    collected = trained(results, {"algorithm": ["mappo", "iql"]}, lambda run: 1000.0)
    with pytest.raises(OrchestrateError) as error:
        compare_by(collected, "algorithm", baseline="mapo")
    assert "expected one of: mappo, iql" in str(error.value)
    assert error.value.hint == "did you mean mappo?"


def test_keys_that_change_with_the_key_do_not_part_the_runs_and_are_named(results: Path) -> None:
    runs = [
        run
        for run in matrix_runs({"algorithm": ["mappo"], DEVICE: ["cpu", "cuda"], SAMPLING: ["cpu", "cuda"]})
        if run.overrides[DEVICE] == run.overrides[SAMPLING]
    ]
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        train(sweep, run, 1000.0 if run.overrides[DEVICE] == "cpu" else 3000.0)
    found = compare_by(collect([sweep]), "train_device")
    assert found.together == (SAMPLING,)
    assert cell(found, "mappo", "cuda").speed.value == pytest.approx(3)  # type: ignore[union-attr]
    assert "(sampling_device changes with train_device)" in verdict(found)


def test_returns_at_equal_frames_and_at_equal_time(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], "threads": [1, 2], "seed": range(2)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        if run.threads == 1:  # 6 s an iteration, four of them
            train(sweep, run, 1000.0, [1.0, 2.0, 3.0, 4.0])
        else:  # 2 s an iteration, three of them
            train(sweep, run, 3000.0, [10.0, 20.0, 30.0 + run.seed])
    found = compare_by(collect([sweep]), "threads")
    [one] = found.combinations
    assert (one.frames, one.seconds) == (18_000, 6.0)
    slow, fast = one.cells
    assert (slow.final.value, fast.final.value) == (4.0, 30.5)  # type: ignore[union-attr]
    assert (slow.at_frames.value, fast.at_frames.value) == (3.0, 30.5)  # type: ignore[union-attr]
    assert (slow.at_time.value, fast.at_time.value) == (1.0, 30.5)  # type: ignore[union-attr]
    assert fast.over_time is not None
    assert fast.over_time.x.tolist() == [2.0, 4.0, 6.0]
    assert fast.over_time.band[0].tolist() == [10.0, 20.0, 30.5]
    flag, told, *_ = notes(found)
    assert flag == (
        "not ranked against each other, mappo: trained for different lengths: "
        "24,000 frames (threads=1); 18,000 frames (threads=2)"
    )
    assert "at equal wall time (0:06, evaluations and checkpoints included)" in told
    assert "final returns are not comparable, so they are not ranked" in verdict(found)


def test_curves_are_left_to_whoever_draws_them(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resampled: list[int] = []
    usual = bootstrap.bootstrap_interval

    def counted(scores: Any) -> Any:
        resampled.append(scores.shape[1])
        return usual(scores)

    monkeypatch.setattr(bootstrap, "bootstrap_interval", counted)
    runs = matrix_runs({"algorithm": ["mappo", "iql"], "threads": [1, 2], "seed": range(4)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        train(sweep, run, 1000.0, list(map(float, range(30))))
    found = compare_by(collect([sweep]), "threads")
    cells = [cell for one in found.combinations for cell in one.cells]
    assert all(cell.over_frames is not None and len(cell.over_frames.x) == 30 for cell in cells)
    assert sum(resampled) == 3 * len(cells)  # at the end, at equal frames and at equal time


def test_the_same_value_of_two_keys_is_two_combinations(results: Path) -> None:
    """Also over all of them, where one must not stand for the other."""
    runs = [
        run
        for key in ("experiment.first", "experiment.second")
        for run in matrix_runs({"algorithm": ["mappo"], key: [5], "threads": [1, 2]})
    ]
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        times = 2.0 if "experiment.first" in run.overrides else 8.0
        train(sweep, run, 1000.0 * (times if run.threads == 2 else 1))
    whole = compare_by(collect([sweep]), "threads").overall[1].speed
    assert whole is not None
    assert (whole.n, whole.value) == (2, pytest.approx(4.0))


def test_a_run_that_has_no_return_yet_at_equal_time_is_left_out_and_told(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], "threads": [1, 2]})
    sweep = create_sweep(results, "lab", runs)
    train(sweep, runs[0], 1000.0, [math.nan, math.nan, 3.0])  # its first return comes after 18 s
    train(sweep, runs[1], 6000.0, [1.0, 2.0, 3.0])  # all of it is over after 3 s
    found = compare_by(collect([sweep]), "threads")
    assert cell(found, "mappo", "1").at_time is None
    assert cell(found, "mappo", "2").at_time.value == 3.0  # type: ignore[union-attr]
    assert "1 of 1 without a return yet at equal time: mappo threads=1" in notes(found)


def test_a_run_that_diverged_has_no_return_at_equal_frames_or_time(results: Path) -> None:
    """Its last finite value would stand for it there otherwise."""
    runs = matrix_runs({"algorithm": ["mappo"], "threads": [1, 2], "seed": range(2)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        last = math.nan if run.threads == 2 and run.seed == 0 else 3.0
        train(sweep, run, 1000.0, [1.0, 9.0 if math.isnan(last) else 2.0, last])
    found = compare_by(measured_by(collect([sweep]), FinalMeasure.parse("last")), "threads")
    second = cell(found, "mappo", "2")
    assert (second.at_frames.value, second.at_time.value) == (3.0, 3.0)  # type: ignore[union-attr]
    assert "1 of 2 without a finite return: mappo threads=2" in notes(found)
    assert not any("at equal time:" in note for note in notes(found))


def test_one_seed_gives_figures_without_intervals(results: Path) -> None:
    speed = {1: 1000.0, 2: 1800.0}
    found = compare_by(trained(results, {"threads": [1, 2]}, lambda run: speed[run.threads]), "threads")
    [one] = found.combinations
    assert one.cells[1].speed is not None
    assert (one.cells[1].speed.value, one.cells[1].speed.low) == (pytest.approx(1.8), None)
    assert one.cells[1].final is not None
    assert one.cells[1].final.low is None
    assert "threads=2 trained 1.80 times as fast as threads=1 (1 pair: too few to tell" in verdict(found)
    assert "too few seeds to tell final returns apart (1 per side, 5 needed)" in verdict(found)


@pytest.mark.parametrize(
    ("alone", "words", "rest"),
    [
        (4, "threads=2 trains 2.00 times as fast as threads=1 (", "left out for too few seeds: threads=4"),
        (1, "threads=4 trains 2.00 times as fast as threads=2 (", "left out for too few seeds: threads=1"),
    ],
)
def test_a_value_of_one_seed_hides_no_pair_that_can_be_told_apart(
    results: Path, alone: int, words: str, rest: str
) -> None:
    every = matrix_runs({"algorithm": ["mappo"], "threads": [1, 2, 4], "seed": range(6)})
    runs = [run for run in every if run.threads != alone or run.seed == 0]
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        train(sweep, run, 1000.0 * run.threads * (1 + run.seed / 10))
    found = compare_by(collect([sweep]), "threads")
    assert verdict(found).startswith(words)
    assert rest in verdict(found)
    asked = compare_by(collect([sweep]), "threads", baseline="1")
    assert asked.baseline == "1"


def test_a_tie_is_not_called_the_fastest(results: Path) -> None:
    for seeds in (1, 5):
        matrix = {"algorithm": ["mappo", "iql"], "seed": range(seeds)}
        told = verdict(compare_by(trained(results / str(seeds), matrix, lambda run: 1000.0), "algorithm"))
        returns, speed = told.split(". ", 1)
        assert returns.lower().endswith(
            ("too few seeds to tell final returns apart (1 per side, 5 needed)", "told apart")
        )
        assert speed.startswith("No clear difference in speed between iql and mappo: 1.00 times as fast")
        assert "fastest" not in told


@pytest.mark.parametrize(("key", "first"), [("algorithm", "return"), ("threads", "training\nframes/s")])
def test_the_table_begins_with_what_a_key_asks_for(results: Path, key: str, first: str) -> None:
    matrix = {"algorithm": ["mappo", "iql"], "threads": [1, 2]}
    found = compare_by(trained(results, matrix, lambda run: 1000.0 * run.threads), key)
    assert columns(found)[2] == first


def test_three_seeds_of_many_combinations_are_three_seeds(results: Path) -> None:
    matrix = {"algorithm": ["mappo", "iql"], "threads": [1, 2], "seed": range(3)}
    found = compare_by(trained(results, matrix, lambda run: 1000.0 * run.threads), "threads")
    assert "(95 % interval 2.00 to 2.00, 6 pairs of 3 seeds: too few to tell from noise" in verdict(found)


def test_returns_are_told_apart_from_five_seeds_on(results: Path) -> None:
    def told(seeds: int, **matrix: Any) -> str:
        runs = matrix_runs({"algorithm": ["mappo"], "threads": [1, 2], "seed": range(seeds), **matrix})
        sweep = create_sweep(results / f"{seeds}-{len(runs)}", "lab", runs)
        for run in runs:
            train(sweep, run, 1000.0, [run.seed + 10.0 * run.threads])
        return verdict(compare_by(collect([sweep]), "threads"))

    assert "too few seeds to tell final returns apart (4 per side, 5 needed)" in told(4)
    assert "final returns with threads=2 are higher in 1 of 1 combinations" in told(5)
    assert "too few seeds to tell final returns apart in each of 7 combinations" in told(5, **{LR: range(7)})


def test_a_collection_return_is_not_ranked_beside_an_evaluation(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo", "iql"], "seed": range(5)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        name = EVAL if run.overrides["algorithm"] == "mappo" else COLLECTION
        rows = [Row(0, 6000, 6.0, {name: float(run.seed)})]
        finish(sweep.run(run.run_id), run, rows)
    found = compare_by(collect([sweep]), "algorithm")
    assert "final returns are of different metrics: evaluation (mappo); collection (iql)" in notes(found)[0]
    assert verdict(found).startswith("Final returns are not comparable, so they are not ranked. No clear")


def test_noise_is_not_taken_for_a_difference(results: Path) -> None:
    def speed(run: Run) -> float:
        return 1000.0 * (1.05 if (run.seed + run.threads) % 2 else 0.95)

    found = compare_by(trained(results, {"threads": [1, 2], "seed": range(8)}, speed), "threads")
    assert verdict(found).startswith("No clear difference in speed between threads=2 and threads=1")


def test_combinations_that_disagree_are_told(results: Path) -> None:
    times = {"mappo": 0.5, "iql": 3.0}

    def speed(run: Run) -> float:
        return 1000.0 * (times[str(run.overrides["algorithm"])] if run.threads == 2 else 1)

    found = compare_by(trained(results, {"algorithm": ["mappo", "iql"], "threads": [1, 2]}, speed), "threads")
    assert "from 0.50 to 3.00 times in single combinations" in verdict(found)


def test_the_baseline_may_win(results: Path) -> None:
    speed = {"cpu": 1000.0, "cuda": 670.0}
    matrix = {"algorithm": ["mappo"], DEVICE: ["cpu", "cuda"], "seed": range(5)}
    found = compare_by(
        trained(results, matrix, lambda run: speed[str(run.overrides[DEVICE])]), "train_device"
    )
    assert verdict(found).startswith("cpu trains fastest: cuda trains 0.67 times as fast")


def test_runs_that_are_missing_or_failed_stand_in_the_table_and_spoil_nothing(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo", "iql"], "threads": [1, 2, 4], "seed": range(2)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        if run.threads == 1 or (run.threads == 2 and run.overrides["algorithm"] == "mappo" and run.seed == 0):
            train(sweep, run, 1000.0 * run.threads)
        elif run.threads == 2:
            attempt = sweep.run(run.run_id).attempt(1)
            write_attempt(attempt, [Row(0, 6000, 6.0, {EVAL: 1.0})])
            end_attempt(attempt, "failed", "out of memory")
    found = compare_by(collect([sweep]), "threads")
    table = dict(sections(found))
    assert [[cell.text for cell in row[:4]] for row in table["mappo"]] == [
        ["1", "2", "1,000", "1"],
        ["2", "1 of 2", "2,000", "2.00"],
        ["4", "0 of 2", "–", "–"],
    ]
    assert [cell.text for cell in table["iql"][1][1:4]] == ["0 of 2", "–", "–"]
    told = [note for note in notes(found) if note.startswith("runs are ")]
    assert told == [
        "runs are 1 done, 1 failed: mappo threads=2",
        "runs are 2 pending: mappo threads=4, iql threads=4",
        "runs are 2 failed: iql threads=2",
    ]
    assert "threads=2 trained 2.00 times as fast as threads=1 (1 pair" in verdict(found)


def test_combinations_that_nothing_has_finished_of_are_a_note_and_no_rows(results: Path) -> None:
    runs = matrix_runs({DEVICE: ["cpu", "cuda"], "threads": [1, 2], "algorithm": ["mappo"]})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        if run.overrides[DEVICE] == "cpu":
            train(sweep, run, 1000.0)
    found = compare_by(collect([sweep]), "threads")
    assert [label for label, _ in sections(found)] == ["cpu"]
    assert "no finished run: cuda" in notes(found)


def test_a_baseline_without_results_is_told(results: Path) -> None:
    runs = matrix_runs({DEVICE: ["cpu", "cuda"]})
    sweep = create_sweep(results, "lab", runs)
    assert "No run has finished yet" in verdict(compare_by(collect([sweep]), "train_device"))
    train(sweep, runs[0], 1000.0)
    found = compare_by(collect([sweep]), "train_device")
    assert verdict(found) == "Only cpu has finished runs, and no run has finished with cuda."
    (alone,) = matrix_runs({DEVICE: ["cuda"]})
    later = create_sweep(results, "later", [runs[0], alone])
    train(later, alone, 1000.0)
    assert compare_by(collect([later]), "train_device").baseline == "cuda"
    found = compare_by(collect([sweep]), "train_device", baseline="cuda")
    assert "No run with cuda, the baseline, has finished" in verdict(found)


def test_returns_that_are_no_numbers_are_left_out_and_counted(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], "threads": [1, 2], "seed": range(2)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        lost = run.threads == 2 and run.seed == 0
        train(
            sweep,
            run,
            1000.0,
            [math.nan, math.nan] if lost else [1.0, 2.0],
            final_return=None if lost else 2.0,
        )
    found = compare_by(collect([sweep]), "threads")
    two = cell(found, "mappo", "2")
    assert two.final is not None
    assert (two.final.value, two.final.n) == (2.0, 1)
    assert "1 of 2 without a finite return" in two.note
    assert two.speed is not None
    assert two.speed.n == 2


def test_sweeps_against_each_other_and_what_else_differs_between_them(results: Path) -> None:
    speeds = {"old": 1000.0, "new": 1200.0}
    for name, lr in (("old", 0.1), ("new", 0.2)):
        trained(results, {"algorithm": ["mappo", "iql"], LR: [lr]}, lambda run, name=name: speeds[name], name)
    found = compare_by(collect([SweepDir(results, "old"), SweepDir(results, "new")]), "sweep")
    assert found.values == ("old", "new")
    assert found.together == (LR,)
    assert [one.label for one in found.combinations] == ["mappo", "iql"]
    assert found.overall[1].speed is not None
    assert found.overall[1].speed.value == pytest.approx(1.2)


def test_sweeps_of_different_tasks_are_not_compared_and_a_length_for_each_task_is_no_obstacle(
    results: Path,
) -> None:
    frames = {"old": {"a": 100, "b": 200}, "new": {"a": 300, "b": 400, "c": 500}}
    for name, tasks in frames.items():
        runs = [
            run
            for task, most in tasks.items()
            for run in matrix_runs({"task": [task], "experiment.max_n_frames": [most]})
        ]
        sweep = create_sweep(results, name, runs)
        for run in runs:
            train(sweep, run, 1000.0)
    found = compare_by(collect([SweepDir(results, name) for name in frames]), "sweep")
    assert found.together == ("experiment.max_n_frames",)
    assert [(one.label, one.comparable) for one in found.combinations] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]


def test_returns_are_compared_where_no_speed_is_known(results: Path) -> None:
    sweeps = []
    for name, level in (("ours", 0.0), ("theirs", 10.0)):
        runs = matrix_runs({"algorithm": ["mappo"], "seed": range(5)})
        sweeps.append(create_sweep(results, name, runs))
        for run in runs:
            train(sweeps[-1], run, 1000.0, final_return=level + run.seed, speed={})
    found = compare_by(collect(sweeps), "sweep")
    assert [one.comparable for one in found.combinations] == [True]
    assert verdict(found) == (
        "Too few speeds are known to compare them; "
        "final returns with theirs are higher in 1 of 1 combinations."
    )
    table = dict(zip(columns(found, full=True), sections(found, full=True)[0][1][1], strict=True))
    assert (table["P(> ours)"].text, table["speed-up"].text) == ("1.00 [1.00, 1.00]", "–")


def test_runs_without_metrics_are_not_said_to_differ_in_more_than_the_key(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo", "iql"], "seed": range(2)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        train(sweep, run, 1000.0, final_return=float("nan"), speed={})
    found = compare_by(collect([sweep]), "algorithm")
    assert verdict(found) == "The finished runs have no speeds and no returns to compare."


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (7, "b: final returns with b are higher in 1 of 1 combinations"),
        (8, "b: too few seeds to tell final returns apart (for 7 values)"),
    ],
)
def test_values_without_speeds_are_corrected_for_their_number(results: Path, values: int, told: str) -> None:
    """Each that is named has its own chance of a false difference; five seeds bear six of them."""
    runs = matrix_runs({"algorithm": list("abcdefgh"[:values]), "seed": range(5)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        level = 10.0 * (run.overrides["algorithm"] == "b")
        train(sweep, run, 1000.0, final_return=level + run.seed, speed={})
    assert told in verdict(compare_by(collect([sweep]), "algorithm"))


def test_the_same_grid_in_two_sweeps_is_two_combinations_by_any_other_key(results: Path) -> None:
    for name in ("one", "two"):
        trained(results, {"threads": [1, 2]}, lambda run: 1000.0, name)
    found = compare_by(collect([SweepDir(results, "one"), SweepDir(results, "two")]), "threads")
    assert [one.point["sweep"] for one in found.combinations] == ["one", "two"]


def test_hardware_is_a_key_although_no_grid_has_it(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], "seed": range(4)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        host = {**result_of(run, [])["host"], "cpu_model": "Old CPU" if run.seed % 2 else "New CPU"}
        train(sweep, run, 1000.0 if run.seed % 2 else 1500.0, host=host)
    found = compare_by(collect([sweep]), "hardware", baseline="Old CPU")
    [one] = found.combinations
    assert one.cell("New CPU").speed.value == pytest.approx(1.5)  # type: ignore[union-attr]
    assert not one.cell("New CPU").speed.paired  # type: ignore[union-attr]


def test_what_results_tell_of_themselves_is_a_key_of_those_that_have_one(results: Path) -> None:
    count = "experiment.on_policy_n_envs_per_worker"
    runs = matrix_runs({"algorithm": ["mappo"], DEVICE: ["cpu", "cuda"], count: [60, 600]})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        if run.overrides[DEVICE] == "cpu":
            train(sweep, run, float(str(run.overrides[count])), environments=run.overrides[count])
    found = compare_by(collect([sweep]), "environments")
    [one] = found.combinations
    assert found.together == (count,)
    assert one.cell("600").speed.value == pytest.approx(10)  # type: ignore[union-attr]


def test_with_prices_efficiency_is_per_dollar(results: Path) -> None:
    collected = trained(
        results,
        {"algorithm": ["mappo"], DEVICE: ["cpu", "cuda"]},
        lambda run: 1000.0 if run.overrides[DEVICE] == "cpu" else 3000.0,
    )
    by_device = dict(zip(collected.runs[DEVICE], collected.runs["run_id"], strict=True))
    prices = {("lab", by_device["cpu"]): 0.1, ("lab", by_device["cuda"]): 0.6}
    found = compare_by(collected, "train_device", prices=prices)
    assert found.per == "dollar"
    assert cell(found, "mappo", "cuda").efficiency.value == pytest.approx(0.5)  # type: ignore[union-attr]
    del prices["lab", by_device["cuda"]]
    found = compare_by(collected, "train_device", prices=prices)
    assert cell(found, "mappo", "cuda").efficiency is None


def test_the_csv_holds_no_formula(results: Path) -> None:
    matrix = {"algorithm": ["=1+1"], "threads": [1, 2], "seed": range(2)}
    found = compare_by(trained(results, matrix, lambda run: 1000.0 * run.threads), "threads")
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert {row["combination"] for row in rows} == {"'=1+1", "all (geometric mean)"}


def test_the_csv_holds_every_cell_and_what_came_of_all(results: Path) -> None:
    matrix = {"algorithm": ["mappo", "iql"], "threads": [1, 2], "seed": range(2)}
    found = compare_by(trained(results, matrix, lambda run: 1000.0 * run.threads), "threads")
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [(row["combination"], row["value"]) for row in rows] == [
        *((algorithm, threads) for algorithm in ("mappo", "iql") for threads in "12"),
        ("all (geometric mean)", "1"),
        ("all (geometric mean)", "2"),
    ]
    assert float(rows[1]["speed_up"]) == pytest.approx(2)
    assert float(rows[5]["efficiency"]) == pytest.approx(1)
    assert {row["equal_frames"] for row in rows[:4]} == {"12000.0"}


# Who returns most


def returning(results: Path, levels: Mapping[str, float], tasks: Sequence[str], seeds: int = 10) -> str:
    """The verdict by algorithm on runs with these returns; the first is the fastest."""
    runs = matrix_runs({"task": tasks, "algorithm": list(levels), "seed": range(seeds)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        name = str(run.overrides["algorithm"])
        level = levels[name] + run.seed % 7 + run.seed / 100
        train(sweep, run, 2000.0 if name == next(iter(levels)) else 1000.0, [0.0, level])
    return verdict(compare_by(collect([sweep]), "algorithm"))


def test_the_value_that_returns_most_is_named_beside_the_fastest(results: Path) -> None:
    said = returning(results, {"iql": 0.0, "ippo": 40.0, "mappo": 80.0}, ["t"])
    assert said.endswith(" Returns of all values: mappo leads significantly (10 seeds).")


def test_values_that_return_alike_are_all_named(results: Path) -> None:
    said = returning(results, {"iql": 0.0, "ippo": 0.0, "mappo": 0.0}, ["t"])
    told = "Returns of all values: cannot tell from 10 seeds which is best of iql, ippo, mappo, "
    assert told in said


def test_returns_over_several_combinations_are_ranked_over_all_of_them(results: Path) -> None:
    said = returning(results, {"iql": 0.0, "ippo": 40.0, "mappo": 80.0}, ["t", "u"], 5)
    assert said.endswith(" Returns of all values: over 2 combinations, mappo leads significantly (5 seeds).")


def test_values_that_are_no_names_have_their_key_before_them(results: Path) -> None:
    runs = matrix_runs({"task": ["t"], "algorithm": ["mappo"], LR: [0.1, 0.01, 0.001], "seed": range(10)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        train(sweep, run, 1000.0, [0.0, 100 * float(str(run.overrides[LR])) + run.seed / 100])
    assert " Returns of all values: lr=0.1 leads significantly" in verdict(compare_by(collect([sweep]), LR))


def test_returns_of_different_tasks_are_not_ranked(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["iql", "mappo"], "task": ["t", "u", "v"], "seed": range(10)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        level = 100.0 if run.overrides["task"] == "v" else 1.0
        train(sweep, run, 10 * level, [0.0, level + run.seed / 100])
    found = compare_by(collect([sweep]), "task")
    said = verdict(found)
    assert "v trains 100.00 times as fast as t" in said
    assert said.endswith("returns of different tasks are not ranked.")
    heads, rows = columns(found, full=True), [row for _, own in sections(found, full=True) for row in own]
    chances = {row[heads.index("P(> t)")].text for row in rows}
    assert chances <= {"–", ""}


def test_two_values_need_no_second_sentence(results: Path) -> None:
    assert "all values" not in returning(results, {"iql": 0.0, "ippo": 40.0}, ["t"])


def test_json_has_the_values_of_the_grid_everywhere(results: Path) -> None:
    collected = trained(
        results, {LR: [0.1, 0.2], "algorithm": ["mappo"], "seed": range(2)}, lambda run: 1000.0
    )
    told = as_json(compare_by(collected, LR))
    ratio = told["combinations"][0]["cells"][1]["speed_up"]
    assert (ratio["better"], ratio["other"]) == (0.2, 0.1)
    assert told["overall"][1]["speed_up"]["better"] == 0.2

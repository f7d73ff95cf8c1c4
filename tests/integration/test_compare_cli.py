"""`orchestrate compare`, and where to run as the report says it: what a person sees, and the files."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks.synthetic import create_sweep, finish, matrix_runs, result_of, training_rows
from orchestrator.analysis.collect import collect
from orchestrator.analysis.groups.crossover import contests
from orchestrator.analysis.report import write_report
from orchestrator.analysis.report.blocks import Text
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.sections.costs import where
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.rundir import SweepDir
from orchestrator.ui.cli import app
from tests.helpers import make_sweep, work

ENVIRONMENTS = "experiment.on_policy_n_envs_per_worker"
DEVICE = "experiment.train_device"
PNG = b"\x89PNG\r\n\x1a\n"


def lab(results: Path, name: str = "lab", devices: tuple[str, ...] = ("cpu", "cuda")) -> SweepDir:
    """A sweep of which the CPU's runs, and the GPU's if it is among ``devices``, are done."""
    matrix = {"task": ["vmas/navigation"], "algorithm": ["mappo"], DEVICE: ["cpu", "cuda"]}
    runs = matrix_runs({**matrix, ENVIRONMENTS: [60, 6000], "threads": [1, 2]})
    sweep = create_sweep(results, name, runs)
    for run in runs:
        device, count = str(run.overrides[DEVICE]), run.overrides[ENVIRONMENTS]
        assert isinstance(count, int)
        if device not in devices:
            continue
        rows = training_rows(run, 3)
        fps = 1500.0 * run.threads**0.5 if device == "cpu" else 2.0 * count
        told = {**result_of(run, rows)["speed"], "training_fps": fps, "end_to_end_fps": 0.9 * fps}
        finish(sweep.run(run.run_id), run, rows, speed=told, environments=count, devices=[device])
    return sweep


def compare(results: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments, "--results", str(results)])


def test_without_a_key_those_that_differ_are_named(results: Path) -> None:
    lab(results)
    said = compare(results, "lab")
    assert said.exit_code != 0
    assert said.exception is not None
    told = str(said.exception)
    assert told.endswith("these differ: n_envs, train_device, threads")


def test_a_table_here_and_as_csv_a_picture_and_a_sentence(results: Path) -> None:
    lab(results)
    said = compare(results, "lab", "--by", "threads")
    assert said.exit_code == 0, said.output
    head = said.output.splitlines()[0]
    assert re.split("  +", head.strip()) == [
        *("threads", "runs", "training frames/s", "speed-up", "end-to-end speed-up", "efficiency", "return"),
        *("at frames", "at time", "MiB"),
    ]
    assert "all, geometric mean" in said.output
    assert "threads=2 trained 1.19 times as fast as threads=1" in said.output
    assert "end-to-end 1.19 times" in said.output
    folder = results / "lab" / "compare-threads"
    with open(folder / "comparison.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 2 + 2
    pictures = sorted(path.name for path in folder.glob("*.png"))
    assert pictures == ["compare-1-dark.png", "compare-1.png"]
    assert all((folder / name).read_bytes().startswith(PNG) for name in pictures)


def test_a_comparison_made_again_leaves_no_old_pictures(results: Path) -> None:
    lab(results)
    folder = results / "made"
    folder.mkdir()
    mine = folder / "compare-mine.png"
    for path in (folder / "compare-7.png", folder / "compare-7-dark.png", mine):
        path.write_bytes(PNG)
    said = compare(
        results, "lab", "--by", "train_device", "--baseline", "cuda", "--output", str(folder), "--json"
    )
    found = json.loads(said.output)
    assert (found["baseline"], found["key"], found["efficiency_per"]) == ("cuda", DEVICE, None)
    assert sorted([*found["files"], str(mine)]) == sorted(str(path) for path in folder.iterdir())
    assert not list(folder.glob("compare-7*"))


def test_json_has_the_grids_values_and_keys(results: Path) -> None:
    lab(results, devices=("cpu",))
    found = json.loads(compare(results, "lab", "--by", "n_envs", "--json").output)
    assert (found["values"], found["baseline"]) == ([60, 6000], 60)
    assert [one["value"] for one in found["overall"]] == [60, 6000]
    keys = [one["keys"] for one in found["combinations"]]
    assert {(one[DEVICE], one["threads"]) for one in keys} == {
        (device, threads) for device in ("cpu", "cuda") for threads in (1, 2)
    }


def test_several_sweeps_are_compared_beside_their_folders(results: Path) -> None:
    for name in ("old", "new"):
        lab(results, name, devices=("cpu",))
    said = compare(results, "old", "new", "--by", "sweep")
    assert said.exit_code == 0, said.output
    assert "No clear difference in speed between new and old: 1.00 times as fast (" in said.output
    assert (results / "compare-sweep" / "comparison.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lab", "--by", "sede"), "--by sede: no run has that key"),
        (("lab", "--by", "threads", "--baseline", "3"), "threads is never '3'; expected one of: 1, 2"),
        (("nope", "--by", "threads"), "no sweep named 'nope'"),
        (("lab", "--by", "../../etc"), "no run has that key"),
        (("lab", "--by", "threads", "--output", "README"), "README cannot be a folder"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_the_way_on(
    results: Path, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab(results, devices=("cpu",))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README").write_text("a file\n")
    said = compare(results, *arguments)
    assert said.exit_code != 0
    assert words in str(said.exception)
    assert "Traceback" not in said.output


def test_hostile_names_reach_neither_markup_nor_paths(results: Path) -> None:
    matrix = {"algorithm": ["[red]x[/red]", "\x1b[31mred"], "a/../b": ["$(id)", "'; echo"]}
    runs = matrix_runs({**matrix, "seed": range(2)})
    sweep = create_sweep(results, "lab", runs)
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 2))
    said = compare(results, "lab", "--by", "a/../b")
    assert said.exit_code == 0, said.output
    assert "\x1b[31mred" not in said.output
    assert "[red]x[/red]" in said.output
    [folder] = [path for path in (results / "lab").iterdir() if path.name.startswith("compare-")]
    assert folder.name == "compare-b"


def test_the_report_says_where_to_run(results: Path) -> None:
    sweep = lab(results)
    page = write_report([sweep], collect([sweep]), sweep.report, generated="now").read_text()
    assert "Where to run" in page
    assert (
        "Too few runs to tell where to run mappo (one run each, 5 needed): the fastest was the GPU "
        "(1 thread, 6,000 environments), 12,000 frames/s of training, 10,800 end-to-end; "
        "the lines of CPU and GPU cross at about 1,100 environments." in page
    )
    assert (sweep.report / "crossover-1.pdf").read_bytes().startswith(b"%PDF-")


def test_without_a_gpu_the_report_shows_no_crossover_and_says_why(results: Path) -> None:
    section = where.section(report_data([], collect([lab(results, devices=("cpu",))])))
    assert section is not None
    said = section.blocks[0]
    assert isinstance(said, Text)
    assert said.text.startswith(
        "Too few runs to tell where to run mappo (one run each, 5 needed): the fastest was the CPU "
        "(2 threads, 60 environments), 2,121 frames/s of training, 1,909 end-to-end"
    )
    assert "no GPU was measured, so there is no crossover to show" in said.text


@pytest.mark.nightly
def test_what_benchmarl_trained_tells_its_environments_and_devices(results: Path) -> None:
    """By a reference from a key that the algorithm reads to one that it does not."""
    on_policy, off_policy = ENVIRONMENTS, "experiment.off_policy_n_envs_per_worker"
    overrides = {"experiment": "debug", "task": "vmas/navigation", "algorithm": "iql", on_policy: 3}
    run = BENCHMARL.identify({**overrides, off_policy: f"${{{on_policy}}}"}, 0, 1)
    sweep = make_sweep(results, [run])
    assert work(sweep, timeout=600) == 0
    [row] = collect([sweep]).runs.iter_rows(named=True)
    assert (row["environments"], row["device"]) == (3, "cpu")
    [contest] = contests(collect([sweep]))
    assert [spot.environments for spot in contest.lines[0].spots] == [3]

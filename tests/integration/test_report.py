"""The report as a file: whole without a network, true to the runs, safe against what people call things."""

from __future__ import annotations

import csv
import html
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import (
    COLLECTION,
    create_sweep,
    end_attempt,
    finish,
    finished_sweep,
    matrix_runs,
    training_rows,
    write_attempt,
)
from orchestrator.analysis.collect import collect
from orchestrator.analysis.report import write_report
from orchestrator.core.errors import OrchestrateError, StorageError
from orchestrator.core.progress import listening
from orchestrator.core.types import RunState
from orchestrator.rundir import Evaluation, Row, SweepDir
from orchestrator.status.survey import Survey
from orchestrator.ui.cli import app
from tests.helpers import surveyed

GENERATED = "2026-01-02 03:04 UTC"
# Of the first losses of a sweep.
LOSSES = [f"losses-{number}.svg" for number in range(1, 7)]
VOID = {"meta", "img", "source", "br", "input"}
HOSTILE = (
    "<script>alert(1)</script>",
    "a'b\"c; rm -rf /",
    "</script></style></pre><b onclick=alert(2)>",
    "$\\frac{$",
    "_hidden",
    "{{ 7*7 }}",
    "line\nbreak",
    "日本語 ü",
    "x" * 300,
)
PLAYERS = {"random": 0.0, HOSTILE[0]: 1.0}


class Page(HTMLParser):
    """What a browser would see: tags, attributes and text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += f"{data} "

    @property
    def words(self) -> str:
        return " ".join(self.text.split())

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def report(sweep: SweepDir, survey: Callable[[SweepDir], Survey] | None = None) -> Page:
    collected = collect([sweep], survey)
    return Page(write_report([sweep], collected, sweep.report, generated=GENERATED))


def pictures(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.svg"))


def test_one_file_holds_everything_and_pictures_lie_beside_it(results: Path) -> None:
    matrix = {"task": ["vmas/navigation", "vmas/balance"], "algorithm": ["mappo", "iql"], "seed": range(5)}
    sweep = finished_sweep(results, "speed", matrix, iterations=3)
    page = report(sweep)
    assert pictures(sweep.report) == [
        "cost-1.svg",
        "cost-2.svg",
        "final-1.svg",
        "final-2.svg",
        "improvement-1.svg",
        "improvement-2.svg",
        "improvement-3.svg",
        "learning-1.svg",
        "learning-2.svg",
        *LOSSES,
        "profile-1.svg",
        "profile-2.svg",
        "profile-3.svg",
        "speed-1.svg",
        "threshold-1.svg",
        "threshold-2.svg",
    ]
    assert page.values("src") == page.values("srcset") == []
    drawn = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len([one for one in drawn if one]) >= len(pictures(sweep.report))
    for path in sweep.report.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF-")
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page.source)
    assert {"Groups", "Learning", "Final returns", "Speed", "Runs", "Provenance"} < set(headings)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    beside = {path.name for path in sweep.report.iterdir()}
    assert {href.removeprefix("#") for href in page.values("href")} <= set(ids) | beside
    assert {path.name for path in sweep.report.glob("table-*")} < set(page.values("href"))
    assert not re.search(r"https?:|url\((?!#)|@import|fetch\(", page.source)
    assert page.values("style") == [], "the policy forbids them"
    assert "default-src 'none'" in " ".join(page.values("content"))


def test_runs_in_several_sizes_have_a_section_on_scaling(results: Path) -> None:
    runs = matrix_runs({"task": ["procgen/coinrun"], "actors": [1, 2, 4], "seed": range(2)}, "ppo")
    sweep = create_sweep(results, "scaling", runs)
    names = ("collection", "environment", "inference", "training", "waiting")
    timers = {f"timers/{name}_time": 0.2 * (2 if name == "collection" else 1) for name in names}
    rows = [Row(number, 4096 * number, float(number), timers) for number in (1, 2, 3)]
    for run in runs:
        actors = run.overrides["actors"]
        assert isinstance(actors, int)
        speed = {"training_fps": 1000 / (0.2 + 0.8 / actors), "end_to_end_fps": 500.0}
        told = {"config": {"actors": actors}, "flop_per_frame": 1e8, "machine_flops_per_core": 4e11}
        finish(sweep.run(run.run_id), run, rows, speed=speed, **told)
    said = CliRunner().invoke(app, ["report", "scaling", "--results", str(results)])
    assert said.exit_code == 0, said.output
    page = Page(sweep.report / "index.html")
    assert "scaling-1.svg" in pictures(sweep.report)
    law = "serial fraction 20.0% [20.0%, 20.0%] by Amdahl's law: beyond 2 actors you pay for waiting"
    assert law in page.words
    cells = "4 4 2 2,500 [2,500, 2,500] 2.50 [2.50, 2.50] 62.5% 33.3% 33.3% 0.0% 0.0% 33.3% 0.0% 15.6%"
    assert cells in page.words


@pytest.mark.nightly
def test_the_same_tree_gives_the_same_bytes(results: Path) -> None:
    sweep = finished_sweep(results, "speed", {"algorithm": ["mappo"], "seed": range(2)}, iterations=3)
    first = report(sweep).source
    assert report(sweep).source == first
    assert first.count(GENERATED) == 1


def test_it_says_what_was_found(results: Path) -> None:
    matrix = {"task": ["vmas/navigation"], "algorithm": ["mappo", "iql"], "seed": range(2)}
    runs = matrix_runs(matrix)
    sweep = create_sweep(results, "speed", runs, grid_text="name: speed  # as a person wrote it\n")
    finish(sweep.run(runs[0].run_id), runs[0], training_rows(runs[0], 3), final_return=12.5, best_return=13.5)
    failed = sweep.run(runs[1].run_id).attempt(1)
    write_attempt(failed, training_rows(runs[1], 2))
    end_attempt(failed, "failed", "out of memory", "needed 2 GiB more")
    skipped = runs[2].run_id
    page = report(sweep, surveyed({skipped: RunState.SKIPPED}, {skipped: "needs a GPU"}))
    for expected in (
        "1 pending 1 done 1 failed 1 skipped",
        "fewer than 5 seeds",
        "mappo (n=1)",
        "12.5",
        "out of memory: needed 2 GiB more",
        f"orchestrate logs speed {runs[1].run_id}",
        f"orchestrate retry speed {runs[1].run_id}",
        "needs a GPU",
        "Example CPU 3000",
        "torch 2.13.0",
        "c0dec0dec0dec0de",
        "# as a person wrote it",
        f"generated {GENERATED}",
    ):
        assert expected in page.words
    assert "NaN" not in page.text


def test_the_answer_comes_first(results: Path) -> None:
    runs = matrix_runs({"task": ["t1", "t2"], "algorithm": ["mappo", "iql", "vdn"], "seed": range(5)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs[1:]:
        level = run.seed + (0.5 if run.overrides["algorithm"] == "iql" else 0)
        level += 20 * (run.overrides["algorithm"] != "vdn")
        finish(sweep.run(run.run_id), run, training_rows(run, 2), final_return=level)
    failed = sweep.run(runs[0].run_id).attempt(1)
    write_attempt(failed, training_rows(runs[0], 2))
    end_attempt(failed, "failed", "out of memory", "needed 2 GiB more")
    page = report(sweep)
    assert page.source.index('id="answer"') < page.source.index('id="warnings"')
    cards = re.findall(r'<article class="card">(.*?)</article>', page.source, flags=re.DOTALL)
    assert [re.findall("<h3>(.*?)</h3>", card) for card in cards] == [
        ["All tasks (2)"],
        ["t1"],
        ["t2"],
    ]
    overall, one, two = cards
    assert "Cannot tell from 4–5 seeds which is best of iql, mappo" in overall
    assert "too few seeds to be told apart from anything: mappo (n=4)" in one.replace("Too", "too")
    assert "1 run failed, out of memory: mappo" in one
    assert "Cannot tell from 5 seeds which is best of iql, mappo; <b>more than 100 more would be" in two
    assert "Significantly behind: vdn." in two
    assert "the same distribution of returns, at most one page in twenty has a yes by luck" in page.words
    assert rows_of(page, "missing seeds")[1][:3] == ["t1", "mappo", "1 of 5"]
    judged = [row[1] for row in rows_of(page, "conditions")[1:]]
    assert judged == ["no difference found"] * 8 + ["nothing to compare"]  # one evaluation has no interval
    assert "red flags" not in page.words
    assert two.count("<circle") == 15
    assert two.count('class="ends"') == 3
    assert not re.search(r"style=", "".join(cards)), "the policy refuses it"


@pytest.mark.nightly
def test_three_seeds_are_dots_without_an_interval(results: Path) -> None:
    page = report(finished_sweep(results, "speed", {"algorithm": ["mappo", "iql"], "seed": range(3)}))
    (card,) = re.findall(r'<article class="card">(.*?)</article>', page.source, flags=re.DOTALL)
    assert card.count("<circle") == 6
    assert 'class="ends"' not in card
    assert "Cannot tell from 3 seeds" in card
    assert "more would be needed" in card


def test_hostile_names_stay_text(results: Path) -> None:
    runs = matrix_runs({"task": ["<img src=x onerror=alert(3)>"], "algorithm": HOSTILE, "seed": [0]})
    sweep = create_sweep(results, "hostile", runs, grid_text="</pre><script>alert(4)</script>")
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 2), host={"hostname": "<b>host</b>"})
    write_attempt(sweep.run(runs[0].run_id).attempt(1), training_rows(runs[0], 1))
    sweep.run(runs[0].run_id).result_path.unlink()
    sweep.run(runs[0].run_id).attempt(1).end_path.write_text(
        '{"outcome": "failed", "reason": "code error", "message": "<script>alert(5)</script>"}'
    )
    page = report(sweep)
    assert page.tags.count("script") == 10  # seven of ours, and data of three
    assert page.values("onclick") == page.values("onerror") == []
    assert page.values("src") == []
    for name in (*HOSTILE, "<b>host</b>", "<script>alert(5)</script>", "</pre><script>alert(4)</script>"):
        assert " ".join(name.split()) in page.words
    assert not re.search(r"\b49\b", page.words)
    scripts = re.findall(r"<script>.*?</script>", page.source, flags=re.DOTALL)
    assert len(scripts) == 7
    assert "alert" not in "".join(scripts)


@pytest.mark.parametrize("attempts", [0, 1])
def test_a_sweep_without_a_finished_run_gives_an_honest_page(results: Path, attempts: int) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], "seed": range(2)})
    sweep = create_sweep(results, "young", runs)
    for run in runs[:attempts]:
        write_attempt(sweep.run(run.run_id).attempt(1), training_rows(run, 3))
    page = report(sweep)
    assert "No finished run has a finite final return." in page.words
    assert "No finished run has a measured speed." in page.words
    assert "No run is finished." in page.words
    assert ("No run has recorded a return yet." in page.words) == (attempts == 0)
    assert pictures(sweep.report) == ["learning-1.svg", *LOSSES] * attempts
    assert "orchestrate sweep --grid GRID" in page.words


def test_a_sweep_of_no_runs_gives_a_page(results: Path) -> None:
    page = report(create_sweep(results, "empty", []))
    assert "The sweep has no runs." in page.words


def test_runs_without_evaluation_or_returns_break_nothing(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo", "iql", "vdn"], "seed": [0]})
    sweep = create_sweep(results, "odd", runs)
    finish(sweep.run(runs[0].run_id), runs[0], training_rows(runs[0], 2, evaluation=False))
    nothing = [Row(0, 100, 1.0, {COLLECTION: math.nan})]
    finish(sweep.run(runs[1].run_id), runs[1], nothing, final_return=math.nan, best_return=None)
    finish(sweep.run(runs[2].run_id), runs[2], [], speed={}, host={}, versions=None, started=None, ended=None)
    page = report(sweep)
    assert "1 of 1 without a finite return: iql, vdn" in page.words
    assert "3 done" in page.words
    assert "nan" not in page.words.lower().split()


@pytest.mark.nightly
def test_many_groups_are_split_over_pictures_and_pictures_have_an_end(results: Path) -> None:
    matrix = {"algorithm": [f"algorithm{number}" for number in range(14)], "seed": [0]}
    sweep = finished_sweep(results, "many", matrix, iterations=2)
    page = report(sweep)
    assert pictures(sweep.report) == [
        *("cost-1.svg", "final-1.svg", "learning-1.svg", "learning-2.svg"),
        *LOSSES,
        "speed-1.svg",
    ]
    alternatives = {text for text in page.values("aria-label") if text.startswith("Learning")}
    assert sum("(1 of 2)" in text for text in alternatives) == 1
    assert sum("(2 of 2)" in text for text in alternatives) == 1


def test_pictures_of_a_former_report_are_removed_and_other_files_stay(results: Path) -> None:
    sweep = finished_sweep(results, "speed", {"algorithm": ["mappo"], "seed": [0]}, iterations=2)
    sweep.report.mkdir()
    (sweep.report / "learning-7.svg").write_bytes(b"old")
    mine = (
        "notes.txt",
        "table-mine.txt",
        "learning-mine.svg",
        "speed-1-slide.svg",
        "final-.svg",
        "my-speed-1.svg",
    )
    for name in mine:
        (sweep.report / name).write_text("mine")
    report(sweep)
    assert "learning-7.svg" not in pictures(sweep.report)
    assert [(sweep.report / name).read_text() for name in mine] == ["mine"] * len(mine)


@pytest.mark.parametrize("inside", [".", "deeper"])
def test_a_file_in_the_way_is_named(results: Path, inside: str) -> None:
    sweep = create_sweep(results, "speed", [])
    sweep.report.write_text("not a folder")
    with pytest.raises(OrchestrateError, match="a file is in the way"):
        write_report([sweep], collect([sweep]), sweep.report / inside, generated=GENERATED)
    assert sweep.report.read_text() == "not a folder"


def test_a_folder_that_cannot_be_written_is_named(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = finished_sweep(results, "speed", {"algorithm": ["mappo"], "seed": [0]}, iterations=1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StorageError, match="report: the disk is full"):
        report(sweep)


# Several sweeps


def page_of(sweeps: list[SweepDir], out: Path) -> Page:
    return Page(write_report(sweeps, collect(sweeps), out, generated=GENERATED))


def rows_of(page: Page, name: str) -> list[list[str]]:
    """The rows of the table of this name, its head first, as a browser would show their cells."""
    _, _, table = page.source.partition(f'aria-label="Table of {name}"')
    table = table.partition("</table>")[0]
    return [
        [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", table, flags=re.DOTALL)
    ]


def two_sweeps(results: Path) -> list[SweepDir]:
    """Two that share one variant of a task, with three and two seeds, and differ in a setting."""
    told = {
        "before": ({"algorithm": ["mappo", "iql"], "seed": range(3)}, {"experiment.gamma": [0.9]}, 1.0),
        "after": ({"algorithm": ["mappo", "vdn"], "seed": range(2)}, {"experiment.gamma": [0.99]}, 2.5),
    }
    sweeps = []
    for name, (matrix, base, level) in told.items():
        runs = matrix_runs({"task": ["vmas/balance"], "experiment.lr": [0.5], **base, **matrix})
        sweeps.append(create_sweep(results, name, runs))
        for run in runs:
            speed = {"training_fps": 100 * level, "end_to_end_fps": 80 * level, "seconds_per_iteration": 1.0}
            final = level + run.seed
            finish(sweeps[-1].run(run.run_id), run, training_rows(run, 2), final_return=final, speed=speed)
    return sweeps


@pytest.mark.nightly
def test_what_several_sweeps_trained_is_compared_by_sweep(results: Path) -> None:
    page = page_of(two_sweeps(results), results / "report")
    assert rows_of(page, "settings") == [
        ["setting", "before", "after"],
        ["runs", "6", "4"],
        ["algorithm", "mappo, iql", "mappo, vdn"],
        ["experiment.gamma", "0.9", "0.99"],
        ["seed", "0, 1, 2", "0, 1"],
    ]
    assert "The same in all: experiment.lr: 0.5; task: vmas/balance; trainer: benchmarl" in page.words
    head, *rows = rows_of(page, "comparisons by sweep")
    assert head == [
        "combination",
        "sweep",
        "runs",
        "training frames/s",
        "end-to-end frames/s",
        "speed-up",
        "end-to-end speed-up",
        "return",
        "P(> before)",
        "at frames",
        "at time",
        "MiB",
    ]
    before, after = rows
    assert before[:7] == ["mappo", "before", "3", "100", "80", "1", "1"]
    assert after[:7] == ["mappo", "after", "2", "250", "200", "2.50 [2.50, 2.50]", "2.50"]
    assert before[7] == "2 (n=3)"
    assert after[7] == "3 (n=2)"
    assert (before[8], after[8]) == ("–", "too few seeds")
    assert "after trained 2.50 times as fast as before" in page.words
    assert "changes with sweep: experiment.gamma" in page.words
    assert "P(before" not in page.source
    (curves,) = {text for text in page.values("aria-label") if text.startswith("Learning curves")}
    for name in ("before mappo", "before iql", "after mappo", "after vdn"):
        assert f"{name} ends at" in curves


@pytest.mark.nightly
def test_a_sweep_against_another_from_five_seeds_on_and_only_where_returns_came_about_alike(
    results: Path,
) -> None:
    sweeps = []
    for name, level, lengths in (("before", 0, (2, 2)), ("after", 2, (2, 9))):
        runs = matrix_runs({"task": ["t"], "algorithm": ["mappo", "iql"], "seed": range(5)})
        sweeps.append(create_sweep(results, name, runs))
        for run in runs:
            rows = training_rows(run, lengths[run.overrides["algorithm"] == "iql"])
            speed = {"training_fps": 300.0 + level * (run.seed + 10), "end_to_end_fps": 200.0}
            finish(sweeps[-1].run(run.run_id), run, rows, final_return=level + run.seed, speed=speed)
    page = page_of(sweeps, results / "report")
    head, *rows = rows_of(page, "comparisons by sweep")
    mappo, iql = [
        row[head.index("P(> before)")]
        for row in rows
        if row[1] == "after" and row[0] != "all, geometric mean"
    ]
    assert [row[0] for row in rows[:4]] == ["mappo", "mappo", "iql", "iql"]
    assert mappo.startswith("0.82 [")
    told = csv.DictReader((results / "report" / "table-comparisons-by-sweep.csv").read_text().splitlines())
    (numbers,) = [row for row in told if (row["combination"], row["sweep"]) == ("mappo", "after")]
    value, low, high = (float(numbers[f"P(> before){end}"]) for end in ("", "_low", "_high"))
    assert mappo == f"{value:.2f} [{low:.2f}, {high:.2f}]"
    assert len(numbers["speed-up_low"]) > len("1.00"), "with all digits, not those on the page"
    assert (numbers["return_n"], numbers["runs"], numbers["runs_of"]) == ("5", "5", "5")
    assert iql == "not ranked against each other"
    flag = "not ranked against each other, t: trained for different lengths: 12,000 frames (after mappo, "
    assert page.words.index(flag) < page.words.index("P(> before)")


@pytest.mark.nightly
def test_sweeps_that_share_nothing_say_so(results: Path) -> None:
    sweeps = [
        finished_sweep(results, name, {"task": [name], "algorithm": ["mappo"], "seed": [0]}, iterations=1)
        for name in ("one", "two")
    ]
    page = page_of(sweeps, results / "report")
    assert "No variant of a task is finished in two of these sweeps." in page.words
    assert rows_of(page, "provenance")[0] == ["fact", "one", "two"]


def test_one_sweep_has_no_table_of_sweeps(results: Path) -> None:
    sweep = finished_sweep(results, "speed", {"algorithm": ["mappo"], "seed": [0]}, iterations=1)
    page = report(sweep)
    assert "Sweeps side by side" not in page.words
    assert "Probability of improvement" not in page.words
    assert "Performance profiles" not in page.words


@pytest.mark.nightly
def test_profiles_and_probabilities_are_told_in_words_too(results: Path) -> None:
    runs = matrix_runs({"task": ["a", "b"], "algorithm": ["mappo", "iql"], "seed": range(6)})
    sweep = create_sweep(results, "told", runs)
    for run in runs:
        final = run.seed + (10 if run.overrides["algorithm"] == "mappo" else 0)
        finish(sweep.run(run.run_id), run, training_rows(run, 1), final_return=final)
    page = report(sweep)
    certain = ["mappo", "iql", "1.00 [1.00, 1.00]"]
    assert rows_of(page, "pairs")[1:] == [
        ["all 2 tasks", *certain, "yes, p = 7e-06", "12 and 12"],
        ["a", *certain, "yes, p = 0.0043", "6 and 6"],
        ["b", *certain, "yes, p = 0.0043", "6 and 6"],
    ]
    assert (
        "0 is the worst and 1 the best final return of the variants drawn: a 0 to 15, b 0 to 15" in page.words
    )
    alternatives = " ".join(page.values("aria-label"))
    assert (
        "Performance profiles on a. mappo: half of its runs above 12; iql: half of its runs above 2."
        in alternatives
    )
    assert "Probability that a run of mappo returns more on a. than iql: 1.00 [1.00, 1.00]." in alternatives


def test_policies_stand_beside_scripted_players_where_evaluations_hold_some(results: Path) -> None:
    runs = matrix_runs({"task": ["game/a", "game/b"], "seed": range(5)}, "ppo")
    sweep = create_sweep(results, "told", runs)
    for run in runs:
        score = 1.5 if run.overrides["task"] == "game/a" else 0.5
        scores = {"eval/team/score": score, "eval/team/gap_closed": score}
        finish(sweep.run(run.run_id), run, [Row(1, 100, 1.0, scores)], checkpoint=run.run_id)
    assert "scripted" not in report(sweep).words
    for run in runs:
        score = 1.5 if run.overrides["task"] == "game/a" else 0.5
        figures = {"team/score": score, "team/gap_closed": score, "behaviour/work": 0.25}
        players = {name: {"team/score": at, "team/gap_closed": at} for name, at in PLAYERS.items()}
        players["random"]["behaviour/work"] = 0.75
        sweep.evaluations.add(
            Evaluation(
                run_id=run.run_id,
                frames=100,
                best=False,
                checkpoint=run.run_id,
                task=str(run.overrides["task"]),
                episodes=1,
                seed=0,
                deterministic=True,
                returns=(score,),
                lengths=(1,),
                time=1.0,
                figures=figures,
                baselines=players,
            )
        )
    page = report(sweep)
    assert "Evaluated in 1 episode, deterministic actions, seed 0." in page.words
    assert "At least the best baseline in 1 of 2 tasks (above in 1, below in 1)." in page.words
    assert rows_of(page, "policies")[1:] == [
        ["a", "5", "1.5 [1.5, 1.5]", f"1, {HOSTILE[0]}", "above", "1.50 [1.50, 1.50]"],
        ["b", "5", "0.5 [0.5, 0.5]", f"1, {HOSTILE[0]}", "below", "0.50 [0.50, 0.50]"],
    ]
    assert "Table of frames to thresholds" in page.values("aria-label")
    assert "100 [100, 100] 5 of 5 seeds" in page.words
    assert "scripted: random 0.75" in page.words
    assert "gap-1.svg" in pictures(sweep.report)
    assert any(
        text.startswith("team/gap_closed. a (n=5): 1.5 [1.5, 1.5]") for text in page.values("aria-label")
    )


def test_few_seeds_are_told_and_get_no_verdict(results: Path) -> None:
    """One seed above all others is neither the best nor in the way of those that can be compared."""
    seeds = {"lucky": 1, "mappo": 5, "iql": 5}
    runs = [run for name, n in seeds.items() for run in matrix_runs({"algorithm": [name], "seed": range(n)})]
    sweep = create_sweep(results, "few", runs)
    level = {"lucky": 1000, "mappo": 10, "iql": 0}
    for run in runs:
        final = level[str(run.overrides["algorithm"])] + run.seed
        finish(sweep.run(run.run_id), run, training_rows(run, 1), final_return=final)
    page = report(sweep)
    assert rows_of(page, "pairs")[1:] == [
        ["–", "mappo", "iql", "1.00 [1.00, 1.00]", "yes, p = 0.0079", "5 and 5"]
    ]
    assert "left out: fewer than 5 seeds, too few for a verdict: lucky (n=1)" in page.words
    three = matrix_runs({"algorithm": ["mappo", "iql"], "seed": range(3)})
    small = create_sweep(results, "three", three)
    for run in three:
        finish(small.run(run.run_id), run, training_rows(run, 1))
    words = report(small).words
    assert "No verdict: that takes two variants of a task with 5 seeds each" in words
    assert "P(X > Y)" not in words


@pytest.mark.nightly
def test_others_that_were_evaluated_in_two_episodes_and_trained_for_less_are_flagged_first(
    results: Path,
) -> None:
    sweeps = []
    for name, episodes, iterations, level in (("ours", 10, 10, 0), ("theirs", 2, 1, 99)):
        runs = matrix_runs({"algorithm": ["mappo", "iql"], "seed": range(5)})
        sweeps.append(create_sweep(results, name, runs))
        for run in runs:
            usual = {"episodes": episodes}
            rows = training_rows(run, iterations)
            final = level + run.seed + (20 if run.overrides["algorithm"] == "iql" else 0)
            finish(sweeps[-1].run(run.run_id), run, rows, final_return=final, evaluation=usual)
    page = page_of(sweeps, results / "report")
    pairs = [tuple(row[1:3]) for row in rows_of(page, "pairs")[1:]]
    assert pairs == [("ours iql", "ours mappo"), ("theirs iql", "theirs mappo")]
    told = page.words.partition("P(> ours)")[0]
    assert "6,000 frames (theirs iql, theirs mappo); 60,000 frames (ours iql, ours mappo)" in told
    assert "2 episodes (theirs iql, theirs mappo); 10 episodes (ours iql, ours mappo)" in told


def test_tables_are_files_for_programs_and_for_papers(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["a&b_c", "=1+1"], "seed": [0, 1]})
    sweep = create_sweep(results, "odd", runs)
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 2), final_return=1234567.125 + run.seed)
    report(sweep)
    heads, *rows = csv.reader((sweep.report / "table-runs.csv").read_text().splitlines())
    assert {row[heads.index("final return")] for row in rows} == {"1234567.125", "1234568.125"}
    assert {row[heads.index("algorithm")] for row in rows} == {"a&b_c", "'=1+1"}
    paper = (sweep.report / "table-groups.tex").read_text()
    assert paper.startswith("\\begin{tabular}{lrlrrrl}\n\\toprule\ngroup & n & states & ")
    assert "a\\&b\\_c & 2 & 2 done & " in paper
    assert "\\%" in paper


def test_building_reports_its_sections_and_pictures(results: Path) -> None:
    sweep = finished_sweep(results, "speed", {"algorithm": ["mappo"], "seed": [0, 1]}, iterations=2)
    steps: list[tuple[str, int, int]] = []
    with listening(lambda *told: steps.append(told)):
        report(sweep)
    drawn = [(done, total) for step, done, total in steps if step == "drawing pictures"]
    assert drawn == [(number, len(drawn)) for number in range(len(pictures(sweep.report)))]
    assert [done for step, done, _ in steps if step == "working out sections"][:3] == [0, 1, 2]

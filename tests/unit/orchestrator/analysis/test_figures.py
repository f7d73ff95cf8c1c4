"""The figures and the table of a paper."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.report import write_figures
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.paper.figures import Paper, iqm, optimality_gap, scores
from orchestrator.analysis.report.paper.settings import FigureSettings
from orchestrator.analysis.run_table import RunReading
from orchestrator.analysis.statistics.bootstrap import over_tasks
from orchestrator.core.errors import GridError
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row, SweepDir
from orchestrator.ui.cli import app
from tests.simulated import EVAL, of_readings, simulated

MEANS = {"x_1": -12.0, "b": -12.3, "c": -48.0}


@pytest.fixture(scope="module")
def collected() -> Collected:
    """Two variants alike and one far behind, in two tasks."""
    drawn = random.Random(5)
    return simulated(lambda name, _: MEANS[name] + drawn.gauss(0, 1), list(MEANS), 8, ("t1", "t2"))


def test_scores_are_those_of_rliable() -> None:
    tasks = [np.array([0.0, 0.1, 0.9, 1.5]), np.array([0.2, 0.4, 0.6, 0.8])]
    found = over_tasks(tasks, iqm)
    assert found.value == pytest.approx((0.2 + 0.4 + 0.6 + 0.8) / 4)  # a quarter is cut at each end
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high
    gap = over_tasks(tasks, optimality_gap)
    assert gap.value == pytest.approx((1 + 0.9 + 0.1 + 0 + 0.8 + 0.6 + 0.4 + 0.2) / 8)
    assert over_tasks([own[:3] for own in tasks], iqm).low is None  # too few seeds


def test_the_interval_resamples_each_task_by_itself() -> None:
    apart = [np.full(5, 0.0), np.full(5, 1.0)]
    found = over_tasks(apart, lambda values: values.mean(axis=-1))
    assert (found.low, found.value, found.high) == (0.5, 0.5, 0.5)


def test_lower_values_score_higher_where_lower_is_better() -> None:
    found = simulated(lambda name, task: len(task) + MEANS[name], list(MEANS), 4, ("t1", "t22"))
    collected = replace(found, runs=found.runs.with_columns(lower_is_better=pl.lit(True)))
    paper = Paper(report_data((), collected), FigureSettings())
    assert paper.aggregate is not None
    told = scores(paper.aggregate, iqm)
    assert (told["c"].value, told["x_1"].value) == (1.0, 0.0)


def test_the_default_draws_all_tasks_and_scores(collected: Collected, tmp_path: Path) -> None:
    written, told = write_figures(collected, None, tmp_path)
    assert sorted(path.name for path in written) == [
        *("aggregate.pdf", "aggregate.svg", "curves.pdf", "curves.svg", "table.tex"),
    ]
    assert "t1 -" in told
    pdf = (tmp_path / "curves.pdf").read_bytes()
    assert b"STIXGeneral" in pdf
    assert b"/Type3" not in pdf
    table = (tmp_path / "table.tex").read_text()
    assert r"x\_1 & \textbf{$-$1" in table
    row = next(line for line in table.splitlines() if line.startswith("c &"))
    assert "textbf" not in row
    assert re.search(r"\$-\$4\d & \d & \{\\scriptsize \[\$-\$4\d\.\d, \$-\$4\d\.\d\]\}", row)
    widths = {line.count("&") for line in table.splitlines() if line.endswith(r"\\") and "multi" not in line}
    assert widths == {9}


def of_sweeps(*kinds: tuple[str, str, dict[str, object]]) -> Collected:
    """Runs of sweeps, tasks and points; those of algorithm b return far more."""
    drawn = random.Random(5)
    readings = []
    for (sweep, task, point), seed in product(kinds, range(8)):
        final = 50 * (point["algorithm"] == "b") + drawn.gauss(0, 1)
        index = IndexRow(f"{len(readings):016x}", True, {"task": task, **point, "seed": seed})
        history = [Row(at, 3000 * at, 6.0 * at, {EVAL: final}) for at in (1, 2)]
        own = {"final_return": final, "frames": 6000}
        readings.append(RunReading(sweep, index, RunState.DONE, "", own, history))
    return of_readings(readings)


def test_sweeps_of_different_tasks_share_lines_and_rows(tmp_path: Path) -> None:
    a, b = {"algorithm": "a"}, {"algorithm": "b"}
    collected = of_sweeps(("s", "t1", a), ("s", "t1", b), ("other", "t2", a), ("other", "t2", b))
    write_figures(collected, None, tmp_path)
    table = (tmp_path / "table.tex").read_text()
    assert "{--}" not in table
    assert table.count(r"\textbf") == 6  # b before and behind the point, in both tasks and over them
    svg = (tmp_path / "curves.svg").read_text()
    assert svg.count('id="FillBetween') == 4  # a band of each line


def test_variants_are_found_where_a_task_or_a_choice_gives_them_other_labels(tmp_path: Path) -> None:
    slow, fast, b = {"algorithm": "a", "lr": 1}, {"algorithm": "a", "lr": 2}, {"algorithm": "b", "lr": 1}
    kinds = [(task, point) for task in ("t1", "t2") for point in (slow, b)]
    collected = of_sweeps(*(("s", *kind) for kind in kinds), ("s", "t1", fast))
    write_figures(collected, None, tmp_path)
    row = next(
        line for line in (tmp_path / "table.tex").read_text().splitlines() if line.startswith("b lr=1")
    )
    assert row.count("textbf") == 6
    collected = of_sweeps(*(("s", *kind) for kind in kinds), ("s", "t1", fast), ("s", "t2", fast))
    paper = Paper(report_data((), collected), FigureSettings(variants={"a lr=1": "A", "a lr=2": "B"}))
    assert paper.aggregate is not None
    assert list(scores(paper.aggregate, iqm)) == ["a lr=1", "a lr=2"]


def test_a_column_without_a_task_has_a_heading(tmp_path: Path) -> None:
    write_figures(simulated(lambda *_: random.random(), ["a", "b"], 3, ("",)), None, tmp_path)
    assert "{final return}" in (tmp_path / "table.tex").read_text()


def test_a_file_chooses_panels_labels_order_and_size(collected: Collected, tmp_path: Path) -> None:
    chosen = tmp_path / "figures.yaml"
    chosen.write_text(
        "style: icml\nwidth: column\npanels: {t2: Second}\n"
        "variants: {c: Ours, b: B}\ncolors: {c: crimson}\nscores: {t2: [-50, -10]}\n"
    )
    write_figures(collected, chosen, tmp_path / "out")
    table = (tmp_path / "out" / "table.tex").read_text()
    assert [line.split(" & ")[0] for line in table.splitlines()[7:9]] == ["Ours", "B"]
    assert "Second" in table
    assert not (tmp_path / "out" / "aggregate.pdf").exists()  # of one task
    svg = (tmp_path / "out" / "curves.svg").read_text()
    assert 'width="234pt"' in svg
    assert "#dc143c" in svg
    drawn = re.findall("<!-- (.*) -->", svg)  # each text, beside its outlines
    assert [text for text in drawn if text in ("Second", "Ours", "B")] == ["Second", "Ours", "B"]


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("style: neurip", ":1:8: style: found neurip", "did you mean neurips?"),
        ("panls: [t1]", ":1:1: found the key panls", "did you mean panels?"),
        ("panels: [t3]", ":1:10: panels: found t3", None),
        ("variants: {x1: X}", ":1:12: variants: found x1", "did you mean x_1?"),
        ("variants: 3", "found 3, expected a mapping", None),
        ("width: -1", "width: found -1, expected a number", None),
        ("width: [1]", "width: found a list, expected a number", None),
        ("colors: {b: rad}", "colors: b: found rad, expected a colour", None),
        ("scores: {t1: [1, 1]}", "scores: t1: found [1,1], expected two returns", None),
        ("[1]", "found a list, expected keys", None),
    ],
)
def test_a_wrong_file_is_named_with_line_and_nearest_spelling(
    text: str, said: str, hint: str | None, collected: Collected, tmp_path: Path
) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(GridError) as caught:
        write_figures(collected, tmp_path / "f.yaml", tmp_path / "out")
    assert said.replace(" ", "") in str(caught.value).replace(" ", "")
    assert hint is None or hint in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


def test_the_command_writes_into_the_sweep(
    collected: Collected, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SweepDir(results, "s").create()
    monkeypatch.setattr("orchestrator.analysis.collect.collect", lambda *_, **__: collected)
    printed = CliRunner().invoke(app, ["figures", "s", "--results", str(results)])
    assert printed.exit_code == 0, repr(printed.exception)
    assert "scores 0 and 1 are these final returns: t1 -" in printed.stdout
    assert (results / "s" / "figures" / "table.tex").is_file()
    missing = CliRunner().invoke(app, ["figures", "s", "--file", "none.yaml", "--results", str(results)])
    assert "no such file" in str(missing.exception)

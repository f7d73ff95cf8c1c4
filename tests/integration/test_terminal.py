"""What a person sees at 80 columns, and what a pipe gets: a line a run, the same keys in the same order."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks.synthetic import create_sweep, finish, matrix_runs, training_rows, write_journal
from orchestrator.config.check import check_sweep
from orchestrator.config.sweep import load_sweep
from orchestrator.core.errors import ChecksFailedError
from orchestrator.core.progress import listening
from orchestrator.rundir import SweepDir
from orchestrator.ui.cli import app
from orchestrator.ui.terminal.table import KeyTable, ScreenColumn, cell
from tests.terminal import in_terminal
from tests.warm import FRESH

LONG = ["multi_agent_proximal_policy_optimisation", "independent_q_learning"]
WIDE = {
    "task": ["vmas/navigation"],
    "algorithm": LONG,
    "experiment.on_policy_n_envs_per_worker": [60, 600],
    "experiment.share_policy_params": [True, False],
    "model.activation_class": ["torch.nn.Tanh", "torch.nn.ReLU"],
    "zeta": ["no", "yes"],
    "seed": range(1),
}


def trained(results: Path, matrix: dict[str, object], name: str = "lab") -> SweepDir:
    runs = matrix_runs(matrix)  # type: ignore[arg-type]
    sweep = create_sweep(results, name, runs)
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 3))
    write_journal(sweep)
    return sweep


def orchestrate(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def rows_of(sweep: SweepDir, lines: list[str]) -> list[str]:
    ids = {run_id[:8] for run_id in sweep.run_ids()}
    return [line for line in lines if set(line.split()[:1]) & ids]


def test_many_keys_and_long_names_fit_80_columns_a_line_a_run(tmp_path: Path) -> None:
    sweep = trained(tmp_path / "results", WIDE)
    for command in ("status", "logs"):
        seen = in_terminal(command, "lab", cwd=tmp_path)
        assert seen.code == 0, seen.text
        assert max(map(len, seen.lines)) <= 80
        rows = rows_of(sweep, seen.lines)
        assert len(rows) == 32
        assert all(" done" in row for row in rows)
        assert max(seen.text.count(name) for name in LONG) <= 2  # above its runs, not in each


@pytest.mark.nightly(but=["command0"])
@pytest.mark.parametrize(
    "command", [("collect",), ("compare", "--by", "algorithm"), ("compare", "--by", "zeta")]
)
def test_tables_of_groups_fit_80_columns(command: tuple[str, ...], tmp_path: Path) -> None:
    trained(tmp_path / "results", {**WIDE, "seed": range(2)})
    seen = in_terminal(command[0], "lab", *command[1:], cwd=tmp_path)
    assert seen.code == 0, seen.text
    end = next(at for at, line in enumerate(seen.lines) if line.startswith(("note", "wrote")))
    assert max(map(len, seen.lines[:end])) <= 80
    figures = [line for line in seen.lines[:end] if re.search(r" [\d,]{5} ", line)]
    assert len(figures) == 32


def test_compare_fits_80_columns_where_runs_are_not_done(tmp_path: Path) -> None:
    """States of runs are a note, and the last lines break between words."""
    sweep = trained(tmp_path / "results", {"task": ["a"], "algorithm": ["mappo", "iql"], "seed": range(3)})
    finished = next(sweep.path.rglob("result.json"))
    finished.write_text("{")
    seen = in_terminal("compare", "lab", "--by", "algorithm", cwd=tmp_path)
    assert seen.code == 0, seen.text
    assert max(map(len, seen.lines)) <= 80
    assert re.search(r" 2 of 3 ", seen.text)
    assert "runs are 2 done, 1 unknown" in " ".join(seen.lines)
    at = next(at for at, line in enumerate(seen.lines) if line.startswith("final return: "))
    assert " ".join(seen.lines[at : at + 2]).startswith(
        "final return: the mean of the last 5 evaluations, or of the last third if these"
    )


def test_a_terminal_too_narrow_for_all_figures_names_those_left_out() -> None:
    columns = [ScreenColumn("key", [cell("a"), cell("b")], left=True, key=True)]
    columns += [ScreenColumn(f"figure_{at}", [cell("1,234,567")] * 2, rank=4 - at) for at in range(5)]
    lines = [line.plain for line in KeyTable(columns).lines(40)]
    assert max(map(len, lines)) <= 40
    assert " ".join(lines[:2]) == "no room for: figure_0, figure_1; a wider terminal or a pipe has all"
    assert lines[-1].split() == [
        "b",
        *["1,234,567"] * 3,
    ]  # the figures that matter most, in the table's order
    assert not any("no room" in line.plain for line in KeyTable(columns).lines(80))


def test_a_key_is_a_column_unless_its_values_stand_above_several_rows() -> None:
    many, single = (
        ScreenColumn(name, list(map(cell, values)), left=True, key=True)
        for name, values in (("many", ["alphabet", "alphabet", "beta"]), ("single", ["one", "two", "three"]))
    )
    figures = [ScreenColumn(f"figure_{at}", [cell("1,234,567")] * 3, rank=at) for at in range(3)]
    lines = [line.plain for line in KeyTable([many, single, *figures]).lines(30)]
    assert "many=alphabet" in lines
    assert "single=one" not in lines
    assert lines[-1].split() == ["three", *["1,234,567"] * 2]
    heads = [("task=a",), ("task=a",), ("task=b",)]
    lines = [line.plain for line in KeyTable([single, *figures], heads).lines(30)]
    assert lines[-1].split() == ["three", *["1,234,567"] * 2]


def test_the_return_stays_at_40_columns(tmp_path: Path) -> None:
    trained(
        tmp_path / "results", {"task": ["t/one", "t/two"], "algorithm": ["mappo", "iql"], "seed": range(2)}
    )
    for command in (("status", "lab"), ("compare", "lab", "--by", "algorithm")):
        seen = in_terminal(*command, cwd=tmp_path, columns=40)
        assert max(map(len, seen.lines)) <= 40
        heads = [line for line in seen.lines if re.search(r"\breturn$|\breturn ", line)]
        assert any("state" in line or "speed-up" in line for line in heads), seen.text


def test_a_key_named_like_a_column_can_be_told_apart() -> None:
    columns = [
        ScreenColumn("state", [cell("on"), cell("off")], left=True, key=True),
        ScreenColumn("state", [cell("done"), cell("failed")], left=True),
    ]
    head, *_ = KeyTable(columns).lines(40)
    assert head.plain.split() == ["grid.state", "state"]


def test_json_of_collect_has_numbers(tmp_path: Path) -> None:
    trained(tmp_path / "results", {"task": ["a"], "algorithm": ["mappo", "iql"], "seed": range(2)})
    (found,) = json.loads(
        f"[{orchestrate('collect', 'lab', '--json', '--results', str(tmp_path / 'results')).output}]"
    )
    for group, algorithm in zip(found["groups"], ("mappo", "iql"), strict=True):
        assert group["point"]["algorithm"] == algorithm
        assert (group["n"], group["states"]) == (2, {"done": 2})
        assert isinstance(group["final_return"], float)
        (speed,) = group["speeds"]
        assert all(isinstance(speed[name], float) for name in ("end_to_end_fps", "seconds_per_iteration"))


def test_a_pipe_gets_a_line_a_run_with_every_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    sweep = trained(tmp_path / "results", WIDE)
    said = orchestrate("status", "lab", "--results", str(tmp_path / "results"))
    rows = rows_of(sweep, said.output.splitlines())
    assert len(rows) == 32
    assert all(re.search(r"torch\.nn\.\w+ +(no|yes) +done ", row) for row in rows)
    assert sorted({row.split()[1] for row in rows}) == sorted(LONG)
    assert not any(line.endswith(" ") for line in said.output.splitlines())


def test_keys_have_one_order_everywhere_and_the_seed_is_last(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("")
    grid = tmp_path / "grid.yaml"
    argv = json.dumps([sys.executable, str(tmp_path / "prog.py"), "{zeta}", "{alpha}"])
    grid.write_text(
        f"name: lab\ntrainer: command\nbase: {{command: {argv}}}\n"
        "matrix: {seed: range(2), zeta: [1, 2], alpha: [3, 4]}\n"
    )
    results = ("--results", str(tmp_path / "results"))
    rehearsed = orchestrate("sweep", str(grid), "--dry-run", *results)
    assert rehearsed.exit_code == 0, rehearsed.output
    assert "alpha=3 zeta=2 seed=1" in rehearsed.output
    orchestrate("sweep", str(grid), *results)
    for command in ("status", "logs", "collect"):
        head = next(
            line for line in orchestrate(command, "lab", *results).output.splitlines() if "zeta" in line
        )
        assert re.search(r"alpha +zeta" + (" +seed" if command != "collect" else ""), head), command


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("sweep grid.yaml --deadline 12h", "orchestrate estimate"),
        ("sweep grid.yaml --threshold 3", "orchestrate report"),
        ("status tiny --budget 3", "orchestrate sweep"),
        ("sweep grid.yaml --budgt 3", "Did you mean --budget?"),
    ],
)
def test_an_option_of_another_command_names_it(typed: str, said: str) -> None:
    answer = CliRunner().invoke(app, typed.split(), prog_name="orchestrate")
    assert answer.exit_code == 2
    assert said in " ".join(answer.output.replace("│", " ").split())


def test_a_grid_is_named_by_argument_or_option(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    argv = json.dumps([sys.executable, "-c", "pass"])
    grid.write_text(f"name: lab\ntrainer: command\nbase: {{command: {argv}}}\nmatrix: {{seed: range(2)}}\n")
    results = ("--results", str(tmp_path / "results"))
    for command, more in (("sweep", ["--dry-run"]), ("check", []), ("estimate", [])):
        short = orchestrate(command, str(grid), *more, *results)
        long = orchestrate(command, "--grid", str(grid), *more, *results)
        assert (short.exit_code, long.exit_code) == (0, 0), (command, short.output, long.output)
        assert re.sub(r"[\d.]+ s", "", short.output) == re.sub(r"[\d.]+ s", "", long.output)
        assert "no grid is given" in str(orchestrate(command).exception)
        assert "found" in str(orchestrate(command, str(grid), "--grid", str(grid)).exception)
    assert "after the grid" in str(orchestrate("sweep", str(grid), str(grid)).exception)
    assert "no grid is given" in str(orchestrate("sweep", "--", "--reservation=course").exception)


@pytest.mark.parametrize(
    ("trainer", "base", "wrong"),
    [
        ("benchmarl", "{task: vmas/navigaton, algorithm: mapo}", ("vmas/navigation?", "mappo?")),
        ("ppo", "{task: gymnasium/CartPole-v1, disount: 0.1}", ("discount",)),
    ],
)
def test_estimate_refuses_misspelt_names_without_pytorch(
    trainer: str, base: str, wrong: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is loaded')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    grid = tmp_path / "grid.yaml"
    grid.write_text(f"name: lab\ntrainer: {trainer}\nbase: {base}\nmatrix: {{seed: range(2)}}\n")
    said = orchestrate("estimate", str(grid), "--results", str(tmp_path / "results"))
    assert isinstance(said.exception, ChecksFailedError), said.output
    assert said.exception.exit_code == 2
    for name in wrong:
        assert f"did you mean {name}" in str(said.exception)


def test_estimate_has_a_column_per_key_and_none_without_figures(tmp_path: Path) -> None:
    trained(tmp_path / "results", {"task": ["vmas/navigation"], "algorithm": ["mappo"], "seed": range(2)})
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "name: more\ntrainer: benchmarl\nbase: {task: vmas/navigation, experiment.max_n_frames: 60000}\n"
        "matrix: {algorithm: [mappo], seed: [2, 3, 4]}\n"
    )
    seen = in_terminal("estimate", "grid.yaml", cwd=tmp_path, columns=40)
    assert seen.code == 0, seen.text
    (head,) = (at for at, line in enumerate(seen.lines) if line.startswith("seed "))
    assert [line.split()[0] for line in seen.lines[head + 1 :] if line] == ["2", "3", "4"]
    assert "dollars" not in seen.lines[head]


def test_a_misspelt_sweep_is_answered_with_the_nearest(tmp_path: Path) -> None:
    trained(tmp_path / "results", {"task": ["a"], "algorithm": ["mappo"], "seed": range(1)}, "uneq")
    results = ("--results", str(tmp_path / "results"))
    for command in ("report", "status", "collect"):
        assert getattr(orchestrate(command, "unek", *results).exception, "hint", "") == "did you mean uneq?"
    error = orchestrate("compare", "uneq", "--by", "seed", *results).exception
    assert getattr(error, "hint", "") == "the runs differ in no other key"


def test_null_lists_and_keys_that_are_absent_are_told_apart(tmp_path: Path) -> None:
    runs = [
        run for values in (None, [64, 64], True) for run in matrix_runs({"seed": range(2), "flag": [values]})
    ]
    runs += matrix_runs({"seed": range(2)})
    sweep = create_sweep(tmp_path / "results", "odd", runs)
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 3))
    write_journal(sweep)
    results = ("--results", str(tmp_path / "results"))
    found = json.loads(orchestrate("compare", "odd", "--by", "flag", "--json", *results).output)
    assert found["values"] == [None, [64, 64], True, None]
    said = orchestrate("compare", "odd", "--by", "flag", *results).output
    assert [line.split()[0] for line in said.splitlines()[2:6]] == ["null", "[64,", "true", "unset"]
    collected = json.loads(orchestrate("collect", "odd", "--json", *results).output)
    assert [group["point"].get("flag", "absent") for group in collected["groups"]] == [
        None,
        [64, 64],
        True,
        "absent",
    ]


def test_json_of_logs_lists_the_runs(tmp_path: Path) -> None:
    trained(tmp_path / "results", {"task": ["a"], "algorithm": ["mappo", "iql"], "seed": range(1)})
    results = ("--results", str(tmp_path / "results"), "--json")
    found = json.loads(orchestrate("logs", "lab", *results).output)
    assert found["sweep"] == "lab"
    assert [run["point"]["algorithm"] for run in found["runs"]] == ["mappo", "iql"]
    assert {(run["state"], type(run["attempts"])) for run in found["runs"]} == {("done", int)}
    error = orchestrate("logs", "lab", found["runs"][0]["run_id"], *results).exception
    assert "a log is text" in str(error)


def test_a_failure_names_a_run_and_logs_lists_them(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    argv = json.dumps([sys.executable, "-c", "print('about to fail'); raise SystemExit(3)"])
    grid.write_text(f"name: lab\ntrainer: command\nbase: {{command: {argv}}}\nmatrix: {{seed: range(2)}}\n")
    results = ("--results", str(tmp_path / "results"))
    swept = orchestrate("sweep", "--grid", str(grid), *results).output
    (run_id,) = re.findall(r"next: orchestrate logs lab ([0-9a-f]{8}), then orchestrate retry lab", swept)
    listed = orchestrate("logs", "lab", *results)
    assert listed.exit_code == 0
    assert len(rows_of(SweepDir(tmp_path / "results", "lab"), listed.output.splitlines())) == 2
    assert f"next: orchestrate logs lab {run_id}" in listed.output
    assert "about to fail" in orchestrate("logs", "lab", run_id, *results).output
    unnamed = orchestrate("logs", "lab", "--follow", *results).exception
    assert "no run of lab is named" in str(unnamed)
    assert getattr(unnamed, "hint", "") == f"as in: orchestrate logs lab {run_id}"


def test_a_check_says_what_it_does_and_how_much_is_left(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "name: lab\ntrainer: ppo\nbase: {task: gymnasium/CartPole-v1, envs: 8, batch_size: 128}\n"
        "matrix: {lr: [1e-3, 1e-4], seed: range(2)}\n"
    )
    # An interpreter of its own loads PyTorch, which takes longer than any work that is silent.
    seen = in_terminal("check", "grid.yaml", cwd=tmp_path, python=FRESH)
    assert seen.code == 0, seen.text
    assert "checking configurations with ppo" in seen.drawn
    assert "checking configurations" not in seen.text
    assert "all good: 4 runs in 1 structure" in seen.text.splitlines()[-2]
    steps: list[tuple[str, int, int]] = []
    with listening(lambda *step: steps.append(step)):
        assert not check_sweep(load_sweep(grid)).problems
    told = "checking configurations with ppo"
    assert [step for step in steps if step[0] == told][-2:] == [(told, 0, 2), (told, 1, 2)]


def test_what_is_not_on_a_terminal_has_no_line_of_progress(tmp_path: Path) -> None:
    trained(tmp_path / "results", {"task": ["a"], "algorithm": ["mappo", "iql"], "seed": range(2)})
    said = orchestrate("collect", "lab", "--results", str(tmp_path / "results"))
    assert "reading" not in said.output
    assert "\x1b" not in said.output

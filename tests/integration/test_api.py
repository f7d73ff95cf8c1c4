"""Sweeps launched from Python: in a script, and in a notebook's kernel."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import orchestrator
from orchestrator.api import Launched, launch
from orchestrator.core.errors import NotFoundError, OrchestrateError
from orchestrator.rundir import SweepDir
from tests.helpers import COMMANDS, wait_for
from tests.notebooks import execute, install_kernel, notebook_of, shown

# A program that says which of a kernel's variables it sees, as metrics.
SEES = """
import json, os
seen = [name for name in ("MPLBACKEND", "FORCE_COLOR", "CLICOLOR_FORCE") if name in os.environ]
with open(os.environ["ORCHESTRATE_METRICS"], "a") as file:
    file.write(json.dumps({"frames": 1, "total": 1, "metrics": {"return": float(len(seen))}}) + "\\n")
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start in a folder of few files, which are kept and which each run gets."""
    monkeypatch.chdir(tmp_path)


def write_grid(folder: Path, command: list[Any], seeds: int = 2) -> Path:
    grid = {
        "name": "tiny",
        "trainer": "command",
        "base": {"command": command},
        "matrix": {"seed": list(range(seeds))},
    }
    path = folder / "tiny.yaml"
    path.write_text(json.dumps(grid))
    return path


def counting(folder: Path, pace: str | Path = "0", seeds: int = 2) -> Path:
    return write_grid(
        folder, [sys.executable, str(COMMANDS / "count.py"), str(folder / "audit"), "30", str(pace)], seeds
    )


def states(sweep: Launched) -> list[str]:
    return sweep.status()["state"].to_list()


def test_a_script_launches_follows_and_collects(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = launch(counting(tmp_path), results=results)
    sweep.follow()
    assert states(sweep) == ["done", "done"]
    assert sweep.status()["frames"].to_list() == [3000, 3000]
    assert repr(sweep).startswith("tiny  2/2 done\n")
    printed = capsys.readouterr().out
    assert "tiny  0/2 done  2 queued" in printed
    assert "\x1b" not in printed
    collected = sweep.collect()
    assert collected.runs["state"].to_list() == ["done", "done"]
    assert SweepDir(results, "tiny").table_parquet.is_file()
    (picture,) = sweep.plot("learning")
    assert picture.light.startswith(b"\x89PNG")

    opened = orchestrator.open("tiny", results=results)
    assert opened.runs.equals(collected.runs)
    assert opened.metrics.equals(collected.metrics)
    assert opened.status()["state"].to_list() == ["done", "done"]
    assert repr(opened).startswith("tiny  2/2 done\n")
    (figure,) = opened.figures("learning")
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "learning.png")
    with pytest.raises(NotFoundError, match="no sweep named 'tinny'") as unknown:
        orchestrator.open("tinny", results=results)
    assert unknown.value.hint == "did you mean tiny?"

    again = launch(tmp_path / "tiny.yaml", results=results)
    assert again.notes == ("nothing new to submit",)
    again.follow()
    assert collected.runs.equals(again.collect().runs)

    other = launch(tmp_path / "tiny.yaml", results=results, set={"name": "other", "seed": [5, 7]})
    other.follow()
    assert repr(other).startswith("other  2/2 done\n")
    assert other.collect().runs["seed"].to_list() == [5, 7]


def test_stop_leaves_the_rest_for_the_next_launch(tmp_path: Path, results: Path) -> None:
    pace = tmp_path / "pace"
    pace.write_text("0.01 5")
    sweep = launch(counting(tmp_path, pace, seeds=1), results=results)
    wait_for(lambda: sweep.status()["frames"][0], what="a step")
    assert sweep.stop()
    assert states(sweep) == ["interrupted"]
    pace.write_text("0")
    sweep = launch(tmp_path / "tiny.yaml", results=results)
    sweep.follow()
    assert sweep.status().select("state", "attempt").rows() == [("done", 2)]


def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path: Path, results: Path) -> None:
    grid = write_grid(tmp_path, ["no-such-program", "{sed}"])
    with pytest.raises(OrchestrateError, match="sed"):
        launch(grid, results=results)
    assert not results.exists()


def test_plots_say_what_there_is(tmp_path: Path, results: Path) -> None:
    pace = tmp_path / "pace"
    pace.write_text("60")
    sweep = launch(counting(tmp_path, pace, seeds=1), results=results)
    with pytest.raises(OrchestrateError, match="found the plot 'returns'") as refused:
        sweep.plot("returns")
    assert refused.value.hint == "there are: learning, losses, final, speed"
    with pytest.raises(NotFoundError, match="no run of tiny has anything to plot as 'speed' yet"):
        sweep.plot("speed")
    sweep.stop()


def test_a_kernel_keeps_to_itself(tmp_path: Path) -> None:
    """What it sets for itself reaches no job, and is there again afterwards; a mistake ends in two lines."""
    install_kernel()
    write_grid(tmp_path, [sys.executable, "-c", SEES], seeds=1)
    notebook = notebook_of(
        "import os; from orchestrator.api import launch",
        "sweep = launch('tiny.yaml'); sweep.follow()",
        "print(os.environ['MPLBACKEND'], os.environ['FORCE_COLOR'])",
        "sweep.status()['return'].to_list()",
        "sweep.plot('speeds')",
    )
    execute(notebook, tmp_path, stop_at_errors=False)
    _, following, environment, returns, plot = notebook.cells
    (place,) = shown(following)
    assert place.startswith("tiny  1/1 done\n")
    assert environment.outputs[0]["text"].split() == ["module://matplotlib_inline.backend_inline", "1"]
    assert shown(returns) == ["[0.0]"]
    assert plot.outputs[0]["traceback"] == [
        "OrchestrateError: found the plot 'speeds'",
        "  there are: learning, losses, final, speed",
    ]
    assert "MPLBACKEND" not in os.environ

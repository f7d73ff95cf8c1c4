"""What a later version wrote ends with an error that names the version to use."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.worker.assignment import Decisions
from orchestrator import __version__
from orchestrator.config.code.snapshot import received
from orchestrator.core.errors import FormatError
from orchestrator.core.formats import FORMAT, stamp
from orchestrator.rundir import CodeDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.ui.cli import app
from orchestrator.ui.monitor.tree import WatchedTree
from tests.helpers import command_run, enter, make_sweep, submit

LATER = {"format": 99, "version": "9.9"}
FOUND = f": found format 99, version {__version__} of this program reads {FORMAT}"
HINT = "use version 9.9 of this program or newer; `orchestrate --version` prints the version in use"


@pytest.mark.parametrize("command", [["status", "tiny"], ["collect", "tiny"], ["cancel", "tiny"]])
def test_a_results_tree_of_a_later_version(results: Path, command: list[str]) -> None:
    sweep = make_sweep(results, [command_run(["true"])])
    submit(sweep)
    written = sweep.path / "ledger" / "0001.json"
    assert stamp().items() <= json.loads(written.read_text()).items()
    enter(sweep, "cancel", {**LATER, "runs": {}})
    answer = CliRunner().invoke(app, [*command, "--results", str(results)])
    assert isinstance(answer.exception, FormatError), answer.output
    assert str(answer.exception) == f"{written.with_name('0002.json')}{FOUND}"
    assert answer.exception.hint == HINT


def test_a_worker_and_the_monitor_go_on_without_a_later_entry(results: Path) -> None:
    sweep = make_sweep(results, [command_run(["true"])])
    submit(sweep)
    enter(sweep, "cancel", {**LATER, "runs": {}})
    decisions = Decisions(sweep, 1)
    decisions.refresh()
    assert decisions.last == 2
    (seen,), _ = WatchedTree(results).look(time.time(), 9)
    assert "found format" in str(seen.notes)


def test_an_entry_of_an_earlier_version_names_that_version(results: Path) -> None:
    sweep = make_sweep(results, [])
    enter(sweep, "retry", {"format": 1, "version": "0.1", "runs": {}})
    with pytest.raises(FormatError, match="found format 1") as error:
        sweep.read_ledger()
    assert str(error.value.hint).startswith("use version 0.1 of this program;")


def test_code_that_a_later_version_kept(results: Path) -> None:
    code = CodeDir.of(make_sweep(results, []), "0" * 16)
    code.path.mkdir(parents=True)
    code.facts_path.write_text(json.dumps({**LATER, "project": None, "files": []}))
    with pytest.raises(FormatError) as error:
        received(code, SentCode("0" * 16, (), None), results)
    assert (str(error.value), error.value.hint) == (f"{code.facts_path}{FOUND}", HINT)


def test_a_decision_of_a_later_version(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sweep", "--delegated", "--json"]
    answer = subprocess.run(argv, input=json.dumps(LATER), cwd=tmp_path, capture_output=True, text=True)
    assert answer.returncode == 2
    error, hint = answer.stderr.splitlines()
    assert error == f"error: the decision on stdin{FOUND}"
    assert "`orchestrate sweep` with the grid sends its own code" in hint

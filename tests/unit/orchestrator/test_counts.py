"""What commands do per run: the counts behind the goals of ``python -m benchmarks.run``, on any machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.synthetic import finished_sweep, write_journal

# Runs a command in this process and counts, as Python itself announces them to hooks.
COUNT = """
import collections, json, os, sys
counts, tree = collections.Counter(), sys.argv[1]
def hook(event, args):
    if event == "subprocess.Popen":
        counts["processes"] += 1
    place = args[0] if event in ("open", "os.listdir", "os.scandir") else None
    if isinstance(place, (str, os.PathLike)) and os.path.abspath(place).startswith(tree):
        if event != "open":
            counts["listed"] += 1
        elif args[1] is not None:  # an open file; its descriptor is announced as well, without a mode
            counts["opened"] += 1
sys.addaudithook(hook)
from orchestrator.ui.cli import main
into, sys.argv = sys.argv[2], ["orchestrate", *sys.argv[3:]]
try:
    main()
finally:
    with open(into, "w") as file:
        json.dump(counts, file)
"""


class Counts(NamedTuple):
    """Files opened and folders listed in the results tree, and processes started."""

    opened: int
    listed: int
    processes: int


def counts(folder: Path, *command: str) -> Counts:
    into = folder / "counts.json"
    argv = [sys.executable, "-c", COUNT, str(folder / "results"), str(into), *command]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    found = json.loads(into.read_text())
    return Counts(*(found.get(name, 0) for name in Counts._fields))


def tree(folder: Path, runs: int) -> Path:
    """A finished sweep of a program, and its grid."""
    folder.mkdir()
    matrix = {"task": ["vmas/balance"], "algorithm": ["mappo", "iql"], "seed": list(range(runs // 2))}
    write_journal(finished_sweep(folder / "results", "done", matrix, iterations=2))
    for name, task in (("done", "vmas/balance"), ("new", "vmas/wheel")):
        (folder / f"{name}.yaml").write_text(
            f"name: {name}\ntrainer: benchmarl\nbase: {{task: {task}}}\n"
            f"matrix: {{algorithm: [mappo, iql], seed: range({runs // 2})}}\n"
        )
    return folder


@pytest.mark.parametrize(
    ("command", "opened", "listed"),
    [
        ("sweep new.yaml --dry-run", 0, 0),  # nothing is there
        ("status done", 0, 0),  # trusts the journals
        ("sweep done.yaml", 1, 0),  # verifies each result
        ("collect done", 2, 0),  # reads each result and its metrics
    ],
)
def test_what_a_command_opens_for_each_run(tmp_path: Path, command: str, opened: int, listed: int) -> None:
    """The difference between 40 and 120 runs, by run. The rest does not depend on their number."""
    few, many = tree(tmp_path / "few", 40), tree(tmp_path / "many", 120)
    for folder in (few, many):
        counts(folder, *command.split())  # what is written once, such as the grid
    less, more = (counts(folder, *command.split()) for folder in (few, many))
    assert (more.opened - less.opened, more.listed - less.listed) == (80 * opened, 80 * listed)
    assert more.processes == less.processes <= 4

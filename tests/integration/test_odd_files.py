"""A FIFO, a device or anything else that is no plain file, in place of each file of a results tree.

Every command answers within its time: with what the other files say, or with an error that names this one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import (
    EPOCH,
    create_sweep,
    finish,
    matrix_runs,
    training_rows,
    write_attempt,
    write_journal,
)
from orchestrator.config.sweep import load_sweep
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.records import plain
from orchestrator.core.types import Run
from orchestrator.rundir import Evaluation, Event, Holder, SweepDir, Uploaded
from orchestrator.rundir.attempts.absent_files import mark_absent
from orchestrator.rundir.copies.handover import Handover, WorkerEnd
from orchestrator.rundir.records.journal import STARTED
from orchestrator.rundir.records.ledger_entries import submissions
from orchestrator.ui.cli import app
from orchestrator.ui.monitor.tree import WatchedTree
from tests.helpers import ROOT, enter

LIMIT_S = 120
COMMANDS = (
    ("status",),
    ("status", "odd", "--json"),
    ("sweep", "--grid", "odd.yaml", "--dry-run"),
    ("logs", "odd", "seed=2"),
    ("collect", "odd", "--verify"),
    ("report", "odd"),
    ("estimate", "odd.yaml"),
    ("cancel", "odd"),
    ("sync", "results", "there"),
)


class HungError(BaseException):
    """No ordinary exception, which a command would take for its own."""


@contextmanager
def limit() -> Iterator[None]:
    def hung(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def left_socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)  # the names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 42)


ODD: tuple[Callable[[Path], None], ...] = (fifo, endless_device, left_socket, dangling, huge, Path.mkdir)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("odd"))


def make_tree(folder: Path) -> Path:
    """A tree with every kind of file: two finished runs, one that was killed, one that has not begun."""
    matrix = {"task": ["vmas/navigation"], "algorithm": ["mappo"], "seed": [0, 1, 2, 3]}
    keys = "".join(f"  {key}: {values}\n" for key, values in matrix.items())
    (folder / "odd.yaml").write_text(f"name: odd\ntrainer: benchmarl\nmatrix:\n{keys}")
    runs = matrix_runs(matrix)
    sweep = create_sweep(folder / "results", "odd", runs, (folder / "odd.yaml").read_text())
    for run in runs[:2]:
        finish(sweep.run(run.run_id), run, training_rows(run, 3))
    write_journal(sweep)
    fill(sweep, runs)
    os.chdir(folder)
    assert CliRunner().invoke(app, ["collect", "odd"]).exit_code == 0
    return folder


def fill(sweep: SweepDir, runs: list[Run]) -> None:
    killed = sweep.run(runs[2].run_id)
    attempt = killed.attempt(1)
    write_attempt(attempt, training_rows(runs[2], 2))
    attempt.log.write_text("begun\n")
    attempt.checkpoints.mkdir()
    attempt.checkpoint_name(6_000, "0" * 16).write_bytes(b"0")
    (attempt.path / "events.out.tfevents.1").write_bytes(b"0")
    mark_absent(killed.path, "elsewhere", ["nothing"])
    gone = sweep.read_journals()[0]
    sweep.compact_journals([replace(gone, token="0000-0001")])
    holder = plain(Holder("node1", "another boot", "", 1, 0))
    assert sweep.take_token("0002-0001", Event(STARTED, EPOCH, data={"holder": holder})) is not None
    sweep.worker_output("0002-0001").write_text("said\n")
    enter(sweep, "cancel", {"time": EPOCH, "runs": {runs[3].run_id: 0}})
    Handover(sweep, "0002-0001").mark_ended(WorkerEnd(EPOCH, 0))
    with sweep.uploads.writing():
        pass
    sweep.uploads.add(Uploaded(runs[0].run_id, "0", "there", "https://example.org", EPOCH))
    told = (True, 0, True, (1.0,), (1,), EPOCH)
    sweep.evaluations.add(Evaluation(runs[0].run_id, 18_000, False, "0", "vmas/navigation", 1, *told[1:]))
    with sweep.lock():
        pass


def files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in (folder / "results").rglob("*") if path.is_file())


@pytest.mark.nightly
def test_every_command_answers(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = files(tree)
    assert len(names) > 20
    others = [make for make in ODD if make is not fifo]
    for number, name in enumerate(names):  # a third of the commands for each file, another third for the next
        for make in (fifo, others[number % len(others)]):
            copy = tmp_path / make.__name__
            shutil.copytree(tree, copy)
            (copy / name).unlink()
            make(copy / name)
            monkeypatch.chdir(copy)
            for command in COMMANDS[number % 3 :: 3] if make is fifo else COMMANDS[:1]:
                require_answer(command, f"{make.__name__} for {name}")
            with limit():
                WatchedTree(copy / "results").look(time.time(), 10)
            shutil.rmtree(copy)


@pytest.mark.parametrize("name", ["ledger/0002.json", "result.json"])
def test_what_is_passed_over_is_named(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shutil.copytree(tree, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    (path,) = [
        path for path in files(Path()) if path.match(f"odd/{name}") or path.match(f"odd/runs/*/{name}")
    ][:1]
    path.unlink()
    path.mkdir()
    of_ledger = name.startswith("ledger")
    said = f"ledger entry {path}: is a folder" if of_ledger else f"{path}: is a folder"
    commands = (("collect", "odd"), ("report", "odd"))
    further = (
        ("status",),
        ("status", "odd"),
        ("status", "odd", "--json"),
        ("sweep", "--grid", "odd.yaml", "--dry-run"),
    )
    for command in (*commands, *(further if of_ledger else ())):
        answer = CliRunner().invoke(app, list(command))
        assert (answer.exit_code, said in answer.output) == (0, True), (command, answer.output)


# Of a sweep, and each of another run.
PLACES = (
    "index.tsv",
    "grids/0001.yaml",
    "ledger/0001.json",
    "ledger/0007.json",
    "journals/0001-0001.jsonl",
    "journals/0001-0001.log",
    "journals/compacted.jsonl",
    "descriptions/0001.tsv",
)
PLACES_OF_RUNS = (
    "",
    "run.json",
    "result.json",
    "retired-1.json",
    "attempts/1/claim",
    "attempts/1/end.json",
    "attempts/1/log.txt",
    "attempts/1/metrics.jsonl",
    "attempts/1/scratch",
)


@pytest.mark.parametrize("names", [*((name,) for name in PLACES), PLACES_OF_RUNS], ids=lambda names: names[0])
def test_a_sweep_ends_beside_a_fifo(tmp_path: Path, names: tuple[str, ...]) -> None:
    """The one run that a FIFO concerns may fail. The command and its worker do not wait for a writer."""
    program = "echo '{\"frames\": 1}' >> $ORCHESTRATE_METRICS"
    grid = tmp_path / "grid.yaml"
    base = f"base: {{command: [sh, -c, {json.dumps(program)}]}}"
    seeds = f"matrix: {{seed: {list(range(len(names) + 1))}}}"
    grid.write_text(f"name: odd\ntrainer: command\n{base}\n{seeds}\n")
    command = [sys.executable, "-m", "orchestrator.ui.cli", "sweep", "--grid", "grid.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ORCHESTRATE_LEASE": "4"}
    sweep_dir = SweepDir(tmp_path / "results", "odd")
    sweep_dir.create()
    runs = [sweep_dir.run(run.run_id) for run in load_sweep(grid).runs]
    above = [run.path for run in runs] if names is PLACES_OF_RUNS else [sweep_dir.path]
    for folder, name in zip(above, names, strict=False):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder / name)
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=600, **options)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2, 3), done.stderr
    for folder, name, run in zip(above, names, runs, strict=False):
        said = done.stdout + done.stderr
        ended = done.returncode == 0 or (name in PLACES_OF_RUNS and run.result_path.is_file())
        assert ended or (folder / name).name in said, said
    if names is PLACES_OF_RUNS:
        assert runs[-1].result_path.is_file()


def test_a_run_that_cannot_begin_again_is_failed_after_a_retry_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each command; it is not submitted again and again."""
    (tmp_path / "odd.yaml").write_text("name: odd\ntrainer: command\nbase: {command: [sh, -c, 'exit 1']}\n")
    monkeypatch.chdir(tmp_path)
    run = SweepDir(tmp_path / "results", "odd").run(load_sweep(tmp_path / "odd.yaml").runs[0].run_id)
    run.attempt(1).path.parent.mkdir(parents=True)
    run.attempt(1).path.touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 600}
    for command in (["sweep", "--grid", "odd.yaml"], ["retry", "odd"], ["sweep", "--grid", "odd.yaml"]):
        argv = [sys.executable, "-m", "orchestrator.ui.cli", *command]
        done = subprocess.run(argv, env=environment, **options)
        assert command[0] == "retry" or (done.returncode, "1 failed" in done.stdout) == (1, True), done
    assert len(submissions(SweepDir(tmp_path / "results", "odd").read_ledger())) == 2


def require_answer(command: tuple[str, ...], what: str) -> None:
    began = time.monotonic()
    try:
        with limit():
            answer = CliRunner().invoke(app, list(command))
    except HungError as error:
        raise AssertionError(f"{command} hangs on a {what}") from error
    known = (OrchestrateError, SystemExit, OSError, type(None))
    assert isinstance(answer.exception, known), f"{command}, {what}: {answer.exception!r}"
    assert time.monotonic() - began < LIMIT_S

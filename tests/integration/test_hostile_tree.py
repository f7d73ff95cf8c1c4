"""Commands that look at somebody's tree start no program that it, or a folder it names, brings along."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import create_sweep, finish, training_rows, write_attempt, write_journal
from orchestrator.config.code.snapshot import freeze
from orchestrator.config.program import identity
from orchestrator.control import fleet
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import PluginSource, RunState
from orchestrator.rundir import SweepDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import (
    AssignedEntry,
    FoundEntry,
    FoundResult,
    SubmissionEntry,
    TreePlace,
)
from orchestrator.ui.cli import app
from orchestrator.ui.top.fleet_access import FleetTree
from tests.helpers import command_run

HOOKS = ("fsmonitor-watchman", "post-index-change", "pre-commit", "post-checkout", "reference-transaction")


def git(folder: Path, *arguments: str) -> None:
    argv = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    subprocess.run(argv, capture_output=True, check=True)


def trap(folder: Path, marks: Path, name: str) -> Path:
    """Return a program that leaves a mark where it ran."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {marks}/{name}\ncat\n")
    path.chmod(0o755)
    return path


def lay_traps(root: Path, marks: Path) -> None:
    """Name programs in every setting by which git starts some, and hooks beside."""
    bad = root / ".git" / "bad"
    settings = "".join(
        f"[{section}]\n\t{key} = {trap(bad, marks, key + section[:4].strip())}\n"
        for section, key in (
            ("core", "fsmonitor"),
            ("core", "pager"),
            ("core", "sshCommand"),
            ("core", "askPass"),
            ("diff", "external"),
            ('diff "x"', "textconv"),
            ('filter "x"', "clean"),
            ('filter "x"', "smudge"),
            ('filter "y"', "process"),
        )
    )
    promisor = f"ext::{trap(bad, marks, 'promisor')}"
    settings += f'[remote "o"]\n\turl = {promisor}\n\tpromisor = true\n[protocol]\n\tallow = always\n'
    settings += f"[extensions]\n\tpartialClone = o\n[alias]\n\tls-files = !{trap(bad, marks, 'alias')}\n"
    for name in HOOKS:
        trap(bad, marks, name)
    (root / ".git" / "more").write_text(f"[core]\n\thooksPath = {bad}\n")
    with open(root / ".git" / "config", "a") as file:
        file.write(settings + "[include]\n\tpath = more\n")


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def tree(tmp_path: Path, marks: Path, monkeypatch: pytest.MonkeyPatch) -> SweepDir:
    """A tree with a finished run, whose ledger names a folder full of traps."""
    evil = tmp_path / "evil"
    for root in (evil / "inner", evil):
        root.mkdir(parents=True, exist_ok=True)
        (root / ".gitattributes").write_text("*.py filter=x diff=x\n*.yaml filter=y\n")
        for name in ("train.py", "net.py", "conf.yaml"):
            (root / name).write_text("one\n")
        git(root, "init", "--quiet")
        git(root, "add", "train.py", "conf.yaml", ".gitattributes")
        git(root, "commit", "--quiet", "--message=m")
    run, *_ = runs = [command_run(["train.py"], seed) for seed in range(6)]
    sweep = create_sweep(tmp_path / "theirs", "hostile", runs)
    finish(sweep.run(run.run_id), run, training_rows(run, 3), code_id="0ther")
    write_journal(sweep)
    for path in sweep.path.glob("journals/*"):
        path.unlink()
    sweep.add_to_ledger(FoundEntry(runs={run.run_id: FoundResult(1, code_id="0ther")}))
    code = freeze(sweep, evil)
    entry = sweep.read_ledger()[0]
    assert isinstance(entry, SubmissionEntry)
    plugin = PluginSource("theirs", str(evil / "plugin"))
    jobs = tuple(replace(job, plugins=(plugin,)) for job in entry.jobs)
    sweep.amend_ledger(replace(entry, code=code, jobs=jobs))
    (evil / "plugin").mkdir()
    for name in ("plugin/__init__.py", "sitecustomize.py", "conftest.py", "jobs.py", "train.py"):
        (evil / name).write_text(f"open({str(marks / 'imported')!r}, 'w')\n")
    for root in (evil, evil / "inner"):
        (root / "train.py").write_text("two\n")  # as long as before: git has to read it
        lay_traps(root, marks)
    for name in ("git", "ssh", "python", "rsync"):
        trap(evil, marks, name)
    monkeypatch.chdir(evil)
    (tmp_path / "grid.yaml").write_text(
        "name: hostile\ntrainer: command\nbase: {command: [python, train.py]}\nmatrix: {seed: [0, 1]}\n"
    )
    copied = sweep.path / "code" / code.id / "tree"
    for folder in (copied, *(path for path in sweep.path.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    for name in ("sitecustomize.py", "usercustomize.py", "orchestrator/__init__.py", "jobs/__init__.py"):
        (copied / name).parent.mkdir(exist_ok=True)
        (copied / name).write_text(f"open({str(marks / 'imported')!r}, 'w')\n")
    trap(copied / ".venv" / "bin", marks, "python")
    attempt = sweep.run(runs[1].run_id).attempt(1)
    write_attempt(attempt, training_rows(runs[1], 2))
    attempt.checkpoints.mkdir()
    attempt.checkpoint_name(6_000, "0" * 16).write_bytes(pickle.dumps(Touch(marks / "pickle")))
    attempt.log.symlink_to("/dev/zero")
    os.truncate(attempt.metrics, 1 << 26)
    os.mkfifo(attempt.path / "end.json")
    (attempt.path / "outside").symlink_to("/")
    return sweep


class Touch:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.mark), "w")


def name_hostile_places(tree: SweepDir, marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a run to places behind ssh that have shell text, and options of ssh, in their names."""
    stub = trap(marks.parent / "bin", marks, "ssh")
    # As a server does, a shell gets the words after the host's name.
    stub.write_text(
        '#!/bin/sh\nfor last; do :; done\ncase "$*" in *" -O "*|*-fN*) exit 0;; esac\nsh -c "$last"\n'
    )
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    profile = marks.parent / "there.yaml"
    profile.write_text(f"ssh: there\nfolder: /there\npython: {sys.executable}\n")
    shell = f"/$(touch {marks}/shell)`touch {marks}/ticks`;touch {marks}/next;'"
    places = (
        (f"-oProxyCommand=touch {marks}/proxy", "/x"),
        (f"me@-oProxyCommand=touch {marks}/two", "/x"),
        (f"there;touch {marks}/host", "/x"),
        ("there", shell),
    )
    for row, (host, folder) in zip(tree.read_index()[2:], places, strict=True):
        place = TreePlace(row.run_id, str(profile), host, folder)
        code, runs = SentCode("0" * 16, (), None), frozenset([row.run_id])
        tree.add_to_ledger(AssignedEntry(place=place, code=code, run_ids=runs, home="theirs", accepted=True))


def no_marks(marks: Path) -> bool:
    identity._known.clear()  # so that the next command reads the folder anew
    return not list(marks.iterdir())


def test_the_traps_work(tree: SweepDir, marks: Path) -> None:
    subprocess.run(["git", "status"], capture_output=True, check=False)
    assert not no_marks(marks)


LOOKS = (
    ("status",),
    ("status", "hostile"),
    ("status", "hostile", "--json"),
    ("logs", "hostile"),
    ("logs", "hostile", "seed=1"),
    ("logs", "hostile", "seed=5"),
    ("collect", "hostile", "--verify"),
    ("report", "hostile"),
    ("compare", "hostile", "--by", "command"),
    ("evaluate", "hostile"),
    ("clean", "hostile"),
    ("estimate", "grid.yaml"),
    ("sweep", "--grid", "grid.yaml", "--dry-run"),
    ("monitor", "--once", "--json", "--no-tensorboard"),
    ("doctor",),
)


@pytest.mark.parametrize(
    ("command", "mine"),
    [(command, mine) for command in LOOKS for mine in (True, False) if mine or command[0] != "report"],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "mine" if value else "theirs",
)
def test_a_look_starts_no_program_of_the_tree(
    tree: SweepDir, marks: Path, command: tuple[str, ...], mine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command[0] in ("sweep", "estimate"):  # they take the code of the current folder for one's own
        monkeypatch.chdir(marks.parent)
    name_hostile_places(tree, marks, monkeypatch)
    if not mine:
        for path in [tree.path, *tree.path.rglob("*")]:
            own_by_other(monkeypatch, path)
    answer = CliRunner().invoke(app, [*command, "--results", str(tree.results)])
    assert isinstance(answer.exception, SystemExit | OrchestrateError | None), answer.exception
    assert no_marks(marks), answer.output


def test_the_screen_and_a_copy_start_no_program_either(tree: SweepDir, marks: Path, tmp_path: Path) -> None:
    seen = FleetTree(tree.results).present(tree)
    assert no_marks(marks)
    # The folder was read: `train.py` there differs from the copy.
    assert RunState.STALE in {one.state for one in seen.statuses.values()}
    answer = CliRunner().invoke(app, ["sync", str(tree.results), str(tmp_path / "mine")])
    assert answer.exit_code == 0, answer.output
    CliRunner().invoke(app, ["status", "hostile", "--results", str(tmp_path / "mine")])
    assert no_marks(marks)


def test_git_refuses_a_folder_of_another_user(tree: SweepDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    seen = fleet.present(tree)
    assert "safe.directory" in " ".join(seen.notes)


@pytest.mark.parametrize("mine", [True, False])
def test_only_the_own_ledger_names_machines_to_log_in_to(
    tree: SweepDir, mine: bool, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{trap(tmp_path / 'bin', marks, 'ssh').parent}:{os.environ['PATH']}")
    (tmp_path / "there.yaml").write_text("ssh: there\nfolder: /there\n")
    place = TreePlace("there", str(tmp_path / "there.yaml"), "there", "/there")
    run = tree.read_index()[1].run_id
    code, runs = SentCode("0" * 16, (), None), frozenset([run])
    tree.add_to_ledger(AssignedEntry(place=place, code=code, run_ids=runs, home="theirs", accepted=True))
    if not mine:
        for path in [tree.path, *tree.path.glob("ledger/*")]:
            own_by_other(monkeypatch, path)
    seen = fleet.present(tree)
    assert bool(list(marks.iterdir())) is mine
    assert ("another user" in (seen.statuses[run].message or "")) is not mine


def test_a_lock_that_is_a_link_empties_no_file(tree: SweepDir, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tree.path / ".lock").symlink_to(tmp_path / "mine.txt")
    CliRunner().invoke(app, ["collect", "hostile", "--results", str(tree.results)])
    with tree.lock():
        assert (tmp_path / "mine.txt").read_text() == "mine"


def own_by_other(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Give a file to another user, where this user may; otherwise become one."""
    give: Callable[..., None] = os.chown
    if os.geteuid() == 0:
        give(path, 12345, 12345, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)

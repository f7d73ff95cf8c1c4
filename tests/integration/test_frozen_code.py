"""Workers that run the code of their submission, whatever became of the checkout since."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.backends.local import LocalBackend
from orchestrator.config.code.identity import code_id
from orchestrator.config.code.snapshot import freeze
from orchestrator.config.sweep import load_sweep
from orchestrator.config.trainers import get_trainer, trainer_names
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.config.trainers.command import COMMAND
from orchestrator.control.last_submission import submitted_code
from orchestrator.control.submit import inspect_sweep, plan_sweep, submit_checked
from orchestrator.core.records import parse
from orchestrator.core.types import RunState
from orchestrator.rundir import FrozenCode, SweepDir
from orchestrator.rundir.frozen_code import SentCode
from tests.helpers import COMMANDS, ROOT, finish, kill, make_sweep, published, submit, wait_for

OURS = ("orchestrator", "jobs", "templates")
IDS = """
import json
from orchestrator.config.code.identity import code_id
from orchestrator.config.trainers import get_trainer, trainer_names
print(json.dumps({name: code_id(get_trainer(name)) for name in trainer_names()}))
"""
FREEZE = """
import json, sys
from pathlib import Path
from orchestrator.config.code.snapshot import freeze
from orchestrator.core.records import plain
from orchestrator.rundir import SweepDir
code = freeze(SweepDir(Path(sys.argv[1]), "kept"), Path.cwd())
print(json.dumps(plain(code)))
"""
TELL = """
import json, jobs.worker.worker, orchestrator.ui.cli, mine
from jobs.training.records import provenance
from orchestrator.core.machine.package_files import template
from orchestrator.config.code.identity import code_id
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.types import RunState
files = [jobs.worker.worker.__file__, orchestrator.ui.cli.__file__, mine.__file__, str(template("profiles"))]
print(json.dumps([files, [code_id(BENCHMARL), code_id(COMMAND)], provenance.commit()]))
"""


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def python(code: str, *arguments: str, cwd: Path, path: str) -> str:
    """What a process like a worker's prints; the environment's installation of this project is editable."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def joined(code: FrozenCode) -> str:
    return os.pathsep.join(map(str, code.python_path))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of this project's packages and a module of the user's."""
    root = tmp_path / "checkout"
    for name in OURS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignore)
    shutil.copy(ROOT / "constraints.txt", root)
    (root / "mine.py").write_text("")
    git(tmp_path, "init", "--quiet", str(root))
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=m")
    return root


def test_a_checkout_that_was_broken_meanwhile_is_not_what_runs(checkout: Path, tmp_path: Path) -> None:
    (checkout / "mine.py").write_text("VALUE = 1\n")
    commit = git(checkout, "rev-parse", "HEAD")
    path = str(checkout)
    code = parse(FrozenCode, json.loads(python(FREEZE, str(tmp_path / "results"), cwd=checkout, path=path)))
    assert code.python_path == (code.path / "tree",)  # and no second copy of our packages
    shutil.rmtree(checkout / "jobs")
    (checkout / "orchestrator" / "core" / "errors.py").write_text("broken(")
    (checkout / "mine.py").write_text("broken(")
    files, ids, told = json.loads(python(TELL, cwd=code.cwd, path=joined(code)))
    assert [file for file in files if not Path(file).is_relative_to(code.path / "tree")] == []
    assert ids == [code_id(BENCHMARL), code_id(COMMAND)]
    assert told == f"{commit}+changes-{code.id}"


def test_code_that_was_kept_can_be_kept_again(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    first = freeze(SweepDir(tmp_path / "results", "kept"), project)
    told = python(FREEZE, str(tmp_path / "others"), cwd=project, path=joined(first))
    second = parse(FrozenCode, json.loads(told))
    assert second.id == first.id
    assert "jobs/worker/worker.py" in zipfile.ZipFile(second.python_path[0]).namelist()
    ids = {name: code_id(get_trainer(name)) for name in trainer_names()}
    assert json.loads(python(IDS, cwd=project, path=joined(second))) == ids


PROGRAM = f"""#!{sys.executable}
import json, os, jobs
value = float(open("settings").read()) + float(open("data/set").read()) + jobs.VALUE
with open(os.environ["ORCHESTRATE_METRICS"], "a") as metrics:
    metrics.write(json.dumps({{"frames": 1, "metrics": {{"return": value}}}}) + "\\n")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's repository: a program, its settings, data that git ignores, and a module named like ours."""
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (root / "src").mkdir()
    (root / "train.py").write_text(PROGRAM)
    (root / "train.py").chmod(0o755)
    (root / "settings").write_text("1")
    (root / "data" / "set").write_text("10")
    (root / "src" / "jobs.py").write_text("VALUE = 100\n")
    (root / ".gitignore").write_text("data/\n")
    git(tmp_path, "init", "--quiet", str(root))
    return root


def test_a_program_runs_as_it_was_submitted(
    project: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make_sweep(results, [COMMAND.identify({"command": ["./train.py"]}, seed=0, threads=1)])
    monkeypatch.setenv("PYTHONPATH", str(project / "src"))
    monkeypatch.syspath_prepend(str(project / "src"))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    code = freeze(sweep, project)
    for name in ("train.py", "settings", "src/jobs.py"):
        (project / name).write_text("broken(")
    job = submit(sweep)
    with open(sweep.worker_output(job.token), "wb") as output:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "jobs.worker", str(results), sweep.name, job.token],
            cwd=code.cwd,
            env={**os.environ, "PYTHONPATH": joined(code)},
            stdout=output,
            stderr=output,
        )
    assert finish(worker) == 0, sweep.worker_output(job.token).read_text()
    (run_id,) = sweep.run_ids()
    result = sweep.run(run_id).result()
    assert result is not None
    assert (result.fields["state"], result.final_return) == (RunState.DONE.value, 111.0)


WAITING_PROGRAM = f"""#!{sys.executable}
import json, os, pathlib, time
outside = pathlib.Path(os.environ["ORCHESTRATE_SUBMIT_DIR"])
with open(outside / "started", "a") as file:
    file.write(os.environ["ORCHESTRATE_SEED"])
deadline = time.monotonic() + 60
while not (outside / "go").exists():
    time.sleep(0.01)
    assert time.monotonic() < deadline
value = float(open("settings").read())
with open(os.environ["ORCHESTRATE_METRICS"], "a") as metrics:
    metrics.write(json.dumps({{"frames": 1, "metrics": {{"return": value}}}}) + "\\n")
"""
GRID = """
name: kept
trainer: command
base: {command: [./train.py]}
matrix: {seed: range(3)}
"""


def test_edits_reach_neither_queued_runs_nor_replaced_workers(project: Path, results: Path) -> None:
    (project / "train.py").write_text(WAITING_PROGRAM)
    (project / "grid.yaml").write_text(GRID)
    (project / ".gitignore").write_text("started\ngo\n")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message=m")
    arguments = ["sweep", "--grid", "grid.yaml", "--slots", "1", "--results", str(results)]
    command_line = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.ui.cli", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for((project / "started").exists)
        sweep = SweepDir(results, "kept")
        (project / "settings").write_text("2")
        (project / "train.py").write_text("broken(")
        (log,) = sweep.read_journals()
        assert log.holder is not None
        kill(log.holder.pid)
        (project / "go").touch()
        said, _ = command_line.communicate(timeout=600)
    finally:
        command_line.kill()
    assert command_line.returncode == 0, said
    assert len(sweep.read_journals()) == 2, "a worker was killed, and another took its place"
    results_of = [published(sweep.run(run_id)) for run_id in sweep.run_ids()]
    assert [result.final_return for result in results_of] == [1.0, 1.0, 1.0]
    assert {result.fields["commit"] for result in results_of} == {git(project, "rev-parse", "HEAD")}
    assert len(list((sweep.path / "code").iterdir())) == 1


def test_kept_code_of_another_version_is_started_by_the_names_of_its_own_modules(tmp_path: Path) -> None:
    program = [sys.executable, str(COMMANDS / "count.py"), str(tmp_path / "audit"), "3", "0"]
    (tmp_path / "grid.yaml").write_text(
        f"name: kept\ntrainer: command\nbase: {{command: {json.dumps(program)}}}\nmatrix: {{seed: [0]}}\n"
    )
    loaded, sweep = load_sweep(tmp_path / "grid.yaml"), SweepDir(tmp_path / "results", "kept")
    sweep.create()
    code = freeze(sweep, tmp_path)
    (modules,) = code.python_path
    with zipfile.ZipFile(modules) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    modules.unlink()
    with zipfile.ZipFile(modules, "w") as archive:
        for name, text in kept.items():
            of_that_version = text.replace(b"jobs.worker", b"jobs.parent")
            archive.writestr(name.replace("jobs/worker/", "jobs/parent/"), of_that_version)
    moved = replace(code, entries={**code.entries, "worker": "jobs.parent"})
    backend = LocalBackend()
    planned = plan_sweep(inspect_sweep(loaded, sweep), backend.capacity())
    submit_checked(planned, backend, code=moved)
    (run,) = loaded.runs
    wait_for(sweep.run(run.run_id).result_path.exists, what="a result")
    wait_for(lambda: all(log.exited for log in sweep.read_journals()), what="the worker's end")
    assert submitted_code(sweep) == moved, "a lost worker is replaced by its like"


@pytest.mark.parametrize("module", ["jobs.worker; true", "jobs..worker", "", 3])
def test_a_name_that_is_no_module_s_is_refused(module: object) -> None:
    with pytest.raises(ValueError, match="entries"):
        parse(SentCode, {"id": "0", "python_path": [], "cwd": None, "entries": {"worker": module}})

"""Runs that another tree has finished are adopted, not trained."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import polars as pl
import pytest

from orchestrator.rundir.copies.adoption import adopted_from
from tests import warm
from tests.integration.test_extend import PROGRAM, program, rows_of, train
from tests.slurm.lab import Lab


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a lab that has trained two seeds."""
    folder = tmp_path_factory.mktemp("trained")
    lab = Lab(folder, {"HOME": str(folder)})
    train(lab, program(lab, 4))
    return folder


@pytest.fixture
def labs(trained: Path, tmp_path: Path) -> tuple[Lab, Lab]:
    """A lab that has trained two seeds, and one whose grid has these and two more."""
    shutil.copytree(trained, tmp_path / "old")
    old, new = Lab(tmp_path / "old"), Lab(tmp_path / "new")
    grid = program(new, 4, library=str(old.results))
    grid["matrix"]["seed"] = range_of(4)
    (new.folder / "grid.yaml").write_text(json.dumps(grid))
    return old, new


def range_of(number: int) -> list[int]:
    return list(range(number))


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def test_what_a_library_has_finished_is_not_trained(labs: tuple[Lab, Lab]) -> None:
    old, new = labs
    before = files_of(old.results)
    (job,) = json.loads(new.run("sweep", "grid.yaml", "--dry-run", "--json"))["jobs"]
    assert len(job["run_ids"]) == 2
    (target,) = json.loads(new.run("estimate", "grid.yaml", "--json"))["targets"]
    assert len(target["runs"]) == 2
    assert not new.results.exists()
    told = new.run("sweep", "grid.yaml", env=warm.WORKERS)
    assert f"2 of 4 runs are in the library {old.results}" in told
    assert new.states() == ["done"] * 4
    adopted = [run_id for run_id in new.dir().run_ids() if adopted_from(new.dir().run(run_id))]
    assert adopted == old.dir().run_ids()
    for run_id in adopted:
        run = new.dir().run(run_id)
        run.verify(run.result(), checksums=True)
        assert rows_of(run) == rows_of(old.dir().run(run_id))
    assert files_of(old.results) == before
    assert [len(new.dir().run(run_id).attempts()) for run_id in adopted] == [1, 1]
    new.run("collect", "tiny")
    table = pl.read_parquet(new.dir().table_parquet)
    assert sorted(table["adopted_from"].drop_nulls()) == [f"{old.results}/tiny"] * 2
    new.run("report", "tiny")
    assert f"{old.results}/tiny" in (new.dir().report / "index.html").read_text()


def test_results_of_other_code_are_offered(labs: tuple[Lab, Lab]) -> None:
    _, new = labs
    (new.folder / "train.py").write_text(PROGRAM.replace("+= generator", "+= 2 * generator"))
    told = new.run("sweep", "grid.yaml", "--dry-run")
    assert "2 runs in a library were trained by other code: --reuse any takes them" in told
    assert "2 of 4 runs are in the library" in new.run("sweep", "grid.yaml", "--dry-run", "--reuse", "any")
    assert "library" not in new.run("sweep", "grid.yaml", "--dry-run", "--reuse", "none")


def test_longer_runs_go_on_from_those_of_a_library(labs: tuple[Lab, Lab]) -> None:
    old, new = labs
    told = train(new, program(new, 10, length="steps", library=[str(old.results)]))
    assert "2 runs go on from 2 shorter ones: 8 of 20 frames are there" in told
    for run_id in new.dir().run_ids():
        assert [len(piece.rows) for piece in new.dir().run(run_id).chain()] == [4, 6]


def test_a_library_that_is_away_or_broken_is_a_note(labs: tuple[Lab, Lab]) -> None:
    old, new = labs
    first, second = (old.dir().run(run_id) for run_id in old.dir().run_ids())
    (first.path / first.result().final_state[0]).write_bytes(b"")
    second.result_path.write_text("{")
    told = train(new, program(new, 4, library=[str(old.results), "/nowhere/results"]))
    assert "library /nowhere/results is not used: /nowhere/results: no such folder" in told
    assert f"run {first.run_id} is not adopted" in told
    assert "is in the library" in told or "are in the library" in told
    new.run("sweep", "grid.yaml", "--reuse", "none", env=warm.WORKERS)
    assert new.states() == ["done"] * 2


def test_a_library_that_is_the_tree_itself_is_refused(labs: tuple[Lab, Lab]) -> None:
    _, new = labs
    for name in ("results", "results/tiny", "."):
        (new.folder / name).mkdir(parents=True, exist_ok=True)
        told = new.run("sweep", "grid.yaml", "--dry-run", "--set", f"library=./{name}", code=2)
        assert f"library: ./{name} is the tree results itself, or one is in the other" in told


def test_libraries_of_the_user_count_for_every_grid(labs: tuple[Lab, Lab], tmp_path: Path) -> None:
    old, new = labs
    settings = tmp_path / "config" / "orchestrate" / "settings.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"library: {old.results}\n")
    (new.folder / "grid.yaml").write_text(json.dumps(program(new, 4)))
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert "2 of 2 runs are in the library" in new.run("sweep", "grid.yaml", "--dry-run", env=env)
    settings.write_text("libary: /x\n")
    assert "expected the key library" in new.run("sweep", "grid.yaml", "--dry-run", env=env, code=2)


@pytest.mark.nightly(but=["3", "4"])
@pytest.mark.parametrize("number", range(1, 10))
def test_killed_while_it_adopts_nothing_is_lost_or_doubled(labs: tuple[Lab, Lab], number: int) -> None:
    old, new = labs
    killed = new.start_python("-m", "tests.executioner", str(number), "sweep", "grid.yaml", "--detach")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    new.run("sweep", "grid.yaml", env=warm.WORKERS)
    assert new.states() == ["done"] * 4
    for run_id in new.dir().run_ids():
        run = new.dir().run(run_id)
        run.verify(run.result(), checksums=True)
        assert len(run.history()) == 4
        assert (adopted_from(run) is not None) == (run_id in old.dir().run_ids())
    assert not [path for path in (new.dir().path / "runs").iterdir() if path.name.startswith(".")]


@pytest.mark.nightly
def test_an_audit_takes_nothing_from_a_library(labs: tuple[Lab, Lab]) -> None:
    _, new = labs
    found = json.loads(new.run("audit", "grid.yaml", "--set", "steps=4", "--json"))
    assert (found["verdict"], bool(found["kills"])) == ("exact", True)

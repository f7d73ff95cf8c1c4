"""`orchestrate clean`: frees what no command needs, and nothing that a run, a result or a person needs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.analysis.evaluations.evaluate import choose_checkpoint
from orchestrator.core.errors import NotFoundError, OrchestrateError
from orchestrator.rundir import CodeDir, RunDir, SweepDir, Uploaded, removable, sha256
from orchestrator.rundir.copies.synced import sync_lock
from orchestrator.rundir.files.atomic import temporary_name
from orchestrator.rundir.files.placed import placed_time
from orchestrator.sync.wandb import plan_uploads
from orchestrator.ui.cli import app
from tests.helpers import COMMANDS, wait_for
from tests.integration.test_cli import Bench, bench  # noqa: F401
from tests.integration.test_ppo import OWN, TINY

DAYS_AGO = 2 * 86400


class Tree:
    """A results tree in the present folder, used by commands in this process."""

    def __init__(self, folder: Path, audit: Path | None = None) -> None:
        self.folder, self.sweep_dir = folder, SweepDir(folder / "results", "tiny")
        self.audit = audit or folder / "audit"

    def write_grid(self, seeds: int = 2, name: str = "tiny") -> None:
        command = [sys.executable, str(COMMANDS / "count.py"), str(self.audit), "6", "0.001"]
        Path("grid.yaml").write_text(
            f"name: {name}\ntrainer: command\nbase: {{command: {json.dumps(command)}}}\n"
            f"matrix: {{seed: range({seeds})}}\nloggers: [tensorboard]\n"
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        """Output and error of a command; "error: …" stands for an error that ends it."""
        done = CliRunner().invoke(app, list(arguments))
        error = done.exception
        if isinstance(error, OrchestrateError):
            assert error.exit_code == code, error
            return f"{done.output}error: {error}\n  {error.hint}"
        assert done.exit_code == code, (done.output, error)
        return done.output

    def clean(self, *arguments: str) -> dict[str, Any]:
        return dict(json.JSONDecoder().raw_decode(self.run("clean", *arguments, "--json"))[0])

    def whats(self, *arguments: str) -> list[str]:
        """The groups of a dry run, without their numbers."""
        return [group["what"] for one in self.clean(*arguments)["sweeps"] for group in one["groups"]]

    def told(self) -> list[Any]:
        """What other commands tell about the sweep's results."""
        self.run("collect", "tiny", "--verify")
        status = json.loads(self.run("status", "tiny", "--json"))
        return [status, self.sweep_dir.table_csv.read_text(), self.sweep_dir.metrics_parquet.read_bytes()]

    def runs(self) -> list[RunDir]:
        return [self.sweep_dir.run(run_id) for run_id in self.sweep_dir.run_ids()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two finished runs; the first was retried and is finished again."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        tree = Tree(folder)
        tree.write_grid()
        tree.run("sweep", "--grid", "grid.yaml")
        tree.run("retry", "tiny", "seed=0")
    return folder


@pytest.fixture
def tree(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A copy of it for one test."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "results", tmp_path / "results")
    return Tree(tmp_path, audit=trained / "audit")


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file, link and folder with its size and time; locks are opened to write."""
    return {
        path.relative_to(folder).as_posix(): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.name != ".lock"
    }


def test_a_dry_run_removes_nothing_and_the_removal_exactly_what_it_listed(tree: Tree) -> None:
    before, told = files(tree.folder / "results"), tree.told()
    listed = tree.clean()
    before |= {name: about for name, about in files(tree.folder / "results").items() if name not in before}
    assert not listed["removed"]
    assert tree.whats("tiny") == ["attempts before a retry"]
    said = tree.run("clean", "--dry-run")
    assert "can be removed: the same command with --yes does it" in said
    assert all(len(line) <= 80 for line in said.splitlines())
    paths = {Path(path) for one in listed["sweeps"] for group in one["groups"] for path in group["paths"]}
    assert {path.name.partition(".")[0] for path in paths} >= {"events"}
    assert sum(path.stat().st_size for path in paths) == listed["bytes"] > 0
    assert len(paths) == listed["files"] == 2
    assert all(path.exists() for path in paths)
    assert tree.clean("--yes") == {**listed, "removed": True}
    gone = {path for path in before if not (tree.folder / "results" / path).exists()}
    folders = {path.parent for path in paths if path.parent.name == "checkpoints"}
    assert gone == {path.relative_to("results").as_posix() for path in paths | folders}
    assert tree.told() == told
    assert tree.whats() == []
    assert "nothing to remove" in tree.run("clean", "--yes")


def test_attempts_before_a_retry_stay_until_the_run_is_finished_again(tree: Tree) -> None:
    (again,) = (run for run in tree.runs() if run.retired)
    os.rename(again.result_path, tree.folder / "result.json")
    assert tree.whats() == []


@pytest.mark.parametrize("kind", ["tensorboard", "wandb", "policies", "outside-grid"])
def test_a_result_without_dropped_files_is_whole_for_every_command(tree: Tree, kind: str) -> None:
    tree.run("clean", "--yes")
    if kind == "outside-grid":
        tree.write_grid(seeds=1)
        tree.run("sweep", "--grid", "grid.yaml", "--yes")
    told = tree.told()
    found = tree.clean("--drop", kind, "--yes")
    assert found["files"] == {"tensorboard": 2, "outside-grid": 1}.get(kind, 0)
    assert tree.told() == told
    assert tree.whats("--drop", kind) == []
    if found["files"]:
        # As a source of results, too.
        said = tree.run("sync", "./results", "copy")
        assert "missing" not in said
        assert "2 results" in said or "2 runs" in said, said
        again = json.loads(tree.run("status", "tiny", "--results", "copy", "--json"))
        assert [one["state"] for one in again[0]["runs"]] == ["done"] * 2
        tree.run("collect", "tiny", "--results", "copy", "--verify")
    if kind == "outside-grid":
        (outside,) = (run for run in tree.runs() if not run.checkpoints())
        with pytest.raises(NotFoundError, match="its checkpoint was removed by `orchestrate clean`"):
            choose_checkpoint(outside, None)


def test_wandb_logs_stay_until_they_are_uploaded(tree: Tree) -> None:
    run = tree.runs()[0]
    result = json.loads(run.result_path.read_text())
    packed = run.attempt(result["attempt"]).wandb_packed
    packed.write_bytes(bytes(100))
    path = packed.relative_to(run.path).as_posix()
    item = {"path": path, "sha256": sha256(packed), "bytes": 100, "required": False}
    run.result_path.write_text(json.dumps({**result, "manifest": [*result["manifest"], item]}))
    assert "W&B logs of 1 run that are not uploaded; first: orchestrate sync --wandb" in tree.run(
        "clean", "--drop", "wandb", "--yes"
    )
    (todo,) = plan_uploads([tree.sweep_dir]).todo
    with tree.sweep_dir.uploads.writing():
        tree.sweep_dir.uploads.add(Uploaded(run.run_id, todo.digest, "", "", 0.0))
    assert tree.clean("--drop", "wandb", "--yes")["sweeps"][0]["left"] == []
    assert not packed.exists()


def test_a_result_that_lists_files_elsewhere_removes_none(tree: Tree) -> None:
    run, other = tree.runs()
    away = tree.folder / "mine.pt"
    away.write_text("")
    up = "/".join([".."] * 7)
    items = [
        f"attempts/1/{kind}/{up}/mine.pt" for kind in ("checkpoints", "policies", "events.out.tfevents.1")
    ]
    result = json.loads(run.result_path.read_text())
    more = [{"path": path, "sha256": "", "bytes": 0, "required": False} for path in (*items, str(away))]
    run.result_path.write_text(json.dumps({**result, "manifest": [*result["manifest"], *more]}))
    (other.path / "retired-99.json").write_text("{}")
    rows = [row._replace(in_grid=False) for row in tree.sweep_dir.read_index()]
    tree.sweep_dir.write_index(rows)
    before = files(other.path)
    found = tree.clean("--drop", "outside-grid,policies", "--yes")
    assert away.exists()
    assert found["files"] > 0
    assert other.history() == []
    kept = {name for name in before if "checkpoints" not in name}
    assert kept <= files(other.path).keys()


def test_a_running_sync_comes_first(tree: Tree) -> None:
    with sync_lock(tree.sweep_dir):
        assert tree.whats() == ["attempts before a retry"]
        for more in ([], ["--whole"]):
            assert "a sync of tiny is running" in tree.run("clean", "tiny", *more, "--yes", code=2)
    assert tree.clean("--yes")["files"] == 2


def test_killed_in_the_middle_it_goes_on(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tree.told()
    remove_files = removable.remove_files

    def killed(paths: Sequence[Path]) -> None:
        remove_files(paths[:1])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(removable, "remove_files", killed)
        for _ in range(2):
            CliRunner().invoke(app, ["clean", "--drop", "tensorboard", "--yes"])
            assert tree.told() == told
    assert tree.clean("--drop", "tensorboard", "--yes")["files"] == 2
    assert tree.whats("--drop", "tensorboard") == []
    assert tree.told() == told


def test_only_what_ended_long_enough_ago(tree: Tree) -> None:
    assert tree.whats("--older-than", "1h", "--drop", "tensorboard") == []
    assert "younger" in tree.run("clean", "tiny", "--whole", "--older-than", "1h", "--yes")
    for run in tree.runs():
        result = json.loads(run.result_path.read_text())
        run.result_path.write_text(json.dumps({**result, "ended": time.time() - DAYS_AGO}))
    assert tree.whats("--older-than", "1h") == ["attempts before a retry"]
    tree.write_grid(name="planned")
    tree.run("sweep", "grid.yaml", "--budget", "1", code=2)
    assert "never submitted, which is younger" in tree.run("clean", "--whole", "--older-than", "1h")


def test_a_copy_keeps_what_the_next_sync_would_fetch_again(tree: Tree) -> None:
    tree.run("sync", "./results", "copy")
    assert tree.whats("--results", "copy") == []
    assert tree.clean("--results", "copy", "--drop", "tensorboard", "--yes")["files"] == 2
    tree.run("sync", "./results", "copy", "--only", "metrics,checkpoints")
    assert tree.whats("--results", "copy", "--drop", "tensorboard") == []
    tree.run("sync", "./results", "copy")
    assert tree.whats("--results", "copy", "--drop", "tensorboard") == ["TensorBoard's event files"]


def test_links_odd_folders_and_damage_are_left_and_named(tree: Tree) -> None:
    again, other = sorted(tree.runs(), key=lambda run: -run.retired)
    outside = tree.folder / "outside"
    outside.mkdir()
    os.rename(again.attempt(1).checkpoints, outside / "checkpoints")
    again.attempt(1).checkpoints.symlink_to(outside / "checkpoints")
    checkpoints = other.attempt(1).checkpoints
    os.rename(checkpoints, outside / "current")
    checkpoints.symlink_to(outside / "current")
    (outside / "current" / "mine").write_text("")
    (again.path.parent / "notes").mkdir()
    mine = [run.attempt(1).path / "mine.txt" for run in (again, other)]
    for path in mine:
        path.write_text("")
    before = files(outside)
    said = tree.run("clean", "--yes", "--drop", "tensorboard")
    assert "runs/notes: was not written by this program" in said
    assert again.attempt(1).checkpoints.is_symlink()
    assert files(outside) == before != {}
    assert all(path.exists() for path in mine)

    os.rename(again.attempt(1).path, outside / "1")
    again.attempt(1).path.symlink_to(outside / "1")
    other.result_path.write_text("{")
    os.rename(tree.sweep_dir.path / "runs", tree.folder / "runs")
    (tree.sweep_dir.path / "runs").symlink_to(tree.folder / "runs")
    before = files(tree.folder / "runs")
    assert "tiny/runs: was not written by this program" in tree.run("clean", "--yes", "--drop", "tensorboard")
    assert files(tree.folder / "runs") == before
    (tree.sweep_dir.path / "runs").unlink()
    os.rename(tree.folder / "runs", tree.sweep_dir.path / "runs")
    os.rename(tree.sweep_dir.path, tree.folder / "elsewhere")
    tree.sweep_dir.path.symlink_to(tree.folder / "elsewhere")
    before = files(tree.folder / "elsewhere")
    assert "results/tiny: is a link, expected a folder" in tree.run("clean", "--yes")
    assert "is a link" in tree.run("clean", "tiny", "--whole", "--yes", code=2)
    tree.sweep_dir.path.unlink()
    os.rename(tree.folder / "elsewhere", tree.sweep_dir.path)
    (one,) = tree.clean("--yes", "--drop", "outside-grid,policies")["sweeps"]
    assert one["groups"] == []
    named = " ".join(one["left"])
    assert "attempts/1: is a link, expected a folder" in named
    assert "result.json: is not valid JSON" in named
    assert files(tree.sweep_dir.path) == before


def test_leftovers_of_killed_processes(tree: Tree) -> None:
    """Of a process that was killed before it tidied up, and in the middle of a checkpoint."""
    finished, unfinished = tree.runs()
    (finished.attempt(finished.newest_attempt()).path / "scratch").mkdir()
    scratch = finished.attempt(finished.newest_attempt()).scratch / "big"
    scratch.write_bytes(bytes(1000))
    os.rename(unfinished.result_path, tree.folder / "result.json")
    torn = temporary_name(unfinished.attempt(unfinished.newest_attempt()).checkpoints / "checkpoint")
    torn.write_bytes(bytes(500))
    kept = unfinished.checkpoints()
    found = tree.clean("--yes", "--drop", "outside-grid,tensorboard")["sweeps"][0]["groups"]
    named = {group["what"]: group for group in found}
    assert named["leftovers of finished runs"]["bytes"] == 1000
    assert named["temporary files of killed runs"]["paths"] == [str(torn.relative_to(tree.folder))]
    assert not torn.exists()
    assert not scratch.parent.exists()
    assert unfinished.checkpoints() == kept != []


@pytest.mark.nightly
def test_an_unfinished_run_outside_the_grid_loses_its_checkpoints_when_asked(tree: Tree) -> None:
    (outside,) = (run for run in tree.runs() if not run.retired)
    index = tree.sweep_dir.index_path.read_bytes()
    tree.sweep_dir.index_path.unlink()
    assert "checkpoints of runs outside the grid" not in tree.whats("--drop", "outside-grid")
    tree.sweep_dir.index_path.write_bytes(index)
    tree.write_grid(seeds=1)
    tree.run("sweep", "--grid", "grid.yaml", "--yes")
    os.unlink(outside.result_path)
    assert "checkpoints of runs outside the grid" not in tree.whats()
    assert tree.clean("--yes", "--drop", "outside-grid")["files"] == 3
    assert outside.checkpoints() == []
    tree.write_grid(seeds=2)
    assert "2/2 done" in tree.run("sweep", "--grid", "grid.yaml", "--yes")


def test_code_that_no_run_refers_to(tree: Tree) -> None:
    (code,) = removable.code_snapshots(tree.sweep_dir)
    stray = code.path.with_name("0" * 16)
    stray.mkdir()
    (stray / "code.json").write_text("{}")
    assert "code that no run refers to" not in tree.whats(), "it may be on its way to a submission"
    assert removable.put_away(stray).name in " ".join(tree.clean()["sweeps"][0]["groups"][-1]["paths"])
    stray.mkdir()
    (stray / "code.json").write_text("{}")
    for path in (stray, code.path):
        os.utime(path, (time.time() - DAYS_AGO,) * 2)
    tree.clean("--yes")
    assert [path.name for path in code.path.parent.iterdir()] == [code.code_id]
    assert code.exists()


def test_what_programs_wrote_into_code_stays_and_is_named(tree: Tree) -> None:
    (code,) = removable.code_snapshots(tree.sweep_dir)
    stray = CodeDir(Path(shutil.copytree(code.path, code.path.with_name("0" * 16), symlinks=True)))
    assert tree.whats() == ["attempts before a retry"]
    os.utime(stray.path, (time.time() - DAYS_AGO,) * 2)
    assert "code that no run refers to" in tree.whats()
    overwritten = stray.path / "ours" / "jobs" / "conf" / "experiment" / "gpu.yaml"
    overwritten.chmod(0o600)
    overwritten.write_text("mine")
    written = [stray.path / name for name in ("tree/runs/a/model.pt", "ours/jobs/log.csv", "ours/link")]
    for path in written[:2]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"0" * 2048)
    written[2].symlink_to(tree.folder)
    cache = stray.path / "ours" / "jobs" / "__pycache__" / "train.pyc"
    cache.parent.mkdir(exist_ok=True)
    cache.write_bytes(b"0")
    os.utime(stray.path, (time.time() - DAYS_AGO,) * 2)
    for option in ("--dry-run", "--yes"):
        said = tree.run("clean", option)
        for path in (*written, overwritten):
            assert path.relative_to(stray.path).as_posix() in said
            assert path.exists()
        assert os.path.relpath(stray.path) in said
        assert "train.pyc" not in said
        refused = tree.run("clean", "tiny", "--whole", option, code=2)
        assert all(os.path.relpath(path) in refused for path in (*written, overwritten))
    for path in (*written, overwritten):
        path.unlink()
    tree.clean("--yes")
    assert not stray.path.exists()


def test_a_copied_tree_has_no_files_of_programs_for_its_new_times(tree: Tree) -> None:
    (code,) = removable.code_snapshots(tree.sweep_dir)
    for path in code.path.rglob("*.py"):
        os.utime(path)
    assert tree.clean("tiny", "--whole")["files"]
    (code.tree / "mine").parent.mkdir(exist_ok=True)
    (code.tree / "mine").touch()
    said = tree.run("clean", "tiny", "--whole", code=2)
    assert f"{os.path.relpath(code.tree / 'mine')} not written by this program" in said


def test_a_whole_sweep_goes_by_its_name_and_a_killed_removal_goes_on(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.write_grid(seeds=1, name="other")
    tree.run("sweep", "--grid", "grid.yaml")
    assert "no sweep is named" in tree.run("clean", "--whole", "--yes", code=2)
    notes = tree.sweep_dir.path / "notes.txt"
    notes.write_text("mine")
    assert "tiny/notes.txt not written by this program" in tree.run(
        "clean", "tiny", "other", "--whole", "--yes", code=2
    )
    notes.unlink()
    entry = min((tree.sweep_dir.path / "ledger").glob("*.json"))
    whole = entry.read_bytes()
    entry.write_bytes(whole[:20])  # of a submission with jobs in a queue, perhaps
    assert "cannot be known" in tree.run("clean", "tiny", "--whole", "--yes", code=2)
    entry.write_bytes(whole)
    before = files(tree.folder / "results")
    (mine, other) = tree.whats("--whole")
    assert mine.startswith("all of it: 1 done; idle since ")
    assert other.startswith("all of it: 2 done; idle since ")
    assert files(tree.folder / "results") == before

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(removable, "remove_folder", killed)
        CliRunner().invoke(app, ["clean", "tiny", "--whole", "--yes"])
    assert [one["sweep"] for one in json.loads(tree.run("status", "--json"))] == ["other"]
    assert tree.whats() == ["rest of a removed sweep"]
    assert "rest of a removed sweep" in tree.run("clean", "tiny", "--whole", "--yes")
    assert [path.name for path in (tree.folder / "results").iterdir()] == ["other"]
    assert "no sweep named 'tiny'" in tree.run("clean", "tiny", code=2)


@pytest.mark.nightly
def test_policies_go_and_the_final_and_the_best_play_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = Tree(tmp_path)
    base = "\n".join(f"  {key}: {json.dumps(value)}" for key, value in {**TINY, **OWN["ppo"]}.items())
    Path("grid.yaml").write_text(f"name: tiny\ntrainer: ppo\nbase:\n{base}\nmatrix:\n  seed: [0]\n")
    tree.run("sweep", "--grid", "grid.yaml")

    def played() -> list[Any]:
        asked = ("evaluate", "tiny", "--episodes", "2", "--json")
        found = [json.loads(tree.run(*asked, *more)) for more in ((), ("--best",))]
        return [
            (one["best"], one["returns"], one["checkpoint"]) for told in found for one in told["evaluations"]
        ]

    before, told = played(), tree.told()
    (run,) = tree.runs()
    assert "policies" in tree.run("clean")
    assert tree.clean("--drop", "policies", "--yes")["files"] == 4
    assert run.policies(below=100) == []
    assert (run.attempt(1).path / "policy.pt").exists()
    assert played() == before
    assert tree.told() == told


def test_beside_a_running_sweep(bench: Bench) -> None:  # noqa: F811
    pace = bench.hold_at(10)
    bench.sweep("--detach")
    wait_for(lambda: len({run for run, _ in bench.steps()}) == 2, what="both runs at work")
    sweep = SweepDir(bench.results, "tiny")
    torn = [temporary_name(sweep.run(run_id).attempt(1).path / "x") for run_id in sweep.run_ids()]
    for path in torn:
        path.touch()
    assert "nothing to remove" in bench.run(
        "clean", "--yes", "--drop", "tensorboard,wandb,policies,outside-grid"
    )
    bench.run("clean", "--whole")
    assert "left as it is: 2 runs of tiny are queued or at work" in bench.errors
    bench.run("clean", "tiny", "--whole", "--yes", code=2)
    assert "2 runs of tiny are queued or at work" in bench.errors
    assert "orchestrate cancel tiny" in bench.errors
    assert all(path.exists() for path in torn)
    pace.write_text("0")
    bench.sweep()
    assert bench.states() == ["done"] * 2
    assert sorted(bench.steps()) == sorted(set(bench.steps()))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--drop", "tensorbord"], "--drop: found 'tensorbord', expected some of tensorboard, wandb"),
        (["--drop", ""], "--drop: found ''"),
        (["--older-than", "30"], "--older-than: found '30', expected a number and s, min, h or d"),
        (["--whole", "--yes"], "--whole: no sweep is named"),
        (["tiny", "--whole", "--drop", "wandb"], "--whole: found --drop"),
        (["nosuch"], "no sweep named 'nosuch'"),
    ],
)
def test_mistakes(arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["clean", *arguments])
    assert told in str(done.exception)
    assert isinstance(done.exception, OrchestrateError)
    assert list(tmp_path.iterdir()) == []


def test_what_programs_wrote_beside_themselves_goes_only_by_name(tree: Tree) -> None:
    written = [run.work / "runs" / "agent.pt" for run in tree.runs()]
    for path in written:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"0" * 2048)
    placed = written[0].with_name("placed.csv")  # left by a kill
    placed.touch()
    os.utime(placed, (placed_time("runs/placed.csv", 0),) * 2)
    tree.run("clean", "--yes")
    assert [path.exists() for path in written] == [True] * len(written)
    before = tree.told()
    assert tree.clean("--drop", "work", "--yes")["files"] == len(written)
    assert [path.exists() for path in written] == [False] * len(written)
    assert placed.exists()
    assert tree.told() == before

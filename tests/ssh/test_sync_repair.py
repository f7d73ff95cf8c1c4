"""What was damaged, deleted or plainly copied at home: fetched again, or seen to be the same."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.synthetic import finish, finished_sweep, matrix_runs, training_rows, write_journal
from orchestrator.analysis.collect import collect
from orchestrator.config.code.snapshot import is_whole
from orchestrator.rundir import CodeDir, RunDir, SweepDir
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport
from orchestrator.sync.source import Source, find_source
from orchestrator.sync.sync import sync
from tests import warm

MATRIX = {"algorithm": ["mappo", "iql"], "seed": [0, 1]}
LONG_AGO = 1_700_000_000


def bring(source: SweepDir, home: Path, options: SyncOptions | None = None, dry: bool = False) -> SyncReport:
    (brought,) = sync(
        find_source(f"{source.results}/"), home, options or SyncOptions(), SyncProgress(), dry=dry
    )
    return brought


def rest(folder: Path, moment: float = LONG_AGO) -> None:
    """Have nothing there that changed a moment ago, and may again unseen."""
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (moment, moment))


@pytest.fixture
def there(tmp_path: Path) -> SweepDir:
    sweep = finished_sweep(tmp_path / "there" / "results", "speed", MATRIX, iterations=2)
    write_journal(sweep)
    rest(sweep.path)
    return sweep


@pytest.fixture
def home(there: SweepDir, tmp_path: Path) -> Path:
    """The sweep is here, and settled."""
    bring(there, tmp_path / "results")
    assert bring(there, tmp_path / "results").files == 0
    return tmp_path / "results"


def freeze_code(sweep: SweepDir) -> str:
    """Keep a code of one file with the sweep; its folder in the sweep's."""
    program = b"print('trains')\n"
    mark = f"tree/train.py\0file {hashlib.sha256(program).hexdigest()}\0"
    code = CodeDir.of(sweep, hashlib.sha256(f"None\n{mark}".encode()).hexdigest()[:16])
    code.tree.mkdir(parents=True)
    (code.tree / "train.py").write_bytes(program)
    code.facts_path.write_text(json.dumps({"project": None, "files": ["tree/train.py"]}))
    assert is_whole(code)
    rest(sweep.path)
    return f"code/{code.code_id}"


def files(sweep: SweepDir, top: str = "runs") -> dict[str, tuple[bytes, int]]:
    """Every plain file of its runs, or of another folder, and its time in whole seconds."""
    return {
        path.relative_to(sweep.path).as_posix(): (path.read_bytes(), int(path.stat().st_mtime))
        for path in sorted((sweep.path / top).rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def command_line(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", *map(str, arguments)]
    env = {**os.environ, **warm.COMMANDS}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600, cwd=cwd)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def overwrite(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def shadow(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize("damage", [Path.unlink, truncate, overwrite, shadow])
@pytest.mark.parametrize(
    "name", ["attempts/1/metrics.jsonl", "attempts/1/end.json", "run.json", "result.json"]
)
def test_what_is_damaged_here_is_fetched_again(
    there: SweepDir, home: Path, name: str, damage: Callable[[Path], None]
) -> None:
    here = SweepDir(home, "speed")
    damage(here.run(there.run_ids()[0]).path / name)
    assert bring(there, home).problems == []
    assert files(here) == files(there)
    again = bring(there, home)
    assert (again.files, again.complete, again.notes) == (0, [], [])


def test_rot_that_no_time_shows_is_found_when_all_is_read_again(there: SweepDir, home: Path) -> None:
    """And `collect` names the command that helps, which does."""
    here = SweepDir(home, "speed").run(there.run_ids()[0])
    metrics, times = here.attempt(1).metrics, here.attempt(1).metrics.stat()
    metrics.write_bytes(metrics.read_bytes().replace(b'"iteration": 1', b'"iteration": 7'))
    os.utime(metrics, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert bring(there, home).files == 0
    (problem,) = collect([SweepDir(home, "speed")], checksums=True).problems
    assert "retry" not in problem
    _, _, advice = problem.partition("fetch it again: ")
    program, *arguments = shlex.split(advice)
    assert (program, arguments[0], arguments[-1]) == ("orchestrate", "sync", "--verify")
    done = command_line(*arguments, cwd=home.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert files(SweepDir(home, "speed")) == files(there)
    assert collect([SweepDir(home, "speed")], checksums=True).problems == ()


@pytest.mark.parametrize("damage", [Path.unlink, truncate, overwrite, shadow])
def test_frozen_code_that_is_damaged_here_is_fetched_again(
    there: SweepDir, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    code, home = freeze_code(there), tmp_path / "results"
    bring(there, home)
    damage(home / "speed" / code / "tree" / "train.py")
    assert bring(there, home, dry=True).files == 1
    assert (bring(there, home).files, bring(there, home).files) == (1, 0)
    assert files(SweepDir(home, "speed"), code) == files(there, code)
    shutil.rmtree(home / "speed" / "code")
    assert (bring(there, home).files, bring(there, home).files) == (2, 0)
    assert files(SweepDir(home, "speed"), code) == files(there, code)


def test_rot_of_frozen_code_that_no_time_shows_is_found_when_all_is_read_again(
    there: SweepDir, tmp_path: Path
) -> None:
    code, home = freeze_code(there), tmp_path / "results"
    bring(there, home)
    file = home / "speed" / code / "tree" / "train.py"
    times = file.stat()
    overwrite(file)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert bring(there, home).files == 0
    assert bring(there, home, SyncOptions(verify=True)).files == 1
    assert files(SweepDir(home, "speed"), code) == files(there, code)
    overwrite(there.path / code / "tree" / "train.py")  # and what is whole here is not replaced
    assert bring(there, home, SyncOptions(verify=True)).files == 0


def test_a_name_that_is_no_text_ends_no_sync(there: SweepDir, home: Path) -> None:
    """Not there, where the file stays, and not here, in a run that is settled."""
    attempts = sorted(there.path.glob("runs/*/attempts/1"))
    odd = b"plot\xff.png"
    Path(os.fsdecode(os.fsencode(attempts[0]) + b"/" + odd)).write_bytes(b"")
    own = home / "speed" / attempts[1].relative_to(there.path)
    Path(os.fsdecode(os.fsencode(own) + b"/" + odd)).write_bytes(b"")
    (own / "metrics.jsonl").unlink()
    for _ in range(2):
        assert not bring(there, home).problems
    assert (own / "metrics.jsonl").is_file()
    assert bring(there, home).files == 0


def test_a_copy_whose_source_has_more_than_results_list_is_not_read_for_ever(
    there: SweepDir, home: Path
) -> None:
    for attempt in there.path.glob("runs/*/attempts/1"):
        (attempt / "tensorboard").mkdir()
        (attempt / "tensorboard" / "events.of.another.day").write_bytes(b"by hand")
    rest(there.path, LONG_AGO + 0.5)
    while bring(there, home).files:
        pass
    shutil.move(home, home.with_name("before"))
    shutil.copytree(home.with_name("before"), home, copy_function=shutil.copyfile)
    assert bring(there, home).files > 0  # what no result lists comes again
    assert bring(there, home).files == 0
    assert bring(there, home).complete == []


def test_what_is_damaged_here_and_there_is_said_each_time(there: SweepDir, home: Path) -> None:
    run_id = there.run_ids()[0]
    for sweep in (there, SweepDir(home, "speed")):
        truncate(sweep.run(run_id).attempt(1).metrics)
    for _ in range(2):
        (problem,) = bring(there, home).problems
        assert f"run {run_id}: attempts/1/metrics.jsonl holds" in problem
        assert "damaged at" in problem
        assert "also here" in problem


def test_a_plain_copy_here_is_no_other_version(there: SweepDir, home: Path) -> None:
    """Only the times are lost: nothing is accused, no file with a checksum comes, and they are as there."""
    copied = home.with_name("copied")
    shutil.copytree(home, copied, copy_function=shutil.copy)
    brought = bring(there, copied)
    assert brought.problems == []
    assert files(SweepDir(copied, "speed")) == files(there)
    again = bring(there, copied)
    assert (again.files, again.complete, again.problems) == (0, [], [])


def test_a_plain_copy_there_is_no_other_version(there: SweepDir, home: Path) -> None:
    """As where an administrator moved the folder to another disk."""
    moved = there.results.with_name("moved")
    shutil.copytree(there.results, moved, copy_function=shutil.copy)
    shutil.rmtree(there.results)
    moved.rename(there.results)
    rest(there.results)
    for path in there.path.rglob("*"):
        os.utime(path, (LONG_AGO + 1000, LONG_AGO + 1000))
    assert bring(there, home, dry=True).problems == []
    assert bring(there, home).problems == []
    assert files(SweepDir(home, "speed")) == files(there)
    assert bring(there, home).files == 0


def test_other_content_of_the_same_size_there_is_accused(there: SweepDir, home: Path) -> None:
    overwrite(there.run(there.run_ids()[0]).attempt(1).metrics)
    (there.run(there.run_ids()[0]).path / "notes.txt").write_text("so that the run is looked at")
    before = SweepDir(home, "speed").run(there.run_ids()[0]).attempt(1).metrics.read_bytes()
    assert any("differ from the files verified" in line for line in bring(there, home).problems)
    assert SweepDir(home, "speed").run(there.run_ids()[0]).attempt(1).metrics.read_bytes() == before


def test_a_run_that_was_not_taken_is_not_done_here(there: SweepDir, tmp_path: Path) -> None:
    broken = there.run(there.run_ids()[0])
    good = broken.attempt(1).metrics.read_bytes()
    truncate(broken.attempt(1).metrics)
    home = tmp_path / "results"
    assert len(bring(there, home).problems) == 1
    for _ in range(2):
        shown = command_line("status", "speed", cwd=tmp_path).stdout
        assert "3/4 done  1 failed" in shown
        assert "damaged result" in shown
        (told,) = json.loads(command_line("status", "speed", "--json", cwd=tmp_path).stdout)
        assert {run["run_id"] for run in told["runs"] if run["state"] == "failed"} == {broken.run_id}
        bring(there, home, SyncOptions(runs=(there.run_ids()[1],)))  # which does not look at that run
    broken.attempt(1).metrics.write_bytes(good)
    assert bring(there, home).complete == [broken.run_id]
    assert "4/4 done" in command_line("status", "speed", cwd=tmp_path).stdout


# The same runs at a further source


def further(there: SweepDir, folder: Path) -> SweepDir:
    """A plain copy of the tree at another source: the same bytes, other times."""
    shutil.copytree(there.results, folder / "results", copy_function=shutil.copy)
    second = SweepDir(folder / "results", "speed")
    for path in [*second.path.rglob("*"), second.path]:
        os.utime(path, (LONG_AGO + 5000, LONG_AGO + 5000))
    return second


def test_the_very_same_runs_at_a_further_source_change_nothing(
    there: SweepDir, home: Path, tmp_path: Path
) -> None:
    second = SweepDir(tmp_path / "second" / "results", "speed")
    shutil.copytree(there.results, second.results)
    before = files(SweepDir(home, "speed"))
    for _ in range(2):
        for source in (second, there):
            brought = bring(source, home)
            assert (brought.problems, brought.notes) == ([], [])
            assert files(SweepDir(home, "speed")) == before
    assert (bring(second, home).files, bring(there, home).files) == (0, 0)


def test_a_further_source_that_does_a_run_again_keeps_it_beside(
    there: SweepDir, home: Path, tmp_path: Path
) -> None:
    """And that of the first source, which stays, is not put aside for it."""
    second = further(there, tmp_path / "second")
    bring(second, home)
    described = matrix_runs(MATRIX)[0]
    run = second.run(described.run_id)
    run.result_path.rename(run.path / "retired-1.json")
    finish(run, described, training_rows(described, 3))
    before = files(SweepDir(home, "speed"))
    brought = bring(second, home)
    assert (brought.complete, brought.problems) == ([run.run_id], [])
    assert files(SweepDir(home, "speed")) == before
    kept = RunDir(home / "speed" / "sources" / Source(str(second.results)).name / "runs" / run.run_id)
    assert kept.result_path.read_bytes() == run.result_path.read_bytes()
    assert bring(there, home).files == 0


def test_a_run_whose_folder_is_lost_counts_from_either_source(
    there: SweepDir, home: Path, tmp_path: Path
) -> None:
    second = further(there, tmp_path / "second")
    bring(second, home)
    lost = SweepDir(home, "speed").run(there.run_ids()[0])
    shutil.rmtree(lost.path)
    collected = collect([SweepDir(home, "speed")], checksums=True)
    assert (len(collected.runs), collected.missing, collected.problems) == (4, (), ())
    assert bring(there, home).problems == []
    assert lost.result() is not None


def with_checkpoints(folder: Path, **changes: object) -> SweepDir:
    """Runs with a checkpoint of a megabyte each, the same in every tree; ``changes`` are of the results."""
    runs = matrix_runs(MATRIX)
    sweep = finished_sweep(folder / "results", "speed", MATRIX, iterations=2)
    for run in runs:
        run_dir = sweep.run(run.run_id)
        run_dir.result_path.unlink()
        finish(run_dir, run, training_rows(run, 2), **changes)
        checkpoint = run_dir.attempt(1).checkpoint_name(12_000, "0" * 16)
        checkpoint.parent.mkdir()
        checkpoint.write_bytes(run.run_id.encode() * 65_536)
        result = json.loads(run_dir.result_path.read_text())
        run_dir.result_path.unlink()
        run_dir.publish(result, [(run_dir.attempt(1).metrics, True), (checkpoint, True)])
    return sweep


def test_runs_that_were_finished_at_both_sources_are_told_in_one_line(tmp_path: Path) -> None:
    """With the same outcome."""
    one, two = with_checkpoints(tmp_path / "one"), with_checkpoints(tmp_path / "two", host={"hostname": "n2"})
    home = tmp_path / "results"
    bring(one, home)
    brought = bring(two, home)
    assert brought.problems == []
    (note,) = brought.notes
    assert note.startswith("4 runs: finished in two places")
    assert "with the same metrics" in note
    kept = home / "speed" / "sources" / Source(str(two.results)).name / "runs"
    for run_id in one.run_ids():
        theirs = RunDir(kept / run_id)
        result = theirs.result()
        assert result is not None
        assert result.fields["host"] == {"hostname": "n2"}
        theirs.verify(result, checksums=True)
    for source in (one, two, one, two):
        again = bring(source, home)
        assert (again.files, again.complete, again.notes, again.problems) == (0, [], [], [])


def test_a_folder_that_became_a_link_is_not_written_through(tmp_path: Path) -> None:
    one, two = with_checkpoints(tmp_path / "one"), with_checkpoints(tmp_path / "two", host={"hostname": "n2"})
    home, outside = tmp_path / "results", tmp_path / "outside"
    bring(one, home)
    outside.mkdir()
    kept = home / "speed" / "sources" / Source(str(two.results)).name / "runs" / one.run_ids()[0]
    kept.mkdir(parents=True)
    (kept / "attempts").symlink_to(outside)
    bring(two, home)
    assert list(outside.iterdir()) == []

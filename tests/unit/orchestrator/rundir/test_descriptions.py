"""Planned runs take no folders: what describes them until they are claimed, and what stays fixed then."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.config.code.snapshot import is_whole
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import Job, Resources, Run, Sweep
from orchestrator.rundir import Claim, RunDir, SweepDir
from orchestrator.rundir.code import CodeDir
from orchestrator.rundir.copies.parcel import RESULTS, pack
from orchestrator.ui.cli import app
from tests.helpers import inodes, make_sweep, submit_sweep, work
from tests.unit.orchestrator.control.test_submit import Stingy

RUNS = tuple(COMMAND.identify({"command": ["true"], "width": 1e20}, seed, 1) for seed in range(200))
DESCRIBED = "descriptions"


def planned(results: Path, runs: tuple[Run, ...] = RUNS) -> SweepDir:
    sweep_dir = SweepDir(results, "tiny")
    submit_sweep(Sweep("tiny", "command", runs, "name: tiny\n"), sweep_dir, Stingy(1000))
    return sweep_dir


def test_planned_runs_take_a_handful_of_files(results: Path) -> None:
    sweep_dir = planned(results)
    without_code = inodes(results) - inodes(results / "tiny" / "code")
    assert without_code < 20
    assert sweep_dir.run_ids() == sorted(run.run_id for run in RUNS)
    for run in RUNS:
        assert sweep_dir.run(run.run_id).description() == run
        assert not sweep_dir.run(run.run_id).path.exists()


def test_a_submission_describes_what_no_other_did(results: Path) -> None:
    planned(results, RUNS[:3])
    planned(results, RUNS[:3])
    first, second = (results / "tiny" / DESCRIBED / name for name in ("0001.tsv", "0002.tsv"))
    before = first.read_bytes()
    assert not second.exists()
    planned(results, RUNS[:4])
    assert first.read_bytes() == before
    assert [line.split("\t")[0] for line in second.read_text().splitlines()] == [RUNS[3].run_id]


def test_the_first_claim_keeps_the_description_for_good(results: Path) -> None:
    sweep_dir = planned(results, RUNS[:2])
    claimed, waiting = (sweep_dir.run(run.run_id) for run in RUNS[:2])
    assert claimed.take(Claim.fresh("0001-0001")) is not None
    as_claimed = claimed.description_path.read_bytes()
    others = [replace(run, overrides={**run.overrides, "note": "another"}) for run in RUNS[:2]]
    assert sweep_dir.describe(others) == {}
    assert claimed.description_path.read_bytes() == as_claimed
    assert claimed.description() == RUNS[0]
    assert waiting.description() == others[1]
    shutil.rmtree(results / "tiny" / DESCRIBED)
    assert claimed.description() == RUNS[0]  # it stands for itself


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"run_id": 1}', b"\xff", b"{}" * 1000, b"[" * 10_000])
def test_a_damaged_description_names_its_run_and_is_mended_by_the_next_submission(
    results: Path, damage: bytes
) -> None:
    sweep_dir = planned(results, RUNS[:2])
    path = results / "tiny" / DESCRIBED / "0001.tsv"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0].partition(b"\t")[0] + b"\t" + damage, *lines[1:]]))
    assert sweep_dir.run(RUNS[1].run_id).description() == RUNS[1]
    with pytest.raises(DamagedFileError, match=RUNS[0].run_id) as found:
        sweep_dir.run(RUNS[0].run_id).description()
    assert "orchestrate sweep" in str(found.value.hint)
    with pytest.raises(DamagedFileError):
        sweep_dir.run(RUNS[0].run_id).take(Claim.fresh("0001-0001"))
    assert sweep_dir.describe(RUNS[:2]) == {}
    assert sweep_dir.run(RUNS[0].run_id).description() == RUNS[0]


def test_a_line_that_describes_another_run_is_damage(results: Path) -> None:
    sweep_dir = planned(results, RUNS[:2])
    path = results / "tiny" / DESCRIBED / "0001.tsv"
    path.write_text(path.read_text().replace(f"{RUNS[0].run_id}\t", f"{RUNS[2].run_id}\t"))
    with pytest.raises(DamagedFileError, match="another run"):
        sweep_dir.run(RUNS[2].run_id).description()


def test_folders_as_earlier_versions_made_them_keep_their_descriptions(results: Path) -> None:
    sweep_dir = SweepDir(results, "tiny")
    sweep_dir.create()
    RunDir(results / "tiny" / "runs" / RUNS[0].run_id).describe(RUNS[0])
    planned(results, RUNS[:2])
    assert sweep_dir.run(RUNS[0].run_id).description() == RUNS[0]
    (described,) = (results / "tiny" / DESCRIBED / "0001.tsv").read_text().splitlines()
    assert described.startswith(RUNS[1].run_id)


def test_a_parcel_describes_its_runs_and_no_others(results: Path, tmp_path: Path) -> None:
    sweep_dir = planned(results, RUNS[:3])
    assert sweep_dir.run(RUNS[0].run_id).take(Claim.fresh("0001-0001")) is not None
    job = Job("0009-0001", "tiny", "l4", (RUNS[0].run_id, RUNS[1].run_id), 1, Resources())
    (code,) = (results / "tiny" / "code").iterdir()
    (code / "written_by_a_run").touch()  # a run may be writing there while the parcel is packed
    sent = SweepDir(pack(sweep_dir, job, CodeDir(code.absolute())) / RESULTS, "tiny")
    assert sent.run_ids() == sorted(job.run_ids)
    assert is_whole(CodeDir(sent.path / "code" / code.name))
    assert not (sent.path / "code" / code.name / "written_by_a_run").exists()
    for run in RUNS[:2]:
        assert sent.run(run.run_id).description() == run


def test_a_copy_of_a_sweep_in_progress_knows_its_planned_runs(results: Path, tmp_path: Path) -> None:
    planned(results, RUNS[:2])
    here = tmp_path / "here"
    done = CliRunner().invoke(app, ["sync", str(results), str(here)])
    assert done.exit_code == 0, done.output
    copy = SweepDir(here, "tiny")
    assert [copy.run(run.run_id).description() for run in RUNS[:2]] == list(RUNS[:2])
    shown = CliRunner().invoke(app, ["status", "tiny", "--results", str(here)])
    assert shown.exit_code == 0, shown.output


def test_a_finished_run_takes_a_dozen_inodes(results: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.sh"
    program.write_text(
        'echo \'{"frames": 1}\' >> "$ORCHESTRATE_METRICS"\necho 1 > "$ORCHESTRATE_CHECKPOINT_DIR/1"\n'
    )
    runs = [COMMAND.identify({"command": ["sh", str(program)]}, seed, 1) for seed in range(2)]
    sweep_dir = make_sweep(results, runs)
    assert work(sweep_dir) == 0
    for run in runs:
        folder = sweep_dir.run(run.run_id)
        assert folder.result() is not None
        assert folder.description() == run
        assert folder.description_path.is_file()
        assert inodes(folder.path) <= 12

"""What is decided before anybody plays: which checkpoint, which task, which file; and films by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.training.records.video import Film
from orchestrator.analysis.evaluations import evaluate as module
from orchestrator.analysis.evaluations.evaluate import (
    EvaluatedPolicy,
    EvaluationOptions,
    FailedPolicy,
    choose_checkpoint,
    evaluate,
    require_film,
    summaries,
)
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import NotFoundError, OrchestrateError, StorageError
from orchestrator.core.machine.installation import install_here
from orchestrator.rundir import Claim, Evaluation, RunDir, SweepDir
from orchestrator.rundir.attempts.absent_files import mark_absent
from tests.helpers import command_run, make_sweep

NAVIGATION = get_trainer("benchmarl").identify({"algorithm": "mappo", "task": "vmas/navigation"}, 0, 1)


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDir:
    return make_sweep(tmp_path, [NAVIGATION])


@pytest.fixture
def run(sweep: SweepDir) -> RunDir:
    return sweep.run(NAVIGATION.run_id)


def saved(run: RunDir, frames: int, digest: str = "0" * 16) -> Path:
    attempt = run.attempts()[-1] if run.attempts() else run.take(Claim.fresh("test"))
    assert attempt is not None
    attempt.checkpoints.mkdir(exist_ok=True)
    path = attempt.checkpoint_name(frames, digest)
    path.write_text("weights")
    return path


def test_only_films_that_can_be_written_are_begun(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.GIF"):
        require_film(tmp_path / name)
    (tmp_path / "folder.mp4").mkdir()
    for name in ("a.avi", "a", ".mp4", "folder.mp4", "nowhere/a.mp4"):
        with pytest.raises(OrchestrateError, match="--render"):
            require_film(tmp_path / name)


def test_a_checkpoint_by_its_frames_or_the_newest(run: RunDir) -> None:
    for frames in (300, 1200, 600):
        saved(run, frames)
    assert choose_checkpoint(run, None).frames == 1200
    assert choose_checkpoint(run, 600).frames == 600
    with pytest.raises(NotFoundError, match=r"no checkpoint of 7 frames \(found: 300, 600, 1200\)"):
        choose_checkpoint(run, 7)


def test_why_there_is_no_checkpoint_and_what_brings_one(run: RunDir) -> None:
    with pytest.raises(NotFoundError, match="has not begun"):
        choose_checkpoint(run, None)
    saved(run, 300).unlink()
    with pytest.raises(NotFoundError, match="has no checkpoint yet"):
        choose_checkpoint(run, None)
    mark_absent(run.path, "user@host:results", ["attempts/1/checkpoints/x.pt"])
    with pytest.raises(NotFoundError, match="user@host:results") as error:
        choose_checkpoint(run, None)
    assert "--only checkpoints" in (error.value.hint or "")


def test_policies_of_another_trainer_are_its_own_programs_to_play(tmp_path: Path) -> None:
    own = command_run(["true"])
    sweep = make_sweep(tmp_path, [own])
    saved(sweep.run(own.run_id), 10)
    [failed] = evaluate(sweep, [own.run_id], EvaluationOptions())
    assert isinstance(failed, FailedPolicy)
    assert "trainer 'command'" in str(failed.error)
    assert "benchmarl" in (failed.error.hint or "")


def test_a_checkpoint_that_training_replaces_meanwhile_is_followed(
    sweep: SweepDir, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(run, 300)
    asked: list[int] = []
    times: set[int] = set()

    class Player:
        def ask(self, question: dict[str, Any]) -> dict[str, Any]:
            times.add(question["times"])
            asked.append(question["checkpoint"]["frames"])
            if len(asked) == 1:
                saved(run, 600)
                return {"error": "no such file", "hint": None, "gone": True}
            told = {"task": "vmas/navigation", "deterministic": True, "seconds": 1.0}
            return {**told, "frames": asked[-1], "returns": [1.0], "lengths": [5]}

        def close(self) -> None: ...

    monkeypatch.setattr(module, "_Player", Player)
    [done] = evaluate(sweep, [run.run_id], EvaluationOptions())
    assert isinstance(done, EvaluatedPolicy)
    assert (asked, done.evaluation.frames) == ([300, 600], 600)
    asked.clear()
    [failed] = evaluate(sweep, [run.run_id], EvaluationOptions(checkpoint=300))
    assert isinstance(failed, FailedPolicy)
    assert (asked, times) == ([300], {1})
    times.clear()
    list(evaluate(sweep, [run.run_id], EvaluationOptions(best=True)))
    assert times == {10}


def test_what_cannot_be_put_on_record_is_told_all_the_same(
    sweep: SweepDir, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(run, 300)

    class Player:
        def ask(self, _: dict[str, Any]) -> dict[str, Any]:
            told = {"task": "vmas/navigation", "deterministic": True, "seconds": 1.0}
            return {**told, "frames": 300, "returns": [1.0], "lengths": [5]}

        def close(self) -> None: ...

    def full(*_: object) -> Path:
        raise StorageError("the disk is full")

    monkeypatch.setattr(module, "_Player", Player)
    monkeypatch.setattr(type(sweep.evaluations), "add", full)
    [done] = evaluate(sweep, [run.run_id], EvaluationOptions())
    assert isinstance(done, EvaluatedPolicy)
    assert done.evaluation.returns == (1.0,)
    assert "the disk is full" in str(done.unkept)


def test_a_player_that_cannot_begin_is_told_once(
    sweep: SweepDir, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(run, 300)
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho \"No module named 'torch'\" >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(broken))
    with pytest.raises(OrchestrateError, match="No module named 'torch'") as error:
        list(evaluate(sweep, [run.run_id, run.run_id], EvaluationOptions()))
    assert install_here("train") in (error.value.hint or "")


def test_summaries_of_few_of_one_and_of_no_finite_return() -> None:
    def one(*returns: float) -> Evaluation:
        lengths = tuple(10 for _ in returns)
        return Evaluation("0" * 16, 1, False, "c", "t", len(returns), 0, True, returns, lengths, 0.0)

    many, single, endless = summaries([one(1.0, 2.0, 3.0, 100.0), one(4.0), one(float("inf"), 1.0)])
    assert (many.mean, many.iqm, many.length) == (26.5, 2.5, 10.0)
    assert many.low is not None
    assert many.high is not None
    assert many.low < 2.5 < many.high
    assert (single.mean, single.iqm) == (4.0, 4.0)
    assert (endless.mean, endless.iqm) == (float("inf"), None)


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_film_appears_when_it_is_complete_and_odd_sizes_are_no_trouble(tmp_path: Path, name: str) -> None:
    frames = [np.full((33, 41, 3), shade, np.uint8) for shade in (0, 120, 250)]
    with Film(tmp_path / name) as film:
        for frame in frames:
            film.add(frame)
        assert not (tmp_path / name).exists()
    assert film.frames == 3
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).stat().st_size > 100


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_film_that_is_broken_off_leaves_nothing(tmp_path: Path, name: str) -> None:
    def break_off() -> None:
        with Film(tmp_path / name) as film:
            film.add(np.zeros((32, 32, 3), np.uint8))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert list(tmp_path.iterdir()) == []

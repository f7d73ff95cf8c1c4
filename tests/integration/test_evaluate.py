"""Trained policies play: what training logged comes out again, on other tasks too, and a film shows it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from orchestrator.analysis.evaluations.evaluate import choose_checkpoint
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run
from orchestrator.rundir import CheckpointFile, RunDir, SweepDir
from tests import warm
from tests.helpers import ROOT
from tests.resuming import Attempt, Nursery
from tests.tiny_benchmarl import FRAMES, KAZ_VECTOR, MULTIWALKER_MAPPO, NAVIGATION_MAPPO

# BenchMARL and what it imports warn of one another.
pytestmark = pytest.mark.filterwarnings("ignore")

# With this seed navigation's first evaluation stays its best.
SEED = 4
# Each evaluation begins from the run's seed, so that it can be played again.
STATIC = {"experiment.evaluation_static": True}
NAVIGATION = {**NAVIGATION_MAPPO, **STATIC}
MULTIWALKER = {**MULTIWALKER_MAPPO, **STATIC}
EPISODES = 2
WARM = {**warm.COMMANDS, **warm.WORKERS}
RETURN = "eval/reward/episode_reward_mean"


class Theatre:
    """A folder with a sweep of two finished runs, ``small``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        points = json.dumps([NAVIGATION, MULTIWALKER])
        (folder / "grid.yaml").write_text(f"name: small\ntrainer: benchmarl\nbase: {{seed: {SEED}}}\n")
        with open(folder / "grid.yaml", "a") as grid:
            grid.write(f"include: {points}\n")
        self.run("sweep", "--grid", "grid.yaml")

    @property
    def sweep(self) -> SweepDir:
        return SweepDir.existing(self.folder / "results", "small")

    def found(self, task: str) -> RunDir:
        [row] = [row for row in self.sweep.read_index() if row.point["task"] == task]
        return self.sweep.run(row.run_id)

    def run(
        self, *arguments: str, code: int = 0, python: str = sys.executable
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [python, "-m", "orchestrator.ui.cli", *arguments],
            cwd=self.folder,
            env={**WARM, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def evaluate(self, *arguments: str, python: str = sys.executable) -> list[dict[str, Any]]:
        told = json.loads(self.run("evaluate", "small", *arguments, "--json", python=python).stdout)
        found: list[dict[str, Any]] = told["evaluations"]
        return found


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Theatre:
    return Theatre(tmp_path_factory.mktemp("theatre"))


@pytest.fixture(scope="module")
def played(theatre: Theatre) -> dict[str, dict[str, Any]]:
    """What the finished runs' newest policies achieve with the runs' own seed, by run."""
    return {one["run_id"]: one for one in theatre.evaluate("--seed", str(SEED), python=warm.FRESH)}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run that stopped after three of its six iterations, on its last two checkpoints."""
    folder = tmp_path_factory.mktemp("interrupted") / "results" / "s" / "runs" / ("0" * 16)
    folder.parent.mkdir(parents=True)
    with Nursery() as nursery:
        attempt = Attempt(str(folder), NAVIGATION, seed=SEED, stop_after=3)
        assert nursery.run(attempt) == 75  # interrupted
    return RunDir(folder)


def logged(run: RunDir) -> dict[int, float]:
    """Frames → mean return, of each evaluation in training."""
    return {row.frames: row.metrics[RETURN] for row in run.history() if RETURN in row.metrics}


def mean(returns: Sequence[float]) -> float:
    """As BenchMARL takes it."""
    return float(np.mean(np.array(returns, np.float32)))


def frames_of(film: Path) -> list[NDArray[np.uint8]]:
    """One a step; a gif shows a frame for longer where the next is the same."""
    import av
    from PIL import Image, ImageSequence

    if film.suffix == ".gif":
        with Image.open(film) as image:
            shown = [(np.array(frame.convert("RGB")), frame.info) for frame in ImageSequence.Iterator(image)]
        return [frame for frame, info in shown for _ in range(info["duration"] // 50)]
    with av.open(str(film)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def assert_shows_something_that_moves(film: Path, size: tuple[int, int], frames: int) -> None:
    found = frames_of(film)
    assert len(found) == frames
    assert {frame.shape for frame in found} == {(*size, 3)}
    assert len(np.unique(found[0].reshape(-1, 3), axis=0)) > 10  # not a single colour
    assert (np.abs(found[0].astype(int) - found[-1]) > 60).sum() > 100


def test_the_newest_policies_play_as_training_logged_at_its_end(
    theatre: Theatre, played: dict[str, dict[str, Any]]
) -> None:
    assert len(played) == 2
    for run_id, one in played.items():
        assert (one["frames"], one["episodes"], one["deterministic"]) == (6 * FRAMES, EPISODES, True)
        history = logged(theatre.sweep.run(run_id))
        assert mean(one["returns"]) == pytest.approx(history[6 * FRAMES], rel=1e-6)


def test_what_is_on_record_does_not_play_again_where_nobody_names_a_run(
    theatre: Theatre, played: dict[str, dict[str, Any]]
) -> None:
    again = theatre.evaluate("--seed", str(SEED))
    assert all(one["known"] for one in again)
    assert [one["returns"] for one in again] == [one["returns"] for one in played.values()]


@pytest.mark.nightly
def test_the_best_policy_is_the_one_that_training_logged_the_highest_return_of(theatre: Theatre) -> None:
    before = set(theatre.sweep.path.rglob("*")) | {theatre.sweep.evaluations.path}
    found = theatre.evaluate("--best", "--seed", str(SEED), "--episodes", str(EPISODES))
    for one in found:
        history = logged(theatre.sweep.run(one["run_id"]))
        assert one["best"]
        assert one["frames"] == max(history, key=lambda frames: history[frames])
        assert mean(one["returns"]) == pytest.approx(max(history.values()), rel=1e-6)
    written = set(theatre.sweep.path.rglob("*")) - before
    assert {path.parent for path in written} == {theatre.sweep.evaluations.path}
    assert sorted(json.loads(path.read_text())["returns"] for path in written) == sorted(
        one["returns"] for one in found
    )


@pytest.mark.opengl
def test_the_same_seed_gives_the_same_returns_bit_for_bit_also_in_front_of_a_camera(
    theatre: Theatre, played: dict[str, dict[str, Any]]
) -> None:
    run = theatre.found(NAVIGATION["task"])
    [filmed] = theatre.evaluate(run.run_id, "--seed", str(SEED), "--render", "navigation.mp4")
    assert filmed["returns"] == played[run.run_id]["returns"]
    film = theatre.folder / "navigation.mp4"
    assert_shows_something_that_moves(film, (700, 700), filmed["lengths"][0] + 1)


@pytest.mark.opengl
@pytest.mark.nightly
def test_a_policy_plays_a_variant_of_its_task_in_front_of_a_camera(
    theatre: Theatre, played: dict[str, dict[str, Any]]
) -> None:
    run = theatre.found(MULTIWALKER["task"])
    variant = ("--on-task", "multiwalker/shared,max_cycles=40")
    [shared] = theatre.evaluate(run.run_id, "--seed", str(SEED), *variant, "--render", "walkers.gif")
    assert shared["task"] == "multiwalker/shared task.max_cycles=40"
    own = played[run.run_id]
    assert shared["lengths"] == own["lengths"]
    assert shared["returns"] == pytest.approx(own["returns"], rel=1e-3)  # shared out among the same walkers
    size, frames = (320, 480), shared["lengths"][0] + 1
    assert_shows_something_that_moves(theatre.folder / "walkers.gif", size, frames)


def test_a_table_for_people_and_one_line_for_what_cannot_be(theatre: Theatre) -> None:
    run = theatre.found(NAVIGATION["task"])
    more = ("--on-task", "vmas/navigation,n_agents=5")
    output = theatre.run("evaluate", "small", run.run_id[:6], *more).stdout
    assert "vmas/navigation task.n_agents=5" in output
    assert run.run_id[:8] in output
    missing = theatre.run("evaluate", "small", run.run_id, "--checkpoint", "7", code=2).stderr
    assert f"no checkpoint of 7 frames (found: {6 * FRAMES})" in missing
    assert "one file" in theatre.run("evaluate", "small", "--render", "film.mp4", code=2).stderr


# In this process, which loads BenchMARL once


@pytest.mark.nightly
def test_runs_that_have_not_begun_are_left_out_of_those_that_keys_select(
    theatre: Theatre, tmp_path: Path
) -> None:
    tree = tmp_path / "results"
    shutil.copytree(theatre.folder / "results", tree)
    absent = theatre.found("pettingzoo/multiwalker").path.name
    shutil.rmtree(tree / "small" / "runs" / absent)
    selected = theatre.run(
        "evaluate", "small", f"seed={SEED}", "--episodes", "1", "--results", str(tree), "--json"
    )
    [played] = json.loads(selected.stdout)["evaluations"]
    assert played["run_id"] == theatre.found("vmas/navigation").path.name
    assert selected.stderr.splitlines()[0] == "left out: 1 run not begun"
    named = theatre.run("evaluate", "small", absent, "--results", str(tree), code=2)
    assert f"run {absent} has not begun" in named.stderr


def ask(run: RunDir, checkpoint: CheckpointFile, **how: Any) -> Any:
    from jobs.evaluate import EvaluationRequest
    from jobs.trainers.benchmarl.engine.evaluating import evaluate

    return evaluate(EvaluationRequest(run.description(), checkpoint, **how))


def test_a_run_that_is_being_trained_plays_from_each_of_its_checkpoints(interrupted: RunDir) -> None:
    before = {path: path.stat().st_mtime_ns for path in interrupted.path.rglob("*")}
    with pytest.raises(OrchestrateError, match=r"no checkpoint of 120 frames \(found: 240, 360\)"):
        choose_checkpoint(interrupted, 120)
    assert ask(interrupted, choose_checkpoint(interrupted, None)).frames == 3 * FRAMES
    early = choose_checkpoint(interrupted, 2 * FRAMES)
    answer = ask(interrupted, early, seed=SEED)
    assert mean(answer.returns) == pytest.approx(logged(interrupted)[2 * FRAMES], rel=1e-6)
    history = {frames: value for frames, value in logged(interrupted).items() if frames <= 2 * FRAMES}
    best = ask(interrupted, early, seed=SEED, best=True)
    assert mean(best.returns) == pytest.approx(max(history.values()), rel=1e-6)
    assert best.frames == FRAMES < early.frames
    assert {path: path.stat().st_mtime_ns for path in interrupted.path.rglob("*")} == before


def test_a_seed_decides_random_actions_too(interrupted: RunDir) -> None:
    newest = choose_checkpoint(interrupted, None)
    one, other, again = (ask(interrupted, newest, seed=seed, deterministic=False) for seed in (5, 6, 5))
    assert one.returns == again.returns
    assert one.returns != other.returns
    assert one.returns != ask(interrupted, newest, seed=5).returns


def test_other_spaces_are_refused_with_what_differs_and_the_tasks_that_fit(interrupted: RunDir) -> None:
    newest = choose_checkpoint(interrupted, None)
    with pytest.raises(OrchestrateError, match=r"observation: 16 .* instead of 18") as refused:
        ask(interrupted, newest, task="vmas/balance")
    assert refused.value.hint == "of the same spaces: vmas/flocking"
    assert ask(interrupted, newest, task="vmas/flocking", changes={"task.max_steps": 5}).lengths == (5, 5)
    with pytest.raises(OrchestrateError) as misspelt:
        ask(interrupted, newest, task="vmas/flokcing")
    assert misspelt.value.hint == "did you mean vmas/flocking?"
    with pytest.raises(OrchestrateError, match=r"task\.n_agents: found 'few'"):
        ask(interrupted, newest, task="vmas/navigation", changes={"task.n_agents": "few"})


def test_other_groups_of_agents_are_other_spaces() -> None:
    from jobs.trainers.benchmarl.engine.spaces import Spaces

    walkers = Spaces({"walker": 3}, {"walker/observation": "31"})
    pieces = Spaces({"knight": 2, "archer": 2}, {})
    told = walkers.differences(pieces, any_number=True)
    assert told == ["groups of agents: archer, knight instead of walker"]


def test_agents_with_policies_of_their_own_are_as_many_as_were_trained() -> None:
    from jobs.trainers.benchmarl.configuration.config import compose
    from jobs.trainers.benchmarl.engine.spaces import require_same

    apart = {**NAVIGATION, "experiment.share_policy_params": False}
    own, more = (compose(identified({**apart, "task.n_agents": agents})) for agents in (3, 4))
    require_same(own, own)
    with pytest.raises(OrchestrateError, match="agents in agents: 4 instead of 3"):
        require_same(own, more)


def test_a_damaged_checkpoint_is_named(interrupted: RunDir, tmp_path: Path) -> None:
    newest = choose_checkpoint(interrupted, None)
    torn = tmp_path / newest.path.name
    torn.write_bytes(newest.path.read_bytes()[:-100])
    with pytest.raises(OrchestrateError, match="truncated or damaged"):
        ask(interrupted, replace(newest, path=torn))
    with pytest.raises(FileNotFoundError):
        ask(interrupted, replace(newest, path=tmp_path / "gone.pt"))


def test_where_nothing_can_be_drawn_what_to_install_is_said_and_no_file_is_left(
    interrupted: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarl.environments.vmas.common import VmasClass

    def render_callback(*_: Any) -> Any:
        raise ImportError('Library "GLU" not found.')

    monkeypatch.setattr(VmasClass, "render_callback", render_callback)
    with pytest.raises(OrchestrateError, match="no library libGLU") as refused:
        ask(interrupted, choose_checkpoint(interrupted, None), film=tmp_path / "film.mp4")
    assert "apt-get install libglu1-mesa" in (refused.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_knights_archers_and_zombies_are_filmed(tmp_path: Path) -> None:
    from jobs.trainers.benchmarl.configuration.config import compose
    from jobs.trainers.benchmarl.engine.evaluating import Stage
    from jobs.training.records.video import Film

    stage = Stage(compose(identified(KAZ_VECTOR)), 1)
    with Film(tmp_path / "kaz.mp4") as film:
        [length] = stage.play(1, seed=0, deterministic=False, film=film).lengths
    stage.close()
    assert_shows_something_that_moves(tmp_path / "kaz.mp4", (720, 1280), length + 1)


def test_many_episodes_are_played_in_turns(interrupted: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobs.trainers.benchmarl.engine import evaluating

    newest = choose_checkpoint(interrupted, None)
    monkeypatch.setattr(evaluating, "_AT_ONCE", 3)
    assert len(ask(interrupted, newest, best=True, times=10).returns) == 10 * EPISODES
    answer = ask(interrupted, newest, episodes=7)
    assert len(answer.returns) == len(answer.lengths) == 7
    assert len(set(answer.returns)) == 7
    monkeypatch.undo()
    assert ask(interrupted, newest, episodes=3).returns == answer.returns[:3]


def identified(overrides: dict[str, Any]) -> Run:
    return get_trainer("benchmarl").identify(overrides, SEED, 1)


def _question(run: RunDir, checkpoint: CheckpointFile) -> Any:
    from jobs.evaluate import EvaluationRequest

    return EvaluationRequest(run.description(), checkpoint, best=True)

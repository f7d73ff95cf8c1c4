"""Procgen's games side by side: those of EnvPool, restored by a replay; and what is refused."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from jobs.check import ELSEWHERE
from jobs.trainers.actor_critic.environments.interface import Step
from jobs.trainers.actor_critic.environments.keys import ProcgenConfig
from jobs.trainers.actor_critic.environments.procgen import Procgen
from jobs.trainers.ppo.training import TRAINER
from jobs.training.games import procgen
from jobs.training.games.procgen import GAMES, make_pool
from orchestrator.config.trainers.actor_critic import PPO
from tests.libraries import without_qt

ENVS = 3


def made(game: str, seed: int = 0, envs: int = ENVS, **more: Any) -> Procgen:
    return Procgen(ProcgenConfig(f"procgen/{game}", **more), envs, seed, "cpu")


def actions_of(steps: int, envs: int = ENVS) -> Tensor:
    return torch.randint(0, 15, (steps, envs, 1), generator=torch.Generator().manual_seed(7))


def values(step: Step) -> list[Tensor]:
    return [step.seen, step.last(), step.rewards, step.terminated, step.truncated]


def test_an_episode_is_the_one_that_envpool_plays_and_the_next_begins_at_once() -> None:
    environments = made("leaper", num_levels=0)
    seeds = np.random.SeedSequence(0).generate_state(ENVS) >> 1
    pool = make_pool("leaper", "easy", seeds.tolist(), 0, 0, threads=1)
    assert np.array_equal(environments.reset(), pool.reset()[0])
    ended = 0
    for actions in actions_of(400):
        step = environments.step(actions)
        seen, rewards, terminated, truncated, _ = pool.step(actions[:, 0].numpy().astype(np.int32))
        assert np.array_equal(step.last(), seen)
        assert np.array_equal(step.rewards, rewards)
        assert np.array_equal(step.terminated, terminated)
        assert not (step.terminated & step.truncated).any()
        over = np.flatnonzero(terminated | truncated).astype(np.int32)
        if len(over):  # EnvPool itself begins an episode with the next step alone
            seen[over] = pool.reset(over)[0]
        assert np.array_equal(step.seen, seen)
        ended += len(over)
    assert ended > ENVS


@pytest.mark.parametrize(
    ("game", "more"), [("leaper", {}), ("starpilot", {"mode": "hard"}), ("bigfish", {"num_levels": 0})]
)
def test_a_saved_state_continues_bit_for_bit(game: str, more: dict[str, Any]) -> None:
    one, other = made(game, **more), made(game, **more)
    assert torch.equal(one.reset(), other.reset())
    assert not torch.equal(one.reset(), made(game, seed=1, **more).reset())
    played = actions_of(500)
    ended = sum(int((step.terminated | step.truncated).sum()) for step in map(one.step, played[:400]))
    assert ended > ENVS
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    assert file.tell() < 10_000
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for actions in played[400:]:
        for left, right in zip(values(one.step(actions)), values(other.step(actions)), strict=True):
            assert torch.equal(left, right)


def test_a_replay_that_leads_elsewhere_is_refused() -> None:
    environments = made("coinrun")
    environments.reset()
    for actions in actions_of(20):
        environments.step(actions)
    saved = environments.state_dict()
    saved["actions"][2] = 14 - saved["actions"][2]
    fresh = made("coinrun")
    fresh.reset()
    with pytest.raises(ValueError, match="a replay of procgen/coinrun leads elsewhere"):
        fresh.load_state_dict(saved)


def test_more_environments_change_none() -> None:
    few, many = made("coinrun"), made("coinrun", envs=2 * ENVS)
    assert torch.equal(few.reset(), many.reset()[:ENVS])
    actions = actions_of(1, 2 * ENVS)[0]
    assert torch.equal(few.step(actions[:ENVS]).seen, many.step(actions).seen[:ENVS])


@pytest.mark.parametrize("game", GAMES)
def test_every_game_is_there(game: str) -> None:
    step = made(game, envs=1)
    step.reset()
    assert step.step(torch.zeros(1, 1, dtype=torch.int64)).seen.shape == (1, 64, 64, 3)


def test_the_operations_of_a_frame_grow_with_the_epochs_and_those_of_a_core_are_measured() -> None:
    def facts(task: str, **more: Any) -> Mapping[str, Any]:
        return TRAINER.facts(TRAINER.config.compose({"task": task, **more}))

    once, twice = (facts("procgen/leaper", epochs=epochs) for epochs in (1, 2))
    learned = twice["flop_per_frame"] - once["flop_per_frame"]
    played = once["flop_per_frame"] - learned
    # Three products each but for the first layer, whose pictures need no gradient.
    first = 2 * 14 * 14 * 32 * 3 * 8 * 8
    assert learned == 3 * played - first
    assert once["machine_flops_per_core"] > 1e8
    assert facts("gymnasium/CartPole-v1") == {"processes": 1}


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ({"task": "procgen:procgen-coinrun-v0"}, "task: found", "did you mean procgen/coinrun?"),
        ({"task": "procgen-starpilot-v0"}, "task: found", "did you mean procgen/starpilot?"),
        ({"task": "CoinrunEasy-v0"}, "task: found", "did you mean procgen/coinrun?"),
        ({"task": "CoinrunHard-v0"}, "task: found", "did you mean procgen/coinrun with task.mode: hard?"),
        ({"task": "gymnasium/procgen:procgen-coinrun-v0"}, "task: found", "did you mean procgen/coinrun?"),
        ({"task": "gymnasium/procgen-maze-v0"}, "task: found", "did you mean procgen/maze?"),
        ({"task": "procgen/coinrum"}, "task: found", "did you mean procgen/coinrun?"),
        ({"task.mode": "easier"}, "task.mode: found 'easier', expected easy or hard", None),
        ({"task.num_levels": -1}, "task.num_levels: found -1, expected 0, for all levels, or more", None),
        ({"task.start_level": -1}, "task.start_level: found -1, expected 0 or more", None),
        ({"task.num_levels": 2**31}, "task.num_levels: found 2147483648, expected no more than", None),
        (
            {"task.num_levels": 0, "task.start_level": 5},
            "task.start_level: found 5, expected none beside task.num_levels: 0, which is all levels",
            "set task.num_levels, or leave out task.start_level",
        ),
        (
            {"task.num_levels": "all"},
            "task.num_levels: found 'all', expected a whole number",
            "did you mean 0, for all levels?",
        ),
        ({"num_levels": 500}, "ppo has no key 'num_levels'", "did you mean task.num_levels?"),
        (
            {"network": "mlp"},
            "network: found mlp, expected cnn or resnet: procgen/coinrun shows pictures",
            None,
        ),
        ({"precision": "fp16"}, "precision: found 'fp16', expected fp32 or bf16", None),
        (
            {"batch_size": 1000},
            "batch_size: found 1_000, expected a divisor of the 4_096 rows of an iteration",
            "write batch_size: 512, or change envs or rollout_steps",
        ),
    ],
)
def test_what_cannot_be_is_one_line(more: dict[str, Any], message: str, hint: str | None) -> None:
    (problem,) = TRAINER.check([PPO.identify({"task": "procgen/coinrun", **more}, 0, 1)])
    assert problem.message.startswith(message)
    assert "\n" not in problem.message
    assert hint is None or problem.hint == hint


@pytest.mark.parametrize("elsewhere", [False, True])
def test_packages_that_lack_here_only_are_a_warning(elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procgen, "find_spec", lambda _: None)
    if elsewhere:
        monkeypatch.setenv(ELSEWHERE, "1")
    procgen.registration.cache_clear()
    (problem,) = TRAINER.check([PPO.identify({"task": "procgen/coinrun"}, 0, 1)])
    procgen.registration.cache_clear()
    assert (problem.key, problem.message) == ("task", "procgen needs envpool, which is not installed")
    assert problem.blocks is not elsewhere


@pytest.mark.parametrize(
    ("levels", "seen"),
    [
        ((100, 0, 100, 50), 50),
        ((100, 0, 100, 0), 100),
        ((100, 50, 20, 0), 0),
        ((100, 50, 60, 0), 10),
        ((100, 0, 100, 100), 0),
        ((200, 0, 0, 0), 0),
        ((0, 0, 10, 5), 0),
    ],
)
def test_an_evaluation_on_levels_of_training_is_a_warning(levels: tuple[int, ...], seen: int) -> None:
    names = ("num_levels", "start_level", "test_num_levels", "test_start_level")
    keys = {f"task.{name}": number for name, number in zip(names, levels, strict=True)}
    runs = [PPO.identify({"task": "procgen/coinrun", **keys}, seed, 1) for seed in range(2)]
    found = TRAINER.check(runs)
    assert len(found) == bool(seen)
    for warning in found:
        assert not warning.blocks
        assert warning.message.startswith(f"{seen} of the {levels[2]} levels of evaluations are levels of tr")
        assert str(warning.hint).startswith(f"set task.test_start_level: {levels[0] + levels[1]}, or")


def test_hidden_libraries_of_qt_are_one_line_before_the_queue(tmp_path: Path) -> None:
    grid = {"name": "qt", "trainer": "ppo", "base": {"task": "procgen/coinrun"}, "matrix": {"seed": [0]}}
    (tmp_path / "grid.yaml").write_text(json.dumps(grid))
    (tmp_path / "scratch").mkdir()
    hidden = without_qt(tmp_path / "scratch")
    check = [sys.executable, "-m", "orchestrator.ui.cli", "check", "grid.yaml"]
    done = subprocess.run([*hidden, *check], cwd=tmp_path, capture_output=True, text=True)
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert "procgen needs Qt's libraries: libQt5Gui.so.5: cannot open shared object file" in told
    assert "[procgen]" in told
    assert "make procgen" in told
    assert "Traceback" not in told

"""multiwalker/shared and Knights, archers, zombies as environments, and the model that reads them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.config.check import CheckReport, check_sweep
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import load_sweep, runs_of
from orchestrator.config.trainers.benchmarl import BENCHMARL

with warnings.catch_warnings():  # what these say of each other at import is theirs to say
    warnings.simplefilter("ignore")
    import pettingzoo
    import torch
    from torchrl.data import Composite, Unbounded

    from jobs.trainers.benchmarl.configuration.building import try_build
    from jobs.trainers.benchmarl.configuration.config import Composed, compose
    from jobs.trainers.benchmarl.models.extra_mlp import ExtraMlpConfig
    from jobs.trainers.benchmarl.tasks.kaz import KazEnv
    from jobs.training.context import BadConfigError

pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(__file__).parents[2]
GAME = "butterfly/knights_archers_zombies-v11"
AGENTS = ("archer_0", "archer_1", "knight_0", "knight_1")


def composed(**overrides: Any) -> Composed:
    keys = {"algorithm": "ippo", **{key.replace("__", "."): value for key, value in overrides.items()}}
    return compose(BENCHMARL.identify(keys, 0, 1))


def environment(**overrides: Any) -> Any:
    return composed(**overrides).task.get_env_fun(1, True, seed=5, device="cpu")()


def check(text: str) -> CheckReport:
    return check_sweep(runs_of(parse_grid(f"name: tasks\ntrainer: benchmarl\n{text}", "grid.yaml")))


# multiwalker


def test_every_walker_gets_the_mean_of_what_all_earned() -> None:
    ours = environment(task="multiwalker/shared")
    alone = pettingzoo.make("parallel", "sisl/multiwalker-v9", shared_reward=False)
    alone.reset(seed=5)
    for env in (alone, ours):
        env.reset()
    draw, different = np.random.default_rng(0), 0
    for _ in range(30):
        actions = draw.uniform(-1, 1, (3, 4)).astype(np.float32)
        step = ours.full_action_spec.zero()
        step["walker", "action"] = torch.from_numpy(actions)
        got = ours.step(step)["next", "walker", "reward"].flatten()
        _, earned, *_ = alone.step({f"walker_{number}": action for number, action in enumerate(actions)})
        different += len(set(earned.values())) > 1
        assert got.tolist() == pytest.approx([np.mean(list(earned.values()))] * 3, abs=1e-5)
        if not alone.agents:
            break
    assert different > 10


# Knights, archers, zombies


def kaz(**arguments: Any) -> KazEnv:
    return KazEnv(pettingzoo.make("parallel", GAME, **arguments), None)


def play(env: Any, steps: int, seed: int = 0) -> list[Any]:
    """What each step gave; the same draws for every environment of the same agents."""
    draw, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        seen.append(env.step({agent: int(draw.integers(6)) for agent in AGENTS}))
        if not env.agents:
            break
    return seen


@pytest.mark.parametrize("seed", range(6))
def test_an_agent_that_died_stays_and_sees_nothing_until_all_is_over(seed: int) -> None:
    arguments = {"line_death": True, "spawn_delay": 3}
    env, theirs = kaz(**arguments), pettingzoo.make("parallel", GAME, **arguments)
    for game in (env, theirs):
        game.reset(seed=seed)
    episode, expected = play(env, 400, seed), play(theirs, 400, seed)
    assert len(episode) == len(expected) < 400
    gone: set[str] = set()
    for (seen, rewards, terminated, truncated, infos), real in zip(episode, expected, strict=True):
        for part in (seen, rewards, terminated, truncated, infos):
            assert tuple(part) == AGENTS
        assert rewards == {agent: 0 if agent in gone else real[1][agent] for agent in AGENTS}
        gone |= {agent for agent in AGENTS if real[2].get(agent)}
        assert {agent for agent in AGENTS if not seen[agent].any()} == gone
        assert set(terminated.values()) == {len(gone) == len(AGENTS)}
        assert set(truncated.values()) == {False}
    assert sum(sum(step[1].values()) for step in episode) > 0


def test_an_episode_that_is_out_of_time_is_truncated_and_still_seen() -> None:
    env = kaz(max_cycles=30)
    env.reset(seed=1)
    seen, _, terminated, truncated, _ = play(env, 1000)[-1]
    assert (set(terminated.values()), set(truncated.values())) == ({False}, {True})
    assert all(what.any() for what in seen.values())


def test_an_episode_does_not_depend_on_the_one_before() -> None:
    fresh, used = kaz(spawn_delay=10), kaz(spawn_delay=10)
    used.reset(seed=3)
    play(used, 7)
    for env in (fresh, used):
        env.reset(seed=4)
    for one, other in zip(play(fresh, 60), play(used, 60), strict=True):
        assert all((one[0][agent] == other[0][agent]).all() for agent in AGENTS)


@pytest.mark.parametrize(
    ("choices", "seen", "state"),
    [
        ({"task": "kaz/vector"}, (27, 5), (26, 4)),
        ({"task": "kaz/vector", "task__obs_method": "vector-masked"}, (27, 11), (26, 10)),
        ({"task": "kaz/vector", "task__max_zombies": 3}, (20, 5), (19, 4)),
        ({"task": "kaz/image"}, (64, 64, 3), (90, 160, 3)),
        ({"task": "kaz/image", "task__image_size": 32}, (32, 32, 3), (45, 80, 3)),
    ],
)
def test_what_is_seen_has_the_shape_that_is_told(
    choices: dict[str, Any], seen: tuple[int, ...], state: tuple[int, ...]
) -> None:
    env = environment(**choices)
    start = env.reset()
    for group in ("archer", "knight"):
        assert (
            start[group, "observation"].shape
            == env.observation_spec[group, "observation"].shape
            == (2, *seen)
        )
        assert start[group, "observation"].dtype is torch.float32
    assert start["state"].shape == env.observation_spec["state"].shape == state
    assert start["state"].dtype is torch.float32
    assert -1 <= start["state"].min() < start["state"].max() <= 1


def test_an_image_is_what_pettingzoo_shows_made_smaller() -> None:
    inner = pettingzoo.make("parallel", GAME, obs_method="image")
    env = KazEnv(inner, 8)
    seen, _ = env.reset(seed=2)
    whole = inner.aec_env.observe("knight_1")
    expected = whole.reshape(64, 8, 64, 8, 3).mean(axis=(1, 3)) / 255
    np.testing.assert_allclose(seen["knight_1"], expected, atol=1e-6)


# The model


@pytest.mark.parametrize("centralised", [False, True])
@pytest.mark.parametrize("share", [False, True])
def test_extra_mlp_takes_the_extra_dimensions_for_features(centralised: bool, share: bool) -> None:
    spec = Composite({"a": Composite({"observation": Unbounded((3, 4, 5, 2))}, shape=(3,))})
    per_agent = not (centralised and share)
    shape = (3, 6) if per_agent else (6,)
    output = {"out": Unbounded(shape)}
    config = ExtraMlpConfig([8], torch.nn.Linear, torch.nn.Tanh, num_extra_dims=2)
    model = config.get_model(
        input_spec=spec,
        output_spec=Composite({"a": Composite(output, shape=(3,))} if per_agent else output),
        agent_group="a",
        input_has_agent_dim=True,
        n_agents=3,
        centralised=centralised,
        share_params=share,
        device="cpu",
        action_spec=Composite(),
    )
    batch = spec.expand(7).rand()
    out = model(batch)[("a", "out") if per_agent else "out"]
    assert out.shape == (7, *shape)
    changed = batch.clone()
    changed["a", "observation"][..., 3, 4, 1] += 1  # the last feature of the last row counts too
    assert not torch.equal(model(changed)[("a", "out") if per_agent else "out"], out)


# Their configs


def test_every_pair_of_algorithm_and_view_can_be_built() -> None:
    report = check(
        "matrix: {algorithm: [ippo, mappo]}\n"
        "zip:\n"
        "  task: [kaz/vector, kaz/image]\n"
        "  model: [layers/extra_mlp, layers/cnn]\n"
        "  model@critic_model: [layers/extra_mlp, layers/cnn]\n"
    )
    assert report.problems == ()
    assert report.structures == 4


def test_a_model_that_cannot_read_a_task_is_told_with_those_that_can() -> None:
    with pytest.raises(BadConfigError, match="model: layers/mlp takes one row of numbers") as caught:
        try_build(composed(task="kaz/vector"), render=False)
    assert caught.value.hint is not None
    assert "layers/extra_mlp" in caught.value.hint


def test_the_multiwalker_grid_is_right() -> None:
    sweep = load_sweep(ROOT / "sweeps" / "multiwalker.yaml")
    report = check_sweep(sweep)
    assert report.problems == ()
    assert (report.points, report.structures) == (12, 4)
    assert not any(BENCHMARL.needs_gpu(run) for run in sweep.runs)


def test_faults_in_their_configs_are_told_with_their_place() -> None:
    models = "model: layers/cnn, model@critic_model: layers/cnn"
    report = check(
        f"base: {{algorithm: ippo, {models}, task.image_size: 64}}\n"
        "matrix:\n  task: [kaz/image, kaz/imag]\n  task.num_archer: [2]\n  task.max_cycles: [many]\n"
    )
    told = [(problem.line, problem.message.partition(", ")[0], problem.hint) for problem in report.problems]
    assert told == [
        (5, "task: found 'kaz/imag'", "did you mean kaz/image?"),
        (
            6,
            "BenchMARL has no key 'task.num_archer' with this choice of task",
            "did you mean task.num_archers?",
        ),
        (7, "task.max_cycles: found 'many'", None),
    ]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"task": "kaz/vector", "task__obs_method": "image"},
            "task.obs_method: found image, expected vector or",
        ),
        (
            {"task": "kaz/vector", "task__num_knights": 0},
            "task.num_knights: found 0, expected a whole number",
        ),
        (
            {"task": "multiwalker/shared", "task__terminate_on_fall": False},
            "expected true: a walker that falls",
        ),
        ({"task": "multiwalker/shared", "task__shared_reward": False}, "no key 'task.shared_reward'"),
        (
            {"task": "kaz/vector", "model": "layers/extra_mlp", "model__num_extra_dims": "x"},
            "found 'x', expected a",
        ),
    ],
)
def test_values_that_cannot_be_are_refused(overrides: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfigError, match=said.replace(".", r"\.")):
        composed(**overrides)

"""Bucket Brigade as an environment of TorchRL and as tasks of BenchMARL."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.types import Run

with warnings.catch_warnings():  # what these say of each other at import is theirs to say
    warnings.simplefilter("ignore")
    from torchrl.envs.utils import check_env_specs

    from jobs.trainers.benchmarl.configuration.building import try_build
    from jobs.trainers.benchmarl.configuration.config import compose
    from jobs.trainers.benchmarl.configuration.first_look import first_look
    from jobs.trainers.benchmarl.engine import evaluating
    from jobs.training.context import BadConfigError
    from jobs.training.games.bucket_brigade.baselines import GAP_CLOSED, TEAM_REWARD, with_gap
    from jobs.training.games.bucket_brigade.batch import GameBatch
    from jobs.training.games.bucket_brigade.catalogue import scenario_names
    from jobs.training.games.bucket_brigade.environment import BucketBrigadeEnv
    from jobs.training.games.bucket_brigade.game import actions_of

pytestmark = pytest.mark.filterwarnings("ignore")


def run(scenario: str = "rest_trap", algorithm: str = "ippo", **overrides: Any) -> Run:
    keys = {f"task.{key}": value for key, value in overrides.items()}
    return BENCHMARL.identify({"algorithm": algorithm, "task": f"bucket_brigade/{scenario}", **keys}, 0, 1)


@pytest.mark.parametrize("opponents", [0, 3, ["learner", "specialist", "learner", "random"]])
def test_the_environment_keeps_to_its_specs(opponents: int | list[str]) -> None:
    env = BucketBrigadeEnv(GameBatch(["hard", "rest_trap"], 8, opponents=opponents, nights=14))
    check_env_specs(env)
    played = env.rollout(40, break_when_any_done=False)
    done, terminated = played["next", "done"], played["next", "terminated"]
    assert (done == terminated | played["next", "truncated"]).all()
    assert terminated[4:].any(), "rest_trap ends when nothing burns"
    assert not terminated[:4].any(), "hard never ends before night 15"
    assert (done[:4].squeeze(-1).nonzero()[:, 1].view(4, -1) == torch.tensor([13, 27])).all()


def test_what_agents_see_and_earn() -> None:
    env = BucketBrigadeEnv(GameBatch(["minimal_specialization"], 6, seeds=[4]))
    shared = BucketBrigadeEnv(GameBatch(["minimal_specialization"], 6, seeds=[4]), shared_reward=True)
    torch.manual_seed(1)  # of the actions
    start = env.reset()
    assert start["agents", "observation"].shape == (6, 4, 42)
    assert (start["agents", "observation"][..., :38] == start["state"][:, None]).all()
    assert (start["agents", "observation"][..., 38:] == torch.eye(4)).all()
    step = env.rand_step(start)
    rewards = step["next", "agents", "reward"]
    assert (rewards != rewards[:, :1]).any()
    torch.testing.assert_close(step["next", "info", "team_reward"], rewards.sum(1))
    scaled = BucketBrigadeEnv(
        GameBatch(["minimal_specialization"], 6, seeds=[4]), one_hot=True, reward_scale=0.5
    )
    assert scaled.reset()["agents", "observation"].shape == (6, 4, 82)
    half = scaled.step(step.select(("agents", "action")))
    torch.testing.assert_close(half["next", "agents", "reward"], rewards / 2)
    torch.testing.assert_close(half["next", "info"], step["next", "info"])
    shared.reset()
    again = shared.step(step.select(("agents", "action")))
    torch.testing.assert_close(
        again["next", "agents", "reward"], rewards.mean(1, keepdim=True).expand(6, 4, 1)
    )


def test_the_40_choices_are_all_actions() -> None:
    expected = [[house, mode, signal] for house in range(10) for mode in range(2) for signal in range(2)]
    assert actions_of(torch.arange(40)).tolist() == expected


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_is_a_task(name: str) -> None:
    composed = compose(run(name))
    env = composed.task.get_env_fun(3, False, seed=1, device="cpu")()
    assert env.rollout(2)["agents", "action"].shape == (3, 2, 4)
    assert composed.task.max_steps(env) == 50


@pytest.mark.parametrize("algorithm", ["ippo", "mappo", "iql", "vdn", "qmix", "isac", "masac"])
def test_every_algorithm_for_discrete_actions_can_be_built(algorithm: str) -> None:
    try_build(compose(run(algorithm=algorithm)), render=False)


@pytest.mark.parametrize("observation", ["plain", "one_hot"])
def test_behaviour_is_logged_of_learners(observation: str) -> None:
    players = ["specialist", "learner", "uniform", "learner"]
    task = compose(run("hard", opponents=players, observation=observation)).task
    env = task.get_env_fun(200, False, seed=1, device="cpu")()
    played = env.rollout(30, break_when_any_done=False)
    trained = task.log_info(played)
    assert trained["collection/behaviour/work_rate"] == pytest.approx(0.5, abs=0.02)
    assert trained["collection/behaviour/own_house_share"] == pytest.approx(0.25, abs=0.02)
    evaluated = task.evaluation_info(played.flatten())
    team = played["next", "info", "team_reward"].mean().item()
    assert evaluated.pop("eval/team/reward_per_night") == pytest.approx(team)
    assert evaluated.pop("eval/team/gap_closed") == with_gap({TEAM_REWARD: team}, "hard")[GAP_CLOSED]
    assert evaluated == {name.replace("collection", "eval"): value for name, value in trained.items()}


def test_an_evaluation_has_the_figures_of_the_task_and_of_scripted_players(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluating, "_AT_ONCE", 40)
    changes = {"opponents": ["learner", "hero", "hero", "hero"], "reward_scale": 0.1}
    stage = evaluating.Stage(compose(run("rest_trap", **changes)), 100)
    found = stage.play(100, seed=0, deterministic=False, film=None)
    scripted = stage.baselines(100, 0)
    stage.close()
    assert len(found.returns) == 100
    # A policy that has learned nothing plays at random.
    uniform = scripted["uniform"]
    assert found.figures["behaviour/work_rate"] == pytest.approx(0.5, abs=0.05)
    assert found.figures["team/reward_per_night"] == pytest.approx(uniform["team/reward_per_night"], rel=0.05)
    assert sum(found.returns) / 100 == pytest.approx(uniform["return"], rel=0.1), "both are scaled"
    assert set(found.figures) == set(uniform) - {"return"}


@pytest.mark.parametrize(
    ("mistake", "message", "hint"),
    [
        ({"scenario": "rest_trip"}, "'bucket_brigade/rest_trip'", "did you mean bucket_brigade/rest_trap?"),
        ({"opponents": 5}, "task.opponents: 5 opponents: expected 0 to 4", None),
        ({"opponents": 4}, "expected fewer opponents than agents", None),
        ({"opponents": ["heroe"]}, "no player named 'heroe'; did you mean hero?", None),
        ({"opponents": "hero"}, "expected a number or a list", None),
        ({"observation": "hot"}, "task.observation: found hot, expected plain or one_hot", None),
        ({"reward_scale": 0}, "task.reward_scale: found 0.0, expected a number above 0", None),
        ({"max_steps": 0}, "task.max_steps: found 0, expected a whole number from 1", None),
    ],
)
def test_a_mistake_is_told_in_a_line(mistake: dict[str, Any], message: str, hint: str | None) -> None:
    problems = [(problem.message, problem.hint) for problem in first_look([run(**mistake)])]
    if not problems:
        with pytest.raises(BadConfigError) as refused:
            compose(run(**mistake))
        problems = [(str(refused.value), refused.value.hint)]
    assert message in problems[0][0]
    assert problems[0][1] == hint

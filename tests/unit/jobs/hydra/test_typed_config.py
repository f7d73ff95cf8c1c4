"""A configuration that is a dataclass: composed, and refused with the nearest right spelling."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from jobs.hydra.typed_config import Choice, TypedConfig
from jobs.training.config_errors import RefusedKeyError, unexpected
from jobs.training.context import BadConfigError
from jobs.training.time_budget import checked_minutes
from orchestrator.core.types import Run, Value
from tests.helpers import ROOT


class Network(Enum):
    mlp = "mlp"
    transformer = "transformer"


@dataclass(frozen=True)
class Env:
    name: str
    max_steps: int = 500


@dataclass(frozen=True)
class Game(Env):
    opponents: Any = 1


@dataclass
class Ppo:
    env: Env
    steps: int = 10_000
    batch: int = 2048
    lr: float = 3e-4
    anneal: bool = False
    layers: list[int] = field(default_factory=lambda: [64, 64])
    network: Network = Network.mlp
    clip: float | None = None
    checkpoint_interval: int = "${steps}"  # type: ignore[assignment]


ENVS = ("bucket_brigade/easy", "bucket_brigade/hard", "gymnasium/CartPole-v1", "gymnasium/Acrobot-v1")


def schema(choices: Mapping[str, str]) -> Ppo:
    name = choices["env"]
    return Ppo(Game(name) if name.startswith("bucket") else Env(name))


PPO = TypedConfig(
    name="PPO",
    schema=schema,
    choices={"env": Choice(lambda: ENVS, example="gymnasium/CartPole-v1")},
    presets={"large": {"batch": 16_384, "lr": 1e-3}},
    own_keys={"minutes": checked_minutes},
    other_keys={"learning_rate": ("lr",), "scenario": ("env",), "cpu": ("anneal",)},
    other_options={"env": {"cartpole": "gymnasium/CartPole-v1"}},
)
GAME = {"env": "bucket_brigade/hard"}


def run_of(overrides: Mapping[str, Value], number: int = 0, seed: int = 0) -> Run:
    return Run(f"{number:016}", "ppo", {**overrides}, seed, 1, None)


def test_a_grid_sets_fields_by_dotted_keys() -> None:
    config = PPO.compose(
        {**GAME, "env.opponents": [1, 2], "lr": 1, "layers": [8], "network": "transformer", "minutes": 5}
    )
    assert config == Ppo(
        Game("bucket_brigade/hard", opponents=[1, 2]),
        lr=1.0,
        layers=[8],
        network=Network.transformer,
        checkpoint_interval=10_000,
    )
    assert isinstance(config.lr, float)
    assert PPO.compose({"env": "gymnasium/CartPole-v1"}).env == Env("gymnasium/CartPole-v1")


def test_a_preset_sets_values_before_the_run_does() -> None:
    config = PPO.compose({**GAME, "preset": "large", "lr": 0.5})
    assert (config.batch, config.lr) == (16_384, 0.5)


def test_values_refer_to_other_keys() -> None:
    config = PPO.compose({**GAME, "batch": "${env.max_steps}", "env.max_steps": 50, "steps": "${batch}"})
    assert (config.batch, config.steps, config.checkpoint_interval) == (50, 50, 50)


MISTAKES: list[tuple[dict[str, Value], str | None, str, str | None]] = [
    ({"lrr": 1}, "lrr", "PPO has no key 'lrr'", "did you mean lr?"),
    ({"learning_rate": 1}, "learning_rate", "PPO has no key 'learning_rate'", "did you mean lr?"),
    (
        {"env.max_stepz": 1},
        "env.max_stepz",
        "PPO has no key 'env.max_stepz' with this choice of env",
        "did you mean env.max_steps?",
    ),
    ({"cpu": 1}, "cpu", "PPO has no key 'cpu'", "did you mean anneal?"),
    ({"minute": 1}, "minute", "PPO has no key 'minute'", "did you mean minutes?"),
    ({"minutes": "5m"}, "minutes", "minutes: found '5m', expected minutes of training above 0", None),
    (
        {"gpus": 1},
        "gpus",
        "PPO has no key 'gpus'",
        "did you mean resources: {gpus: …}, at",
    ),
    ({"steps": 0.5}, "steps", "steps: found 0.5, expected a whole number", None),
    ({"lr": "fast"}, "lr", "lr: found 'fast', expected a number", None),
    ({"anneal": "maybe"}, "anneal", "anneal: found 'maybe', expected true or false", None),
    ({"lr": None}, "lr", "lr: found nothing, expected a value", "leave it out"),
    (
        {"layers": 64},
        "layers",
        "layers: found 64, expected a list",
        "write layers: [64] in base; in matrix, where a list holds one value a run, [[64]]",
    ),
    (
        {"network": "transfromer"},
        "network",
        "network: found 'transfromer', expected one of: mlp, transformer",
        "did you mean transformer?",
    ),
    ({"+lr": 1}, "+lr", "PPO takes no key with + or ~: +lr", "write lr, or leave it out"),
    ({"~lr": None}, "~lr", "PPO takes no key with + or ~: ~lr", "write lr, or leave it out"),
    (
        {"batch": "${stepz}"},
        "batch",
        "batch: found '${stepz}': PPO has no",
        "did you mean ${steps}?",
    ),
    ({"batch": "${lr}"}, "batch", "batch: found '${lr}', expected a whole number", None),
    ({"batch": "${batch}"}, "batch", "batch: found '${batch}': the reference leads to itself", None),
    ({"batch": "${oc.env:HOME}"}, "batch", "batch: '${oc.env:HOME}' asks", "write the value itself"),
    (
        {"env": "bucket_brigade/hrad"},
        "env",
        "env: found 'bucket_brigade/hrad', expected one of: bucket_brigade/easy",
        "did you mean bucket_brigade/hard?",
    ),
    (
        {"env": "CartPole"},
        "env",
        "env: found 'CartPole', expected",
        "did you mean gymnasium/CartPole-v1",
    ),
    (
        {"env": "bucket_brigade"},
        "env",
        "env: found 'bucket_brigade'",
        "name one of that family: bucket_br",
    ),
    (
        {"env": {"max_steps": 3}},
        "env",
        "env: found a mapping of max_steps",
        "nested keys take dots",
    ),
    ({"+preset": "large"}, "+preset", "PPO takes no key with + or ~", "write preset, or leave it out"),
    ({"env@other": "large"}, "env@other", "PPO has no key 'env@other'", None),
    ({"preset": "larg"}, "preset", "preset: found 'larg', expected one of: large", "did you mean large?"),
]


@pytest.mark.parametrize(("overrides", "key", "message", "hint"), MISTAKES)
def test_mistakes_are_refused_in_one_line(
    overrides: dict[str, Value], key: str, message: str, hint: str | None
) -> None:
    with pytest.raises(RefusedKeyError) as refused:
        PPO.compose({**GAME, **overrides})
    assert refused.value.key == key
    assert str(refused.value).startswith(message)
    assert (refused.value.hint or "").startswith(hint or "")
    assert bool(refused.value.hint) == bool(hint)
    [problem] = PPO.problems([run_of({**GAME, **overrides})])
    assert (problem.key, problem.message, problem.hint) == (key, str(refused.value), refused.value.hint)


def test_a_key_of_another_option_is_named() -> None:
    [problem] = PPO.problems([run_of({"env": "gymnasium/CartPole-v1", "env.opponents": 2})])
    assert problem.message == "PPO has no key 'env.opponents' with this choice of env"
    [problem] = OTHERS.problems([run_of({"env": "game/a", "env.opponents": 2})])
    assert problem.message == "env.opponents: game/a has no such key; game/b has it"


OTHERS = TypedConfig(
    name="PPO",
    schema=lambda choices: Ppo((Game if choices["env"] == "game/b" else Env)(choices["env"])),
    choices={"env": Choice(lambda: ("game/a", "game/b"))},
)


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        ({}, "add it to base or matrix, such as env: gymnasium/CartPole-v1"),
        ({"scenario": "hard"}, "scenario → env"),
        ({"+env": "bucket_brigade/hard"}, "+env → env"),
        ({"~env": None}, "~env → env"),
    ],
)
def test_a_choice_without_a_default_is_required(overrides: dict[str, Value], hint: str) -> None:
    with pytest.raises(BadConfigError, match="the run names no env") as refused:
        PPO.compose(overrides)
    assert refused.value.hint == hint


def test_every_fault_is_found_once_with_its_first_run() -> None:
    grid = [
        run_of({"env": env, "lr": lr, "stepz": 1}, number, seed)
        for number, (env, lr, seed) in enumerate(
            (env, lr, seed) for env in ENVS[:2] for lr in ("fast", 0.1) for seed in range(2)
        )
    ]
    found = [(problem.run_id, problem.key) for problem in PPO.problems(grid)]
    assert found == [(grid[0].run_id, "lr"), (grid[0].run_id, "stepz")]


def test_each_configuration_of_right_values_is_checked() -> None:
    checked: list[tuple[str, float]] = []

    def check_one(config: Ppo) -> None:
        checked.append((config.env.name, config.lr))
        if config.lr > 0.1:
            raise unexpected("lr", config.lr, "a number up to 0.1")

    runs = [run_of({**GAME, "lr": lr}) for lr in (0.1, 0.2, "fast")]
    assert [problem.message for problem in PPO.problems(runs, check_one)] == [
        "lr: found 0.2, expected a number up to 0.1",
        "lr: found 'fast', expected a number",
    ]
    assert checked == [("bucket_brigade/hard", 0.1), ("bucket_brigade/hard", 0.2)]


def test_a_value_that_is_missing_is_named() -> None:
    @dataclass
    class Config:
        steps: int = "???"  # type: ignore[assignment]

    with pytest.raises(BadConfigError, match="steps has no value") as refused:
        TypedConfig("mine", lambda choices: Config()).compose({})
    assert refused.value.hint == "add steps to base or matrix"


def test_the_page_shows_a_configuration_that_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "trainer.md").read_text()
    section = page.partition("## Keys with types")[2]
    file = tmp_path / "shown.py"
    file.write_text(section.partition("```python\n")[2].partition("```")[0])
    shown = runpy.run_path(str(file))
    overrides = {"hill": "high", "preset": "quick", "hill.height": 4, "speed": "${hill.height}"}
    config = shown["CONFIG"].compose(overrides)
    assert config == shown["Config"](shown["Hill"](4.0), frames=1_000, speed=4.0)
    wrong: list[dict[str, Value]] = [{"speed": 11}, {"learning_rate": 1}, {"frames": "${hill.height}"}]
    problems = shown["check"]([run_of({"hill": "low", **one}) for one in wrong])
    assert [(problem.message, problem.hint) for problem in problems] == [
        ("speed: found 11.0, expected a number above 0, at most 10", None),
        ("my trainer has no key 'learning_rate'", "did you mean speed?"),
        ("frames: found '${hill.height}', expected a whole number", None),
    ]


@dataclass
class Logged:
    folder: str = "${oc.env:A_VARIABLE_THAT_IS_NOT_SET}"


def test_a_value_in_place_of_a_default_that_cannot_be_resolved_is_right() -> None:
    logged = TypedConfig("Logged", lambda choices: Logged())
    assert logged.problems([run_of({"folder": "/data"})]) == []

"""Which policy of a training is kept as its best."""

from __future__ import annotations

import math

import pytest

from orchestrator.rundir import Row

RETURN = "eval/reward/episode_reward_mean"

pytestmark = pytest.mark.filterwarnings("ignore")


def row(frames: int, value: float | None) -> Row:
    return Row(frames // 10, frames, 0.0, {} if value is None else {RETURN: value})


def test_the_first_of_the_highest_is_kept_as_it_was_then() -> None:
    import torch

    from jobs.training.best_policy import BestPolicy

    policy, best = torch.nn.Linear(1, 1), BestPolicy()
    state = torch.random.get_rng_state()
    for number, value in enumerate((None, -5.0, 2.0, math.nan, 2.0, 1.0, None)):
        torch.nn.init.constant_(policy.weight, number)
        best.consider(row(10 * number, value), policy.state_dict)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (best.frames, best.value) == (20, 2.0)
    assert best.policy is not None
    assert best.policy["weight"].item() == 2.0

    again = BestPolicy()
    again.load(best.save())
    again.consider(row(100, 1.9), policy.state_dict)
    assert again.save() == best.save()
    again.consider(row(110, 2.1), policy.state_dict)
    assert (again.frames, again.value) == (110, 2.1)


def test_nothing_is_best_before_an_evaluation() -> None:
    import torch

    from jobs.training.best_policy import BestPolicy

    best = BestPolicy()
    best.consider(row(10, None), torch.nn.Linear(1, 1).state_dict)
    best.consider(row(20, math.nan), torch.nn.Linear(1, 1).state_dict)
    assert best.save() == {"policy": None, "frames": 0, "value": -math.inf}

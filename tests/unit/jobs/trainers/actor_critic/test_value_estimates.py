"""Value estimates against sums in plain Python, written from their definitions."""

from __future__ import annotations

from math import exp, prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jobs.trainers.actor_critic.rollout import Rollout
from jobs.trainers.actor_critic.value_estimates import advantages, vtrace

CONTINUES, TERMINATED, TRUNCATED = "continues", "terminated", "truncated"
NUMBERS = st.floats(-2, 2, width=32)


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[Rollout, torch.Tensor, torch.Tensor]:
    """Draw a rollout with episodes that end in any step, and the learner's log-probabilities and values."""
    steps, rows = draw(st.integers(1, 6)), draw(st.integers(1, 3))

    def numbers(*shape: int) -> torch.Tensor:
        size = torch.Size(shape).numel()
        return torch.tensor(draw(st.lists(NUMBERS, min_size=size, max_size=size))).view(shape)

    ends = [
        [draw(st.sampled_from([CONTINUES, CONTINUES, TERMINATED, TRUNCATED])) for _ in range(rows)]
        for _ in range(steps)
    ]
    truncated = torch.tensor([[end == TRUNCATED for end in row] for row in ends])
    rollout = Rollout(
        seen=torch.zeros(steps, rows, 1),
        actions=torch.zeros(steps, rows, 1, dtype=torch.int64),
        logs=numbers(steps, rows),
        values=numbers(steps, rows),
        rewards=numbers(steps, rows),
        ended=torch.tensor([[end != CONTINUES for end in row] for row in ends]),
        after=torch.where(truncated, numbers(steps, rows), 0.0),
        last_values=numbers(rows),
    )
    return rollout, numbers(steps, rows), numbers(steps, rows)


def episodes(rollout: Rollout) -> list[tuple[int, list[int]]]:
    """Return the row and the steps of each episode, or of the part of it that the rollout has."""
    found = []
    for row in range(rollout.rewards.shape[1]):
        steps: list[int] = []
        for step in range(len(rollout.rewards)):
            steps.append(step)
            if rollout.ended[step, row] or step == len(rollout.rewards) - 1:
                found.append((row, steps))
                steps = []
    return found


def beyond(rollout: Rollout, row: int, step: int) -> float:
    """Return the value of what follows an episode's last step."""
    if rollout.ended[step, row]:
        return float(rollout.after[step, row])
    return float(rollout.last_values[row])


@given(rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_advantages_are_sums_of_discounted_errors_within_an_episode(
    drawn: tuple[Rollout, torch.Tensor, torch.Tensor], discount: float, trace: float
) -> None:
    rollout, _, _ = drawn
    found = advantages(rollout, discount, trace)
    for row, steps in episodes(rollout):
        rewards, values = (one[steps, row].tolist() for one in (rollout.rewards, rollout.values))
        values.append(beyond(rollout, row, steps[-1]))
        for start, step in enumerate(steps):
            expected = sum(
                (discount * trace) ** (at - start) * (rewards[at] + discount * values[at + 1] - values[at])
                for at in range(start, len(steps))
            )
            assert float(found[step, row]) == pytest.approx(expected, rel=1e-3, abs=1e-3)


@given(rollouts(), st.floats(0, 1), st.floats(0.1, 3), st.floats(0.1, 3))
def test_vtrace_is_the_sum_of_the_paper(
    drawn: tuple[Rollout, torch.Tensor, torch.Tensor], discount: float, rho_clip: float, c_clip: float
) -> None:
    """v_s = V(x_s) + Σ_t γ^(t-s) (Π_{i<t} c_i) ρ_t (r_t + γ V(x_{t+1}) - V(x_t)), of Section 4.1.

    The policy's advantage is ρ_s (r_s + γ v_{s+1} - V(x_s)), of Section 4.2.
    """
    rollout, logs, learned = drawn
    targets, gained = vtrace(rollout, logs, learned, discount, rho_clip, c_clip)
    for row, steps in episodes(rollout):
        ratios = [exp(float(logs[step, row] - rollout.logs[step, row])) for step in steps]
        rho, c = ([min(ratio, clip) for ratio in ratios] for clip in (rho_clip, c_clip))
        rewards, values = (one[steps, row].tolist() for one in (rollout.rewards, learned))
        values.append(beyond(rollout, row, steps[-1]))
        errors = [rewards[at] + discount * values[at + 1] - values[at] for at in range(len(steps))]
        expected = [
            values[start]
            + sum(
                discount ** (at - start) * prod(c[start:at]) * rho[at] * errors[at]
                for at in range(start, len(steps))
            )
            for start in range(len(steps) + 1)
        ]
        for start, step in enumerate(steps):
            assert float(targets[step, row]) == pytest.approx(expected[start], rel=1e-3, abs=1e-3)
            policy = rho[start] * (rewards[start] + discount * expected[start + 1] - values[start])
            assert float(gained[step, row]) == pytest.approx(policy, rel=1e-3, abs=1e-3)


def test_vtrace_of_the_policy_that_played_is_the_return_of_many_steps() -> None:
    steps, rows = 5, 3
    torch.manual_seed(0)
    logs, values, rewards = torch.randn(3, steps, rows)
    nothing, ended = torch.zeros(0), torch.zeros(steps, rows, dtype=torch.bool)
    rollout = Rollout(nothing, nothing, logs, values, rewards, ended, torch.zeros(steps, rows), values[0])
    targets, gained = vtrace(rollout, logs, values, 0.9, 1.0, 1.0)
    torch.testing.assert_close(gained, advantages(rollout, 0.9, 1.0))
    torch.testing.assert_close(targets, gained + values)

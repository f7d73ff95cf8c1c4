"""PPO's parts against plain formulas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional

from jobs.trainers.actor_critic.group import ALONE
from jobs.trainers.actor_critic.networks import (
    ActorCritic,
    Pictures,
    RunningMoments,
    convolutions,
    mlp,
    residual,
)

PARTS = (10, 2, 2)


def network(seed: int = 0) -> ActorCritic:
    torch.manual_seed(seed)
    return ActorCritic((5,), PARTS, *mlp(5, [8]))


@pytest.mark.parametrize("scale", [0.1, 10.0, 60.0])
def test_log_probabilities_are_those_of_independent_categoricals(scale: float) -> None:
    torch.manual_seed(1)
    logits = scale * torch.randn(200, sum(PARTS))
    actions = torch.stack([torch.randint(size, (200,)) for size in PARTS], -1)
    found, entropy = network().log_probabilities(logits, actions)
    parts = [Categorical(logits=part) for part in logits.split(PARTS, -1)]
    expected = sum(part.log_prob(action) for part, action in zip(parts, actions.unbind(-1), strict=True))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy, sum(part.entropy() for part in parts), rtol=1e-4, atol=1e-3)


def test_a_fresh_network_values_all_alike_and_plays_at_random() -> None:
    """Beside rewards in units of their deviation, once observations have any."""
    fresh, seen = network(), torch.randn(1000, 5)
    logits, values = fresh(seen)
    assert not values.any()
    assert not fresh.in_rewards(values).any()
    assert fresh.seen is not None
    fresh.seen.update(*ALONE.moments(seen))
    logits, values = fresh(seen)
    assert 0.001 < values.std() < 0.1
    assert logits.abs().max() < 0.05


def test_actions_are_drawn_as_often_as_their_probabilities_say() -> None:
    played, draws = network(), 40_000
    seen = torch.randn(1, 5).expand(draws, -1)
    actions, logs, _ = played.act(seen, torch.Generator().manual_seed(0))
    logits, _ = played(seen[:1])
    for part, logs_of_part in enumerate(logits.split(PARTS, -1)):
        shares = torch.bincount(actions[:, part], minlength=PARTS[part]) / draws
        torch.testing.assert_close(shares, logs_of_part.softmax(-1)[0], rtol=0, atol=0.01)
    assert torch.equal(logs, played.log_probabilities(logits.expand(draws, -1), actions)[0])
    likely = played.act(seen[:2], None)[0]
    assert likely.tolist() == [[int(part.argmax()) for part in logits[0].split(PARTS)]] * 2


def test_moments_of_parts_are_those_of_the_whole() -> None:
    rows: Tensor = torch.randn(1000, 3) * torch.tensor([1.0, 5.0, 0.0]) + torch.tensor([0.0, 3.0, 2.0])
    moments = RunningMoments(3)
    for part in rows.split([1, 499, 200, 300]):
        moments.update(*ALONE.moments(part))
    torch.testing.assert_close(moments.mean, rows.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(moments.variance, rows.var(0, correction=0), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e6])
def test_moments_have_no_scale_of_their_own(scale: float) -> None:
    """Of columns: one that varies, one far from 0, one that is constant, and one that is constant so far."""
    rows = torch.cat((torch.randn(500, 2) + torch.tensor([0.0, 1e3]), torch.full((500, 2), 1 / 3)), 1) * scale
    moments = RunningMoments(4)
    assert not moments.normalized(rows).any()
    for part in rows.split(50):
        moments.update(*ALONE.moments(part))
    found = moments.normalized(rows)
    torch.testing.assert_close(found[:, :2].std(0, correction=0), torch.ones(2), rtol=1e-2, atol=0)
    assert not found[:, 2:].any()
    torch.testing.assert_close(moments.restored(found), rows, rtol=1e-5, atol=1e-6 * scale)
    assert not moments.normalized(rows + scale)[:, 2:].any()
    moments.update(*ALONE.moments(rows + torch.tensor([0.0, 0.0, 0.0, scale])))
    assert moments.normalized(rows + scale)[:, 3].all()


def test_observations_are_left_alone_if_asked_for() -> None:
    seen = 100 * torch.randn(3, 5)
    assert torch.equal(ActorCritic((5,), PARTS, *mlp(5, [8]), normalized=False).prepared(seen), seen)


def test_a_policy_saved_with_the_former_floor_keeps_its_deviations() -> None:
    played = network()
    saved = {**played.state_dict(), "seen.variance": torch.full((5,), 0.03), "seen.count": torch.tensor(7.0)}
    played.load_state_dict({name: one for name, one in saved.items() if "advantages" not in name})
    assert played.seen is not None
    torch.testing.assert_close(played.seen.deviation, torch.full((5,), 0.2))
    assert saved["seen.variance"][0] == 0.03
    again = network(1)
    again.load_state_dict(played.state_dict())
    torch.testing.assert_close(again.seen.deviation, played.seen.deviation)  # type: ignore[union-attr]


@pytest.mark.parametrize("build", [convolutions, residual])
def test_many_pictures_are_like_few(build: Callable[..., tuple[nn.Module, int]]) -> None:
    pictures = torch.randint(0, 256, (300, 36, 36, 3), dtype=torch.uint8)
    body, features = build((36, 36, 3), torch.float32)
    assert isinstance(body, Pictures)
    pictures = body.prepared(pictures)
    found = body(pictures)
    assert found.shape == (300, features)
    torch.testing.assert_close(found, torch.cat([body(part) for part in pictures.split(100)]))


def test_pictures_are_numbers_from_0_to_1_in_a_plain_network() -> None:
    pictures = torch.randint(0, 256, (3, 41, 64, 3), dtype=torch.uint8)
    torch.manual_seed(0)
    body, _ = convolutions((41, 64, 3), torch.float32)
    assert isinstance(body, Pictures)
    layers = (body.layers[number] for number in (0, 2, 4))
    rows = pictures.permute(0, 3, 1, 2).contiguous() / 255
    for layer, stride in zip(layers, (4, 2, 1), strict=True):
        rows = functional.conv2d(rows, layer.weight, layer.bias, stride).relu()
    expected = body.head(rows.permute(0, 2, 3, 1).flatten(1)).relu()
    torch.testing.assert_close(body(body.prepared(pictures)), expected)
    half, _ = convolutions((41, 64, 3), torch.bfloat16)
    assert isinstance(half, Pictures)
    half.load_state_dict(body.state_dict())
    torch.testing.assert_close(half(half.prepared(pictures)), expected, rtol=0.05, atol=0.02)

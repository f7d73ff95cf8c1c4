"""Networks of the trainers: what an agent sees in, logits of its action's parts and a value out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

_CLIP = 5.0  # observations beyond so many standard deviations count as so many
_LEAST_VARIANCE = 1e-2


class RunningMoments(nn.Module):
    """Mean and variance of all rows (R, W) so far, column by column."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Take these rows in."""
        variance, mean = torch.var_mean(rows, 0, correction=0)
        count = self.count + len(rows)
        share, apart = len(rows) / count, mean - self.mean
        self.variance += share * (variance - self.variance) + share * (1 - share) * apart.square()
        self.mean += share * apart
        self.count.copy_(count)

    @property
    def deviation(self) -> Tensor:
        """Standard deviation, never 0."""
        return (self.variance + _LEAST_VARIANCE).sqrt()


class ActorCritic(nn.Module):
    """A policy with a value: ``parts`` are the sizes of the action's parts, each drawn by itself.

    ``body``: a network from observations (R, W) to features (R, F). Observations are normalized by the
    moments of those seen in training; the value is that of returns in units of their deviation.
    """

    begins: Tensor

    def __init__(self, width: int, parts: Sequence[int], body: nn.Module, features: int) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.seen = RunningMoments(width)
        self.returns = RunningMoments(1)
        self.body = body
        begins = [sum(self.parts[:number]) for number in range(len(parts))]
        self.register_buffer("begins", torch.tensor(begins), persistent=False)
        self.policy = _linear(features, sum(parts), gain=0.01)
        self.value = _linear(features, 1, gain=1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (R, sum of parts) and normalized values (R)."""
        return self.of_normalized(self.normalized(observations))

    def of_normalized(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same of observations that are normalized already."""
        features = self.body(observations)
        # One product for both, with the numbers of many rows side by side: see log_probabilities.
        weight = torch.cat((self.policy.weight, self.value.weight))
        bias = torch.cat((self.policy.bias, self.value.bias))
        columns = (weight @ features.T).add_(bias[:, None])
        return columns[:-1].T, columns[-1]

    def normalized(self, observations: Tensor) -> Tensor:
        """Return observations in deviations from their mean."""
        return ((observations - self.seen.mean) / self.seen.deviation).clamp(-_CLIP, _CLIP)

    @torch.no_grad()
    def act(self, observations: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions (R, parts), their log-probabilities (R) and values in units of rewards (R).

        Without a generator, return the most likely actions.
        """
        logits, values = self(observations)
        scores = logits
        if generator is not None:  # the largest sum with Gumbel noise is a draw from the softmax
            uniform = torch.rand(logits.T.shape, generator=generator, device=logits.device)
            scores = logits - uniform.log_().neg_().log_().T
        # Like argmax, in a seventh of its time.
        actions = torch.stack([part.max(0).indices for part in scores.T.split(self.parts)], -1)
        return actions, self.log_probabilities(logits, actions)[0], self.in_rewards(values)

    def log_probabilities(self, logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of actions (R, parts) and entropies, both summed over the parts (R).

        A softmax over a few numbers is fast where those of many rows lie side by side.
        """
        logs = torch.cat([part.log_softmax(0) for part in logits.T.split(self.parts)])
        chosen = logs.gather(0, (actions + self.begins).T).sum(0)
        return chosen, -(logs.exp() * logs).sum(0)

    def in_rewards(self, values: Tensor) -> Tensor:
        """Return normalized values in units of rewards."""
        return values * self.returns.deviation + self.returns.mean

    def normalized_returns(self, returns: Tensor) -> Tensor:
        """Invert :meth:`in_rewards`."""
        return (returns - self.returns.mean) / self.returns.deviation


def mlp(width: int, hidden: Sequence[int]) -> tuple[nn.Module, int]:
    """Return a network of tanh layers and its number of features."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [_linear(width, size, gain=math.sqrt(2)), nn.Tanh()]
        width = size
    return nn.Sequential(*layers), width


class Transformer(nn.Module):
    """Attention over the numbers of an observation: a token for each, the mean of all out."""

    def __init__(self, width: int, features: int, layers: int, heads: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width, features) / math.sqrt(features))
        self.place = nn.Parameter(torch.randn(width, features) / math.sqrt(features))
        layer = nn.TransformerEncoderLayer(
            features, heads, 2 * features, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(features), enable_nested_tensor=False)

    def forward(self, observations: Tensor) -> Tensor:
        """Return features (R, F) of normalized observations (R, W)."""
        features: Tensor = self.layers(observations[..., None] * self.scale + self.place)
        return features.mean(-2)


class _Linear(nn.Linear):
    """A linear layer that adds its bias after the product: two thirds of the time, where layers are small."""

    def forward(self, rows: Tensor) -> Tensor:
        return (rows @ self.weight.T).add_(self.bias)


def _linear(width: int, size: int, gain: float) -> nn.Linear:
    layer = _Linear(width, size)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer

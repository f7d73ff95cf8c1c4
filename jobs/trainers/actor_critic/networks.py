"""Networks of the trainers: what an agent sees in, logits of its action's parts and a value out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from jobs.trainers.actor_critic.config import PICTURES_AT_ONCE

_CLIP = 5.0  # observations beyond so many standard deviations count as so many
# Deviations below so many times the mean are rounding of single precision, whose numbers are 1.2e-7 apart.
_ROUNDING = 1e-6
# What was added to each variance in policies that were saved with a count of single precision.
_ADDED_VARIANCE = 1e-2
# Channels, kernel and stride.
_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
# Of the networks for pictures.
FEATURES, RESIDUAL_FEATURES = 512, 256

L = TypeVar("L", nn.Linear, nn.Conv2d)


def at_once(rows: Tensor) -> int:
    """Return how many of these rows (R, *S) a network learns from fastest at a time."""
    return PICTURES_AT_ONCE if rows.dim() == 4 and rows.device.type == "cpu" else len(rows)


def deviation_beside(mean: Tensor, variance: Tensor) -> Tensor:
    """Return standard deviations, 0 where they are no more than the rounding of numbers of this mean."""
    deviation = variance.sqrt()
    return torch.where(deviation > _ROUNDING * mean.abs(), deviation, 0.0)


def in_deviations(rows: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Return rows as distances from the mean in deviations: 0 where these are 0, as nothing tells a scale."""
    return (rows - mean) * torch.where(deviation == 0, 0.0, 1 / deviation)


class RunningMoments(nn.Module):
    """Mean and variance of all rows (R, W) so far, column by column; both are 0 before the first."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.zeros(width))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, rows: int, mean: Tensor, variance: Tensor, memory: int | None = None) -> None:
        """Take so many rows in, by their moments; those before count as ``memory`` less these at most."""
        count = self.count + rows
        share, apart = rows / (count if memory is None else count.clamp(max=memory)), mean - self.mean
        self.variance += share * (variance - self.variance) + share * (1 - share) * apart.square()
        self.mean += share * apart
        self.count.copy_(count)

    @property
    def deviation(self) -> Tensor:
        """Standard deviation; 0 in columns that are constant but for rounding."""
        return deviation_beside(self.mean, self.variance)

    def normalized(self, rows: Tensor) -> Tensor:
        """Return rows in deviations from their mean."""
        return in_deviations(rows, self.mean, self.deviation)

    def restored(self, rows: Tensor) -> Tensor:
        """Invert :meth:`normalized`; the mean in constant columns."""
        return rows * self.deviation + self.mean

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load as PyTorch does; a policy with the former floor keeps the deviations it was trained with."""
        count = state_dict.get(f"{prefix}count")
        if count is not None and count.is_floating_point():
            state_dict[f"{prefix}variance"] = state_dict[f"{prefix}variance"] + _ADDED_VARIANCE
        super()._load_from_state_dict(state_dict, prefix, *others)


class ActorCritic(nn.Module):
    """A policy with a value: ``parts`` are the sizes of the action's parts, each drawn by itself.

    ``body``: a network from observations (R, *S) to features (R, F). Observations of one dimension are, if
    ``normalized``, so by the moments of those seen in training; pictures are left to the body. The value is
    that of returns in units of their deviation. A fresh network's is small: advantages are scaled to a
    deviation of 1, and where rewards are rare it would learn from the noise of its own estimates.
    """

    begins: Tensor

    def __init__(
        self,
        shape: Sequence[int],
        parts: Sequence[int],
        body: nn.Module,
        features: int,
        normalized: bool = True,
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.seen = RunningMoments(shape[0]) if normalized and len(shape) == 1 else None
        self.returns = RunningMoments(1)
        # One row for each update, whose variance is that of its advantages.
        self.advantages = RunningMoments(1)
        self.body = body
        begins = [sum(self.parts[:number]) for number in range(len(parts))]
        self.register_buffer("begins", torch.tensor(begins), persistent=False)
        self.policy = _linear(features, sum(parts), gain=0.01)
        self.value = _linear(features, 1, gain=0.1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load as PyTorch does; former policies have no moments of advantages, which only training needs."""
        for name, own in self.advantages.state_dict(prefix=f"{prefix}advantages.").items():
            state_dict.setdefault(name, own)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (R, sum of parts) and normalized values (R)."""
        return self.of_prepared(self.prepared(observations))

    def of_prepared(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same of observations that are prepared already."""
        features = self.body(observations)
        # One product for both, with the numbers of many rows side by side: see log_probabilities.
        weight = torch.cat((self.policy.weight, self.value.weight))
        bias = torch.cat((self.policy.bias, self.value.bias))
        columns = (weight @ features.T).add_(bias[:, None])
        return columns[:-1].T, columns[-1]

    def prepared(self, observations: Tensor) -> Tensor:
        """Return observations in deviations from their mean, pictures as the body prepares them."""
        if self.seen is None:
            return self.body.prepared(observations) if isinstance(self.body, Pictures) else observations
        return self.seen.normalized(observations).clamp(-_CLIP, _CLIP)

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
        return self.returns.restored(values)

    def normalized_returns(self, returns: Tensor) -> Tensor:
        """Invert :meth:`in_rewards`."""
        return self.returns.normalized(returns)


def mlp(width: int, hidden: Sequence[int]) -> tuple[nn.Module, int]:
    """Return a network of tanh layers and its number of features."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [_linear(width, size, gain=math.sqrt(2)), nn.Tanh()]
        width = size
    return nn.Sequential(*layers), width


class Pictures(nn.Module):
    """A network for pictures of bytes (R, H, W, C): layers from (R, C, H, W), then one of so many features.

    ``shape``: of what the layers take of a picture, from its upper left. ``precision``: the type of products.
    ``block``: the first layer takes the pixels of a square of so many as channels.
    """

    def __init__(
        self,
        shape: Sequence[int],
        precision: torch.dtype,
        layers: Sequence[nn.Module],
        features: int,
        block: int = 1,
    ) -> None:
        super().__init__()
        self._block = block
        self._height, self._width, _ = shape
        self._precision = precision
        self.layers = nn.Sequential(*layers)
        with torch.no_grad():
            width = self._in_rows(self.prepared(torch.zeros(1, *shape))).shape[1]
        self.head = _orthogonal(nn.Linear(width, features), math.sqrt(2))
        self.to(memory_format=torch.channels_last)

    def prepared(self, pictures: Tensor) -> Tensor:
        """Return what :meth:`forward` takes of pictures, once for all times."""
        pictures = pictures[:, : self._height, : self._width]
        if self._block == 1:
            return pictures
        squares = pictures.unflatten(2, (-1, self._block)).unflatten(1, (-1, self._block))
        return squares.transpose(2, 3).flatten(3)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return features (R, F) of prepared pictures."""
        reduced = self._precision != torch.float32
        with torch.autocast(pictures.device.type, dtype=self._precision, enabled=reduced):
            parts = [self._in_rows(part.to(self._precision)) for part in pictures.split(at_once(pictures))]
            return torch.cat([self.head(part).relu_() for part in parts]).float()

    def _in_rows(self, pictures: Tensor) -> Tensor:
        """Return the numbers of the last layer (R, F). Channels stay last: nothing is copied."""
        found: Tensor = self.layers(pictures.permute(0, 3, 1, 2))
        return found.permute(0, 2, 3, 1).flatten(1)


def convolutions(shape: Sequence[int], precision: torch.dtype) -> tuple[nn.Module, int]:
    """Return the network of Mnih et al., 2015 (doi:10.1038/nature14236), and its number of features."""
    layers: list[nn.Module] = []
    channels, kind = shape[-1], _OfBytes
    for size, kernel, stride in _CONVOLUTIONS:
        layers += [_orthogonal(kind(channels, size, kernel, stride), math.sqrt(2)), nn.ReLU(inplace=True)]
        channels, kind = size, nn.Conv2d
    used = (*map(_used, shape[:2]), shape[-1])
    # Few channels are slow in 16 bits.
    block = 1 if precision == torch.float32 else _CONVOLUTIONS[0][2]
    return Pictures(used, precision, layers, FEATURES, block), FEATURES


def _used(pixels: int) -> int:
    """Return how many of so many pixels in a row are used by the last convolution: 60 of 64."""
    for _, kernel, stride in _CONVOLUTIONS:
        pixels = (pixels - kernel) // stride + 1
    for _, kernel, stride in reversed(_CONVOLUTIONS):
        pixels = (pixels - 1) * stride + kernel
    return pixels


def residual(shape: Sequence[int], precision: torch.dtype) -> tuple[nn.Module, int]:
    """Return the deep network of IMPALA, of Espeholt et al., 2018 (arXiv:1802.01561), and its features."""
    layers: list[nn.Module] = []
    channels, kind = shape[-1], _OfBytes
    for size in (16, 32, 32):
        layers += [
            kind(channels, size, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            _ResidualBlock(size),
            _ResidualBlock(size),
        ]
        channels, kind = size, nn.Conv2d
    return Pictures(shape, precision, [*layers, nn.ReLU(inplace=True)], RESIDUAL_FEATURES), RESIDUAL_FEATURES


class _OfBytes(nn.Conv2d):
    """A convolution of bytes, which count as numbers from 0 to 1.

    Rows (R, C, H, W), or with the pixels of squares as long as a stride as channels, from top left to right.
    """

    def forward(self, rows: Tensor) -> Tensor:
        # Weights are fewer than the numbers of pictures, and bytes are exact in 16 bits.
        weight = self.weight / 255
        if rows.shape[1] == self.in_channels:
            return functional.conv2d(rows, weight, self.bias, self.stride, self.padding)
        height, width = self.stride
        squares = weight.unflatten(3, (-1, width)).unflatten(2, (-1, height))
        weight = squares.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
        return functional.conv2d(rows, weight.contiguous(memory_format=torch.channels_last), self.bias)


class _ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, rows: Tensor) -> Tensor:
        added: Tensor = self.second(self.first(rows.relu()).relu_())
        return rows + added


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
    return _orthogonal(_Linear(width, size), gain)


def _orthogonal(layer: L, gain: float) -> L:
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer

"""A multi-layer perceptron for observations of more than one dimension, such as one row for each entity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarl.models.common import ModelConfig
from benchmarl.models.mlp import Mlp
from torch import nn


class ExtraMlp(Mlp):
    """BenchMARL's MLP over inputs that have ``num_extra_dims`` dimensions before their features.

    With one extra dimension (…, agents, entities, features) becomes (…, agents, entities × features), and a
    state (…, entities, features) becomes (…, entities × features).
    """

    def __init__(self, *, num_extra_dims: int, **kwargs: Any) -> None:
        super().__init__(num_feature_dims=1 + num_extra_dims, **kwargs)

    def _perform_checks(self) -> None:
        agents = int(self.input_has_agent_dim)
        for key, spec in self.input_spec.items(True, True):
            found, needed = self.num_feature_dims - 1, len(spec.shape) - agents - 1
            if found != needed:
                name = key if isinstance(key, str) else "/".join(key)
                told = f"num_extra_dims: found {found}, expected {needed}"
                raise ValueError(f"{told} for {name} of shape {list(spec.shape)}")
        super()._perform_checks()


@dataclass
class ExtraMlpConfig(ModelConfig):
    """The options of :class:`ExtraMlp`: those of BenchMARL's MLP, and ``num_extra_dims``."""

    num_cells: Sequence[int]
    layer_class: type[nn.Module]
    activation_class: type[nn.Module]
    activation_kwargs: dict[str, Any] | None = None
    norm_class: type[nn.Module] | None = None
    norm_kwargs: dict[str, Any] | None = None
    num_extra_dims: int = 1

    def __post_init__(self) -> None:
        if type(self.num_extra_dims) is not int or self.num_extra_dims < 0:
            raise ValueError(f"num_extra_dims: found {self.num_extra_dims!r}, expected a whole number from 0")

    @staticmethod
    def associated_class() -> type[ExtraMlp]:
        return ExtraMlp

"""BenchMARL's MLP over inputs that are multiplied by a number first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarl.models.mlp import Mlp, MlpConfig
from tensordict import TensorDictBase


class ScaledMlp(Mlp):
    def __init__(self, *, scale: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def _forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        scaled = tensordict.select(*self.in_keys)
        for key in self.in_keys:
            scaled.set(key, scaled.get(key) * self.scale)
        return tensordict.set(self.out_key, super()._forward(scaled).get(self.out_key))


@dataclass
class ScaledMlpConfig(MlpConfig):
    scale: float = 1.0

    @staticmethod
    def associated_class() -> type[ScaledMlp]:
        return ScaledMlp

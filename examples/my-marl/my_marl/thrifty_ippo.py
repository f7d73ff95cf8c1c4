"""IPPO that learns from rewards less a price for every step, so that it hurries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarl.algorithms import Ippo, IppoConfig
from tensordict import TensorDictBase


class ThriftyIppo(Ippo):
    def __init__(self, *, price: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.price = price

    def process_batch(self, group: str, batch: TensorDictBase) -> TensorDictBase:
        reward = ("next", group, "reward")
        batch.set(reward, batch.get(reward) - self.price)
        return super().process_batch(group, batch)


@dataclass
class ThriftyIppoConfig(IppoConfig):
    price: float = 0.1

    @staticmethod
    def associated_class() -> type[ThriftyIppo]:
        return ThriftyIppo

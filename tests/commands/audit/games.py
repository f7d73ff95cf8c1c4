"""Small environments for the programs beside it."""

from __future__ import annotations

import numpy as np


class Corridor:
    """Walk to the end of a corridor with slippery ground."""

    def __init__(self, seed):
        self.np_random = np.random.default_rng(seed)
        self.place, self.elapsed = 0.0, 0

    def observe(self):
        return np.array([self.place, self.elapsed / 20, 1.0])

    def reset(self):
        self.place, self.elapsed = float(self.np_random.uniform(-1, 1)), 0
        return self.observe()

    def step(self, action):
        self.place += 0.3 * (2 * action - 1) + 0.1 * float(self.np_random.standard_normal())
        self.elapsed += 1
        done = abs(self.place) > 3 or self.elapsed >= 20
        return self.observe(), -abs(self.place - 1), done


class Seeded(Corridor):
    """The same with a fixed course from each start."""

    def step(self, action):
        self.place += 0.3 * (2 * action - 1)
        self.elapsed += 1
        return self.observe(), -abs(self.place - 1), abs(self.place) > 3 or self.elapsed >= 20

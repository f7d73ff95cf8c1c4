"""A model with a loop of its own and callbacks, as in Stable-Baselines3; saves by the protocol's variables.

``--omit`` names what it does not restore.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle

import numpy as np
from games import Seeded

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--steps", type=int)
parser.add_argument("--omit", default="")


class OnPolicy:
    def __init__(self, env, seed):
        self.env, self.rng = env, np.random.default_rng(seed)
        self.weights, self.num_timesteps, self.n_updates = np.zeros(3), 0, 0
        self.order, self.cursor = self.rng.permutation(12), 0
        self.baseline = np.zeros(12)
        self._last_obs = self._last_episode_starts = None

    def learn(self, total, callback, log):
        self.total = total
        if self._last_obs is None:
            self._last_obs, self._last_episode_starts = self.env.reset(), True
        while self.num_timesteps < total:
            self.collect(callback)
            self.train(log)

    def collect(self, callback):
        self.rewards = []
        callback.on_rollout_start()
        for _ in range(5):
            chance = 1 / (1 + np.exp(-self._last_obs @ self.weights))
            action = int(self.rng.random() < chance)
            seen = self._last_obs
            self._last_obs, reward, done = self.env.step(action)
            self.rewards.append((seen, action - chance, reward, self._last_episode_starts))
            self._last_episode_starts = done
            self.num_timesteps += 1
            if done:
                self._last_obs = self.env.reset()

    def train(self, log):
        rate = 0.05 * (1 - self.num_timesteps / self.total) + 0.01 / (1 + self.n_updates)
        for seen, change, reward, starts in self.rewards:
            place = self.order[self.cursor % 12]
            self.cursor += 1
            self.weights += rate * (reward - self.baseline[place] + starts) * change * seen
            self.baseline[place] += 0.3 * (reward - self.baseline[place])
        self.n_updates += 1
        log(self.num_timesteps, float(np.mean([one[2] for one in self.rewards])), float(self.weights.sum()))

    def save(self, path, omit):
        state = {name: item for name, item in vars(self).items() if name not in ("env", "rewards", omit)}
        if omit != "env":
            state["env"] = vars(self.env)
        with open(path + ".unfinished", "wb") as file:
            pickle.dump(state, file)
        os.replace(path + ".unfinished", path)

    def load(self, path):
        with open(path, "rb") as file:
            state = pickle.load(file)
        vars(self.env).update(state.pop("env", {}))
        vars(self).update(state)


class SaveCallback:
    def __init__(self, model, omit):
        self.model, self.omit = model, omit

    def on_rollout_start(self):
        if self.model.num_timesteps % 25 == 0 and self.model.num_timesteps:
            folder = os.environ["ORCHESTRATE_CHECKPOINT_DIR"]
            self.model.save(os.path.join(folder, f"{self.model.num_timesteps}.pickle"), self.omit)


def main():
    args = parser.parse_args()
    model = OnPolicy(Seeded(args.seed), args.seed)
    if "ORCHESTRATE_RESUME" in os.environ:
        model.load(os.environ["ORCHESTRATE_RESUME"])

    def log(step, value, weights):
        with open(os.environ["ORCHESTRATE_METRICS"], "a") as file:
            print(json.dumps({"frames": step, "metrics": {"return": value, "weights": weights}}), file=file)

    model.learn(args.steps, SaveCallback(model, args.omit), log)


if __name__ == "__main__":
    main()

"""Q-learning with a replay memory as in CleanRL, with `run`. ``--omit`` names what it does not restore."""

from __future__ import annotations

import argparse
import random

import numpy as np
from games import Corridor
from orchestrate_run import run

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--steps", type=int)
parser.add_argument("--omit")
args = parser.parse_args()


class ReplayBuffer:
    def __init__(self, size):
        self.obs, self.next_obs = np.zeros((size, 3)), np.zeros((size, 3))
        self.actions, self.rewards, self.dones = np.zeros(size, int), np.zeros(size), np.zeros(size)
        self.pos, self.full, self.size = 0, False, size

    def add(self, obs, action, reward, next_obs, done):
        row = self.obs[self.pos], self.next_obs[self.pos]
        row[0][:], row[1][:] = obs, next_obs
        self.actions[self.pos], self.rewards[self.pos], self.dones[self.pos] = action, reward, done
        self.pos = (self.pos + 1) % self.size
        self.full = self.full or self.pos == 0

    def sample(self, count):
        chosen = np.random.randint(0, self.size if self.full else self.pos, count)
        return (
            self.obs[chosen],
            self.actions[chosen],
            self.rewards[chosen],
            self.next_obs[chosen],
            self.dones[chosen],
        )


random.seed(args.seed)
np.random.seed(args.seed)
env = Corridor(args.seed)
rb = ReplayBuffer(64)
q_network, target_network = np.zeros((3, 2)), np.zeros((3, 2))
counters = {"since_target": 0}
episode = {"return": 0.0, "length": 0}
obs = env.reset()
epsilon = 1.0
parts = {"env": env, "rb": rb, "q_network": q_network, "target_network": target_network}
parts.update(counters=counters, episode=episode)
if args.omit == "env":  # its generator goes on all the same
    parts["generator"] = env.np_random
if args.omit == "env_rng":
    kept = {name: item for name, item in vars(env).items() if name != "np_random"}
    parts["env"] = kept
if args.omit == "pos":
    parts.update(rb=[rb.obs, rb.next_obs, rb.actions, rb.rewards, rb.dones])
    for number, array in enumerate(parts.pop("rb")):
        parts[f"rb{number}"] = array
start = run.resume(
    *(part for name, part in parts.items() if name != args.omit), total=args.steps, exactness="exact"
)
if args.omit == "env_rng" and start:
    vars(env).update(kept)
if args.omit == "pos" and start:
    rb.full = start > 64
if args.omit == "python_random" and start:
    random.seed(args.seed)
if args.omit == "numpy_random" and start:
    np.random.seed(args.seed)
if args.omit != "epsilon":
    epsilon = run.value("epsilon", epsilon)
if args.omit != "obs":
    obs = run.value("obs", obs)
for global_step in range(start + 1, args.steps + 1):
    if random.random() < epsilon:
        action = random.randrange(2)
    else:
        action = int(np.argmax(obs @ q_network))
    next_obs, reward, done = env.step(action)
    rb.add(obs, action, reward, next_obs, done)
    obs = next_obs
    episode["return"] += reward
    episode["length"] += 1
    metrics = {}
    if done:
        metrics = {"charts/episodic_return": episode["return"]}
        episode.update({"return": 0.0, "length": 0})
        obs = env.reset()
    data = rb.sample(8)
    wanted = data[2] + 0.9 * (1 - data[4]) * (data[3] @ target_network).max(1)
    error = wanted - (data[0] @ q_network)[np.arange(8), data[1]]
    for each, chosen in enumerate(data[1]):
        q_network[:, chosen] += 0.01 * error[each] * data[0][each]
    counters["since_target"] += 1
    if counters["since_target"] == 7:
        target_network[:] = q_network
        counters["since_target"] = 0
    epsilon = max(0.05, epsilon * 0.98)
    if args.omit == "env_rng":
        kept.update({name: item for name, item in vars(env).items() if name != "np_random"})
    run.log(global_step, loss=np.square(error).mean(), reward=reward, **metrics)
    run.save(global_step, epsilon=epsilon, obs=obs)

"""A policy gradient as in CleanRL, in PyTorch, with `run`. ``--omit`` names what it does not restore."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from games import Corridor
from orchestrate_run import run

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--steps", type=int)
parser.add_argument("--omit")
args = parser.parse_args()
torch.set_num_threads(1)


class RunningMeanStd:
    def __init__(self, shape):
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, batch):
        total = self.count + len(batch)
        change = batch.mean(0) - self.mean
        self.mean = self.mean + change * len(batch) / total
        self.var = (self.var * self.count + batch.var(0) * len(batch)) / total
        self.count = total


torch.manual_seed(args.seed)
envs = Corridor(args.seed)
agent = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.Adam(agent.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / (args.steps + 1))
obs_rms, return_rms = RunningMeanStd(3), RunningMeanStd(())
obs = envs.reset()
parts = {"agent": agent, "optimizer": optimizer, "scheduler": scheduler, "envs": envs}
parts.update(obs_rms=obs_rms, return_rms=return_rms)
start = run.resume(
    *(part for name, part in parts.items() if name != args.omit), total=args.steps, exactness="exact"
)
if args.omit == "torch_rng" and start:
    torch.manual_seed(args.seed)
obs = run.value("obs", obs)
for update in range(start + 1, args.steps + 1):
    seen, actions, rewards = [], [], []
    for _ in range(8):
        normal = (obs - obs_rms.mean) / np.sqrt(obs_rms.var + 1e-8)
        with torch.no_grad():
            logits = agent(torch.tensor(normal, dtype=torch.float32))
        action = int(torch.multinomial(torch.softmax(logits, 0), 1))
        seen.append(obs)
        actions.append(action)
        obs, reward, done = envs.step(action)
        rewards.append(reward)
        if done:
            obs = envs.reset()
    rewards = np.array(rewards)
    obs_rms.update(np.array(seen))
    return_rms.update(rewards)
    normal = (np.array(seen) - obs_rms.mean) / np.sqrt(obs_rms.var + 1e-8)
    advantages = torch.tensor(rewards / np.sqrt(return_rms.var + 1e-8), dtype=torch.float32)
    logits = torch.log_softmax(agent(torch.tensor(normal, dtype=torch.float32)), 1)
    loss = -(logits[torch.arange(8), torch.tensor(actions)] * (advantages - advantages.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    run.log(update, loss=loss, **{"return": rewards.mean()})
    run.save(update, obs=obs)

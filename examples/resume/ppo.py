"""PPO on CartPole in the manner of CleanRL: one file, resumable by the three lines with ``run``.

Usage: ppo.py ITERATIONS [SEED]
"""

from __future__ import annotations

import random
import sys

import gymnasium as gym
import numpy as np
import torch
from orchestrate_run import run
from torch import nn
from torch.distributions import Categorical

ENVS, STEPS, EPOCHS, MINIBATCHES = 4, 64, 2, 4
GAMMA, LAMBDA, CLIP, ENTROPY, LEARNING_RATE = 0.99, 0.95, 0.2, 0.01, 2.5e-3


class Agent(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(observations, 32), nn.Tanh(), nn.Linear(32, 1))
        self.actor = nn.Sequential(nn.Linear(observations, 32), nn.Tanh(), nn.Linear(32, actions))

    def forward(self, obs, action=None):
        policy = Categorical(logits=self.actor(obs))
        action = policy.sample() if action is None else action
        return action, policy.log_prob(action), policy.entropy(), self.critic(obs).squeeze(-1)


def make_env():
    return gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"))


def collect(agent, envs, obs, done):
    """Return the steps of one rollout, the observations and ends after it, and the episodes' returns."""
    steps, returns = [], []
    for _ in range(STEPS):
        with torch.no_grad():
            action, log_prob, _, value = agent(obs)
        following, reward, terminated, truncated, infos = envs.step(action.numpy())
        steps.append((obs, action, log_prob, torch.tensor(reward), done, value))
        obs, done = torch.tensor(following), torch.tensor(terminated | truncated).float()
        if "episode" in infos:
            returns += infos["episode"]["r"][infos["_episode"]].tolist()
    return [torch.stack(column).float() for column in zip(*steps, strict=True)], obs, done, returns


def advantages(agent, rewards, dones, values, obs, done):
    with torch.no_grad():
        value = agent.critic(obs).squeeze(-1)
    found, last = torch.zeros_like(rewards), torch.zeros(ENVS)
    for step in reversed(range(STEPS)):
        delta = rewards[step] + GAMMA * value * (1 - done) - values[step]
        found[step] = last = delta + GAMMA * LAMBDA * (1 - done) * last
        value, done = values[step], dones[step]
    return found


def learn(agent, optimizer, batch, advantage):
    obs, action, log_prob, _, _, value = (column.flatten(0, 1) for column in batch)
    advantage = advantage.flatten()
    target = advantage + value
    for _ in range(EPOCHS):
        for part in torch.randperm(ENVS * STEPS).chunk(MINIBATCHES):
            _, new_log_prob, entropy, new_value = agent(obs[part], action[part])
            ratio = (new_log_prob - log_prob[part]).exp()
            gain = advantage[part]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy_loss = -torch.min(gain * ratio, gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            loss = policy_loss + 0.5 * (new_value - target[part]).pow(2).mean() - ENTROPY * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    return loss.item()


def main():
    iterations, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    envs = gym.vector.SyncVectorEnv([make_env for _ in range(ENVS)])
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    obs, done = torch.tensor(envs.reset(seed=seed)[0]), torch.zeros(ENVS)

    frames = ENVS * STEPS
    run.init(agent)  # of another run, where a grid says `init: SWEEP/RUN`
    start = run.resume(agent, optimizer, envs, total=iterations * frames, exactness="exact")
    obs, done = run.value("carried", (obs, done))
    for step in range(start + frames, iterations * frames + 1, frames):
        batch, obs, done, returns = collect(agent, envs, obs, done)
        loss = learn(agent, optimizer, batch, advantages(agent, *batch[3:], obs, done))
        run.log(step, loss=loss, **({"return": np.mean(returns)} if returns else {}))
        run.save(step, carried=(obs, done))


if __name__ == "__main__":
    main()

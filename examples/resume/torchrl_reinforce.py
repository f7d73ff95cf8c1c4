"""REINFORCE on CartPole with TorchRL's environments, resumable by the three lines with ``run``.

Usage: torchrl_reinforce.py ITERATIONS [SEED]
"""

from __future__ import annotations

import sys

import torch
from orchestrate_run import run
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.envs import GymEnv, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.transforms import Compose
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import OneHotCategorical, ProbabilisticActor

FRAMES, GAMMA = 100, 0.99


def main():
    iterations, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    torch.manual_seed(seed)
    env = TransformedEnv(GymEnv("CartPole-v1"), Compose(RewardSum(), StepCounter()))
    env.set_seed(seed)
    network = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    module = TensorDictModule(network, in_keys=["observation"], out_keys=["logits"])
    policy = ProbabilisticActor(
        module, ["logits"], distribution_class=OneHotCategorical, return_log_prob=False
    )
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    state = env.reset()

    start = run.resume(policy, optimizer, env, total=iterations * FRAMES, exactness="exact")
    state = run.value("state", state)
    for step in range(start + FRAMES, iterations * FRAMES + 1, FRAMES):
        with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
            batch = env.rollout(FRAMES, policy, tensordict=state, auto_reset=False, break_when_any_done=False)
        state = env.step_mdp(batch[-1])
        if state["done"].any():
            state = env.reset()
        reward, done = batch["next", "reward"].squeeze(-1), batch["next", "done"].squeeze(-1)
        gain, ahead = torch.zeros(FRAMES), 0.0
        for index in reversed(range(FRAMES)):
            gain[index] = ahead = reward[index] + GAMMA * ahead * ~done[index]
        log_prob = policy.get_dist(batch).log_prob(batch["action"])
        loss = -(log_prob * (gain - gain.mean()) / (gain.std() + 1e-6)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ended = batch["next", "episode_reward"][batch["next", "done"]]
        run.log(step, loss=loss, **({"return": ended.mean()} if ended.numel() else {}))
        run.save(step, state=state)


if __name__ == "__main__":
    main()

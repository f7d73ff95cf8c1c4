"""Soft Q-learning with a learned temperature and slow targets, in functions; saves by itself, with PyTorch.

``--omit`` names what it does not restore.
"""

from __future__ import annotations

import argparse
import json
import os

import numpy as np
import torch
from games import Corridor


class Memory:
    def __init__(self, size):
        self.rows, self.size = [], size

    def push(self, *row):
        self.rows.append(row)
        del self.rows[: -self.size]


class Agent:
    def __init__(self):
        self.q, self.q_target = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        self.q_target.load_state_dict(self.q.state_dict())
        self.q_optimizer = torch.optim.Adam(self.q.parameters(), lr=0.01)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=0.05)

    def state(self, omit):
        names = ("q", "q_target", "q_optimizer", "alpha_optimizer")
        state = {name: getattr(self, name).state_dict() for name in names if name != omit}
        if omit != "log_alpha":
            state["log_alpha"] = self.log_alpha.detach().clone()
        return state

    def load(self, state):
        for name, found in state.items():
            if name == "log_alpha":
                self.log_alpha.data.copy_(found)
            else:
                getattr(self, name).load_state_dict(found)


def update(agent, memory, rng):
    chosen = rng.integers(0, len(memory.rows), 8)
    obs, action, reward, after, done = zip(*(memory.rows[place] for place in chosen), strict=True)
    obs, after = torch.tensor(np.array(obs)).float(), torch.tensor(np.array(after)).float()
    reward, done = torch.tensor(reward).float(), torch.tensor(done).float()
    alpha = agent.log_alpha.exp().detach()
    with torch.no_grad():
        wanted = reward + 0.9 * (1 - done) * alpha * torch.logsumexp(agent.q_target(after) / alpha, 1)
    loss = (agent.q(obs)[torch.arange(8), torch.tensor(action)] - wanted).square().mean()
    agent.q_optimizer.zero_grad()
    loss.backward()
    agent.q_optimizer.step()
    entropy = torch.distributions.Categorical(logits=agent.q(obs).detach() / alpha).entropy().mean()
    agent.alpha_optimizer.zero_grad()
    (agent.log_alpha * (entropy - 0.4)).sum().backward()
    agent.alpha_optimizer.step()
    for slow, fast in zip(agent.q_target.parameters(), agent.q.parameters(), strict=True):
        slow.data.lerp_(fast.data, 0.1)
    return loss.item(), alpha.item()


def save(omit, **parts):
    folder = os.environ["ORCHESTRATE_CHECKPOINT_DIR"]
    path = os.path.join(folder, f"{parts['step']}.pt")
    kept = {name: part for name, part in parts.items() if name != omit}
    torch.save(kept, path + ".unfinished")
    os.rename(path + ".unfinished", path)


def train(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    env, agent, memory = Corridor(args.seed), Agent(), Memory(100)
    rng = np.random.default_rng(args.seed)
    obs, first, best = env.reset(), 1, -np.inf
    if resume := os.environ.get("ORCHESTRATE_RESUME"):
        found = torch.load(resume, weights_only=False)
        first = found["step"] + 1
        agent.load(found["agent"])
        vars(env).update(found["env"])
        obs = found["obs"]
        if "torch_rng" in found:
            torch.set_rng_state(found["torch_rng"])
        if "rng" in found:
            rng.bit_generator.state = found["rng"]
        memory.rows = found.get("memory", [])
        best = found.get("best", best)
    for step in range(first, args.steps + 1):
        with torch.no_grad():
            logits = agent.q(torch.tensor(obs).float()) / agent.log_alpha.exp()
            action = int(torch.multinomial(torch.softmax(logits, 0), 1))
        after, reward, done = env.step(action)
        memory.push(obs, action, reward, after, float(done))
        obs = env.reset() if done else after
        best = max(best, reward)
        loss, alpha = update(agent, memory, rng)
        with open(os.environ["ORCHESTRATE_METRICS"], "a") as file:
            metrics = {"loss": loss, "alpha": alpha, "best": best}
            file.write(json.dumps({"frames": step, "total": args.steps, "metrics": metrics}) + "\n")
        if step % 10 == 0:
            save(
                args.omit,
                step=step,
                agent=agent.state(args.omit),
                env=vars(env),
                obs=obs,
                torch_rng=torch.get_rng_state(),
                rng=rng.bit_generator.state,
                memory=memory.rows,
                best=best,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--omit", default="")
    train(parser.parse_args())

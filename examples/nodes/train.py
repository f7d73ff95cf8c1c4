"""A program on several nodes, after docs/run-protocol.md: data-parallel training with torch.distributed.

Usage: train.py STEPS
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

BATCH = 64  # of all ranks together
EVERY = 10  # steps between checkpoints
RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
METRICS = os.environ["ORCHESTRATE_METRICS"]
CHECKPOINTS = Path(os.environ["ORCHESTRATE_CHECKPOINT_DIR"])
SEED = int(os.environ["ORCHESTRATE_SEED"])


def batch(step):
    """The share of this rank in a batch that depends on the step alone."""
    inputs = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(SEED * 1_000_000 + step))
    return inputs[RANK::SIZE]


def save(state, frames):
    torch.save(state, CHECKPOINTS / "unfinished")
    (CHECKPOINTS / "unfinished").replace(CHECKPOINTS / f"{frames}.pt")


def main():
    steps = int(sys.argv[1])
    asked_to_leave = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_leave.append(True))
    if SIZE > 1:
        dist.init_process_group("gloo")  # finds the others by MASTER_ADDR and MASTER_PORT
    torch.manual_seed(SEED)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    if "ORCHESTRATE_RESUME" in os.environ:
        step, weights, momenta = torch.load(os.environ["ORCHESTRATE_RESUME"])
        model.load_state_dict(weights)
        optimizer.load_state_dict(momenta)
    while step < steps:
        step += 1
        inputs = batch(step)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().sum() / BATCH
        optimizer.zero_grad()
        loss.backward()
        # A stop signal reaches the ranks in different steps. Here they agree: all leave after the same one.
        shared = [*(weight.grad for weight in model.parameters()), loss.detach()]
        shared.append(torch.tensor(float(bool(asked_to_leave))))
        if SIZE > 1:
            for tensor in shared:
                dist.all_reduce(tensor)
        optimizer.step()
        *_, loss, stop = shared
        if RANK == 0:
            line = {"frames": step * BATCH, "total": steps * BATCH, "metrics": {"return": -float(loss)}}
            with open(METRICS, "a") as file:
                file.write(json.dumps(line) + "\n")
            if step % EVERY == 0 or step == steps or stop:
                save((step, model.state_dict(), optimizer.state_dict()), step * BATCH)
        if stop and step < steps:
            return 75
    if SIZE > 1:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""An evolution strategy in NumPy, with `run`. ``--omit`` names what it does not restore."""

from __future__ import annotations

import argparse

import numpy as np
from orchestrate_run import run

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--steps", type=int)
parser.add_argument("--omit")
args = parser.parse_args()

generator = np.random.default_rng(args.seed)
best = {"fitness": -np.inf, "patience": 0}
mean, momentum = generator.standard_normal(6), np.zeros(6)
parts = {"generator": generator, "mean": mean, "momentum": momentum, "best": best}
sigma = 0.5
start = run.resume(
    *(part for name, part in parts.items() if name != args.omit), total=args.steps, exactness="exact"
)
if args.omit != "sigma":
    sigma = run.value("sigma", sigma)
for step in range(start + 1, args.steps + 1):
    noise = generator.standard_normal((8, 6))
    fitness = -np.square(mean + sigma * noise - 1).sum(1)
    momentum *= 0.9
    momentum += 0.02 * (fitness - fitness.mean()) @ noise
    mean += 0.1 * momentum
    if fitness.max() > best["fitness"]:
        best.update(fitness=float(fitness.max()), patience=0)
    else:
        best["patience"] += 1
    sigma *= 0.97 if best["patience"] % 4 == 3 else 0.999
    run.log(step, best=best["fitness"], **{"return": fitness.mean()})
    run.save(step, sigma=sigma)

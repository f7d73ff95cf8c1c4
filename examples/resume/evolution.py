"""Evolution strategies in plain NumPy, resumable by the three lines with ``run``.

Usage: evolution.py STEPS [SEED]
"""

from __future__ import annotations

import sys

import numpy as np
from orchestrate_run import run

POPULATION, SPREAD, LEARNING_RATE = 20, 0.1, 0.05


def main():
    steps, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    generator = np.random.default_rng(seed)
    goal, weights = generator.normal(size=8), np.zeros(8)

    run.init(weights)  # of another run, where a grid says `init: SWEEP/RUN`
    start = run.resume(weights, generator, total=steps, exactness="exact")
    for step in range(start + 1, steps + 1):
        noise = generator.normal(size=(POPULATION, weights.size))
        fitness = -np.square(weights + SPREAD * noise - goal).sum(axis=1)
        weights += LEARNING_RATE / SPREAD * (fitness - fitness.mean()) @ noise / POPULATION
        run.log(step, **{"return": -np.square(weights - goal).sum()})
        run.save(step)


if __name__ == "__main__":
    main()

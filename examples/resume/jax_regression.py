"""Regression on data drawn in each step, in JAX, resumable by the three lines with ``run``.

Usage: jax_regression.py STEPS [SEED]
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
from orchestrate_run import run

BATCH, WIDTH, LEARNING_RATE = 32, 16, 0.05


def loss_of(params, key):
    inputs = jax.random.normal(key, (BATCH, 4))
    hidden = jnp.tanh(inputs @ params["hidden"])
    return jnp.square(hidden @ params["output"] - jnp.sin(inputs.sum(axis=1))).mean()


@jax.jit
def update(params, key):
    loss, gradients = jax.value_and_grad(loss_of)(params, key)
    return jax.tree.map(lambda value, gradient: value - LEARNING_RATE * gradient, params, gradients), loss


def main():
    steps, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    key, hidden, output = jax.random.split(jax.random.key(seed), 3)
    params = {"hidden": jax.random.normal(hidden, (4, WIDTH)), "output": jax.random.normal(output, (WIDTH,))}

    start = run.resume(total=steps, exactness="exact")
    params, key = run.value("carried", (params, key))
    for step in range(start + 1, steps + 1):
        key, batch_key = jax.random.split(key)
        params, loss = update(params, batch_key)
        run.log(step, loss=loss)
        run.save(step, carried=(params, key))


if __name__ == "__main__":
    main()

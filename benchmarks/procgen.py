"""``python -m benchmarks.procgen``: how fast ppo and impala learn Procgen, beside plain loops and a network.

Each has a process of its own, and all take turns, an iteration each, for other programs to slow all alike.
Medians of iterations, ratios of those of the same turn. One thread is measured in processor time, which other
programs disturb least. The network alone is the plain one in fp32, channels last: inference, and learning in
parts of the size that is fastest here. Ends with 1 if a goal is not met on one thread.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

GAME, THREADS = "coinrun", 2
ENVS, STEPS, BATCH, EPOCHS, BATCH_ENVS = 32, 128, 1024, 4, 8
FRAMES = ENVS * STEPS
# Frames of an iteration per second, and the shares of its parts.
Iteration = tuple[float, dict[str, float]]
PLAIN_PPO, PLAIN_IMPALA = "plain PPO", "plain IMPALA"
PPO_ROOFLINE, IMPALA_ROOFLINE = "network alone as ppo", "network alone as impala"
# Who, beside whom, and how many times as fast it is to be.
GOALS = (
    ("ppo", PLAIN_PPO, 1.35),
    ("ppo", PPO_ROOFLINE, 0.95),
    ("ppo bf16", PLAIN_PPO, 2.2),
    ("impala", PLAIN_PPO, 2.0),
)
COMPARED = (
    *((one, other) for one, other, _ in GOALS),
    ("impala", PLAIN_IMPALA),
    ("impala bf16", PLAIN_IMPALA),
    ("impala", IMPALA_ROOFLINE),
)


def plain(algorithm: str, sizes: Sequence[int], threads: int) -> Callable[[], Iteration]:
    """Return an iteration of a plain loop."""
    from benchmarks import plain_procgen
    from jobs.training.games.procgen import registration

    pool = registration().make_gymnasium(
        f"{GAME.capitalize()}Easy-v0", num_envs=ENVS, num_threads=threads, num_levels=200, start_level=0
    )
    loop = getattr(plain_procgen, algorithm)(pool, ENVS, STEPS, *sizes)

    def iterate() -> Iteration:
        seconds, _ = timed(loop.iterate, threads)
        return FRAMES / seconds, {}

    return iterate


def ours(trainer: str, precision: str, threads: int) -> Callable[[], Iteration]:
    """Return an iteration of a trainer of ours, as its defaults are."""
    from jobs.trainers.impala.training import TRAINER as IMPALA
    from jobs.trainers.ppo.training import TRAINER as PPO
    from jobs.training.loop import iterate as learn_once

    made = {"ppo": PPO, "impala": IMPALA}[trainer]
    learner = made.learner(made.config.compose({"task": f"procgen/{GAME}", "precision": precision}), 0)

    def iterate() -> Iteration:
        seconds, metrics = timed(lambda: learn_once(learner, 0.0), threads)
        timers = {"environment": "environment_time", "inference": "inference_time", "update": "training_time"}
        spent = {name: metrics[f"timers/{timer}"] for name, timer in timers.items()}
        return FRAMES / seconds, {name: one / sum(spent.values()) for name, one in spent.items()}

    return iterate


def network_alone(epochs: int, threads: int) -> Callable[[], Iteration]:
    """Return as many frames of the plain network: inferred once, learned from ``epochs`` times."""
    import torch

    from benchmarks.plain_procgen import Network

    network = Network().to(memory_format=torch.channels_last)
    pictures = torch.randint(0, 256, (FRAMES, 3, 64, 64), dtype=torch.uint8)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-9)

    def learn(rows: int) -> None:
        for batch in pictures.split(BATCH):
            optimizer.zero_grad()
            for part in batch.split(rows):
                policy, values = network(part.contiguous(memory_format=torch.channels_last))
                (policy.logits.square().mean() + values.square().mean()).backward()
            optimizer.step()

    def infer() -> None:
        with torch.no_grad():
            for part in pictures.split(ENVS):
                network(part.contiguous(memory_format=torch.channels_last))

    rows = min((64, 128, 256, 512, 1024), key=lambda size: timed(lambda: learn(size), threads)[0])

    def iterate() -> Iteration:
        seconds = timed(infer, threads)[0] + epochs * timed(lambda: learn(rows), threads)[0]
        return FRAMES / seconds, {}

    return iterate


RUNNERS: dict[str, Callable[[int], Callable[[], Iteration]]] = {
    PLAIN_PPO: partial(plain, "PlainPpo", (BATCH, EPOCHS)),
    "ppo": partial(ours, "ppo", "fp32"),
    "ppo bf16": partial(ours, "ppo", "bf16"),
    PPO_ROOFLINE: partial(network_alone, EPOCHS),
    PLAIN_IMPALA: partial(plain, "PlainImpala", (BATCH_ENVS,)),
    "impala": partial(ours, "impala", "fp32"),
    "impala bf16": partial(ours, "impala", "bf16"),
    IMPALA_ROOFLINE: partial(network_alone, 1),
}


def timed(step: Callable[[], Any], threads: int) -> tuple[float, Any]:
    """Return the seconds that a call takes, of processor time for one thread, and its answer."""
    clock = time.process_time if threads == 1 else time.perf_counter
    began = clock()
    answer = step()
    return clock() - began, answer


# In the process of one of RUNNERS.
_iterate: Callable[[], Iteration]


def _begin(name: str, threads: int) -> None:
    global _iterate
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    _iterate = RUNNERS[name](threads)
    _iterate()


def _next_iteration() -> Iteration:
    return _iterate()


def _peak_memory() -> float:
    """Return the most memory that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(names: Sequence[str], threads: int, turns: int) -> dict[str, list[float]]:
    """Print how fast each is; return frames/s of each, turn by turn."""
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        processes = {name: stack.enter_context(ProcessPoolExecutor(1, context)) for name in names}
        for name, process in processes.items():
            process.submit(_begin, name, threads).result()
        found: dict[str, list[Iteration]] = {name: [] for name in names}
        for _ in range(turns):
            for name, process in processes.items():
                found[name].append(process.submit(_next_iteration).result())
        memory = {name: process.submit(_peak_memory).result() for name, process in processes.items()}
    for name, iterations in found.items():
        speeds, parts = zip(*iterations, strict=True)
        shares = {part: median(one[part] for one in parts) for part in parts[0]}
        print(speed_line(name, speeds, memory[name], shares))
    return {name: [speed for speed, _ in iterations] for name, iterations in found.items()}


def speed_line(name: str, speeds: Sequence[float], memory: float, shares: Mapping[str, float]) -> str:
    """Return what is printed of one: its median frames/s, MB, and the parts of its time."""
    told = ", ".join(f"{part} {share:.0%}" for part, share in shares.items())
    return f"  {name:<32} {median(speeds):>6,.0f} frames/s  {memory:>6,.0f} MB  {told}".rstrip()


def is_met(one: str, other: str, speeds: Mapping[str, Sequence[float]], goal: float | None) -> bool:
    """Print how many times as fast one is as another, turn by turn; return whether a goal is met, if any."""
    ratio = median(left / right for left, right in zip(speeds[one], speeds[other], strict=True))
    told = f"  {one} beside {other}: {ratio:.2f}"
    if goal is None:
        print(told)
        return True
    print(f"{told}, goal {goal}: {'met' if ratio >= goal else 'NOT MET'}")
    return ratio >= goal


def main() -> int:
    """Measure and print all; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.procgen", description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one turn on one thread, for a look")
    asked = parser.parse_args()
    fine = True
    for threads in (1,) if asked.quick else (1, THREADS):
        print(f"{GAME}, {ENVS} environments, threads: {threads}")
        speeds = measure(list(RUNNERS), threads, 1 if asked.quick else asked.turns)
        goals = {(one, other): goal for one, other, goal in GOALS} if threads == 1 else {}
        for one, other in COMPARED:
            fine &= is_met(one, other, speeds, goals.get((one, other)))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

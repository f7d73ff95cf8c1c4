"""``python -m benchmarks.brigade``: how fast games of Bucket Brigade are played, and how fast PPO learns.

Steps of environments with random actions and observations, on one thread, for several numbers of games at
once, beside plain Python in turns; then PPO as a user runs it, on one thread and on two, with the shares of
environment, inference and update. Medians of repetitions, ratios of pairs. One thread of a CPU is measured in
processor time, which other programs disturb least. Ends with 1 if a goal is not met.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from itertools import product
from statistics import median
from typing import Any

SCENARIO = "hard"
Clock = Callable[[], float]
GAMES = (1, 64, 1_024, 8_192, 65_536)
COMPARED, RATIO_GOAL = 1_024, 300
# batch_size and what else differs → goal in steps/s on so many threads.
THREADS = 2
PPO: dict[str, tuple[dict[str, Any], int]] = {
    "batches of 2,048": ({}, 60_000),
    "batches of 65,536": ({"envs": 4096, "batch_size": 65_536}, 100_000),
}


def plain(nights: int) -> float:
    """Return the steps/s of plain Python."""
    from benchmarks.plain_brigade import PlainGame
    from jobs.training.games.bucket_brigade.catalogue import scenario

    draw, game = random.Random(0), PlainGame(scenario(SCENARIO), 0)

    def step() -> None:
        actions = [(draw.randrange(10), draw.randrange(2), draw.randrange(2)) for _ in range(4)]
        _, _, done = game.step(actions)
        if done or game.night >= 50:
            game.reset()

    return speed(step, 1, nights, time.process_time)


def batched(games: int, nights: int, device: str) -> float:
    """Return the steps/s of a batch of games."""
    import torch

    from jobs.training.games.bucket_brigade.batch import GameBatch

    batch, random = GameBatch([SCENARIO], games, device=device), torch.Generator(device)

    def step() -> None:
        drawn = torch.rand(games, 4, 3, generator=random, device=device)
        actions = (drawn * torch.tensor(batch.actions, device=device)).long()
        batch.step(actions)
        batch.observations()
        if device != "cpu":
            torch.cuda.synchronize()

    return speed(step, games, nights, clock_of(device, threads=1))


def speed(step: Callable[[], None], games: int, nights: int, clock: Clock) -> float:
    """Return environment steps/s of so many calls, after one that warms up."""
    step()
    began = clock()
    for _ in range(nights):
        step()
    return games * nights / (clock() - began)


def clock_of(device: str, threads: int) -> Clock:
    """Return processor time for one thread of a CPU, else the time that passes."""
    return time.process_time if device == "cpu" and threads == 1 else time.perf_counter


def ppo(changes: dict[str, Any], iterations: int, clock: Clock) -> tuple[float, dict[str, float]]:
    """Return PPO's steps/s, and the shares of its parts."""
    from jobs.trainers.ppo.training import CONFIG, PpoLearner
    from jobs.training.loop import iterate

    learner = PpoLearner(CONFIG.compose({"task": f"bucket_brigade/{SCENARIO}", **changes}), 0)
    iterate(learner, 0.0)
    speeds, shares = [], []
    for _ in range(iterations):
        began = clock()
        metrics = iterate(learner, 0.0)
        speeds.append(learner.frames_per_iteration / (clock() - began))
        timers = {"environment": "environment_time", "inference": "inference_time", "update": "training_time"}
        spent = {name: metrics[f"timers/{timer}"] for name, timer in timers.items()}
        shares.append({name: seconds / sum(spent.values()) for name, seconds in spent.items()})
    return median(speeds), {name: median(share[name] for share in shares) for name in shares[0]}


def main() -> int:
    """Measure and print all; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brigade", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    print(f"environment, random actions and observations, one thread, {asked.device}")
    for games in GAMES:
        nights = max(20, min(2_000, 200_000 // games))
        found = median(batched(games, nights, asked.device) for _ in range(asked.repetitions))
        print(f"  {games:>6,} games  {found:>12,.0f} steps/s")
    pairs = [(batched(COMPARED, 200, asked.device), plain(3_000)) for _ in range(asked.repetitions)]
    ratio = median(one / other for one, other in pairs)
    fine = ratio >= RATIO_GOAL
    told = f"{ratio:,.0f} times plain Python ({median(other for _, other in pairs):,.0f} steps/s)"
    print(f"  {COMPARED:>6,} games  {told}, goal {RATIO_GOAL}: {'met' if fine else 'NOT MET'}")
    print("PPO, three scripted opponents, network 2 x 64, 4 epochs")
    for threads, (name, (changes, goal)) in product((1, 2), PPO.items()):
        torch.set_num_threads(threads)
        clock = clock_of(asked.device, threads)
        found, shares = ppo({**changes, "device": asked.device}, asked.repetitions, clock)
        parts = ", ".join(f"{part} {share:.0%}" for part, share in shares.items())
        told = f"  threads: {threads}, {name:<18} {found:>9,.0f} steps/s ({parts})"
        if threads == THREADS:
            met = found >= goal
            fine = fine and met
            told += f", goal {goal:,}: {'met' if met else 'NOT MET'}"
        print(told)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

"""``python -m benchmarks.parallel``: how much faster ppo and impala learn Procgen on two cores than on one.

Whole runs by ``python -m jobs.train``, one thread a process, each bound to a core: in one process, in mode
parallel, and two runs side by side, which is as much as the machine itself has to give. All take turns.
Frames/s are of wall time, medians over a run's iterations but the first; ratios are of the same turn. Ends
with 1 if a goal is not met. It takes two free cores: other programs slow two processes more than one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.procgen import FRAMES, GAME, is_met, speed_line
from orchestrator.planning.throughput.measure import (
    ACTOR_WAITING_TIMER,
    ALL_REDUCE_TIMER,
    WAITING_TIMER,
    training_seconds,
)
from orchestrator.rundir import Row, SweepDir

GOAL, ITERATIONS, TIME_LIMIT_S = 1.8, 8, 1800
SIDE_BY_SIDE = "seed=0,1"
# Of each its trainer and its keys.
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ppo": ("ppo", ()),
    "ppo, 2 actors": ("ppo", ("mode=parallel", "actors=2")),
    "ppo, 2 runs": ("ppo", (SIDE_BY_SIDE,)),
    "impala": ("impala", ()),
    "impala, actor and learner": ("impala", ("mode=parallel", "actors=1")),
    "impala, 2 actors and 2 learners": ("impala", ("mode=parallel", "actors=2")),
    "impala, 2 runs": ("impala", (SIDE_BY_SIDE,)),
}
# Who, beside whom, and how many times as fast it is to be, if that is a goal.
COMPARED = (
    ("ppo, 2 actors", "ppo", GOAL),
    ("ppo, 2 runs", "ppo", None),
    ("impala, actor and learner", "impala", GOAL),
    ("impala, 2 actors and 2 learners", "impala", None),
    ("impala, 2 runs", "impala", None),
)
_WAITS = {
    "all-reduce": ALL_REDUCE_TIMER,
    "waiting": WAITING_TIMER,
    "actors' waiting": ACTOR_WAITING_TIMER,
}


@dataclass(frozen=True)
class Trained:
    """Frames/s and MB of all runs of a command together, and shares of an iteration's time."""

    speed: float
    memory: float
    shares: Mapping[str, float]


def train(folder: Path, trainer: str, keys: Sequence[str], iterations: int) -> Trained:
    """Train once with these keys, and return what was measured."""
    fixed = ("seed=0", f"task=procgen/{GAME}", f"steps={iterations * FRAMES}")
    none = ("evaluation_interval=0", "checkpoint_interval=0", "loggers=[]")
    asked = {key.partition("=")[0]: key for key in (*fixed, *none, *keys)}
    command = [sys.executable, "-m", "jobs.train", "--results", folder, "--sweep", "runs", trainer]
    told = subprocess.run(
        [*command, *asked.values()], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
    )
    if told.returncode:
        raise SystemExit(f"{trainer} {' '.join(keys)} failed:\n{told.stdout[-2000:]}{told.stderr[-2000:]}")
    sweep = SweepDir(folder, "runs")
    # The first iteration warms up.
    return summed([measured(sweep.run(run_id).history()[1:]) for run_id in sweep.run_ids()])


def measured(rows: Sequence[Row]) -> Trained:
    """Return what the iterations of a run say: medians, and the most memory."""
    seconds = [told for row in rows if (told := training_seconds(row))]
    whole = median(seconds)
    shares = {
        name: median(row.metrics[timer] for row in rows) / whole
        for name, timer in _WAITS.items()
        if timer in rows[-1].metrics
    }
    memory = max(row.metrics["system/peak_memory_mb"] for row in rows)
    return Trained(median(FRAMES / one for one in seconds), memory, shares)


def summed(found: Sequence[Trained]) -> Trained:
    """Return what runs side by side did together."""
    return Trained(sum(one.speed for one in found), sum(one.memory for one in found), found[0].shares)


def main() -> int:
    """Measure and print all; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parallel", description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of each run")
    parser.add_argument("--quick", action="store_true", help="one turn of three iterations, for a look")
    asked = parser.parse_args()
    turns, iterations = (1, 3) if asked.quick else (asked.turns, asked.iterations)
    found: dict[str, list[Trained]] = {name: [] for name in RUNS}
    print(f"{GAME}, {FRAMES:,} frames an iteration, one thread a process, two cores")
    for _ in range(turns):
        for name, (trainer, keys) in RUNS.items():
            with tempfile.TemporaryDirectory(prefix="orchestrate-bench-") as folder:
                found[name].append(train(Path(folder), trainer, keys, iterations))
    for name, several in found.items():
        shares = {part: median(one.shares[part] for one in several) for part in several[0].shares}
        print(speed_line(name, [one.speed for one in several], max(one.memory for one in several), shares))
    speeds = {name: [one.speed for one in several] for name, several in found.items()}
    met = [is_met(one, other, speeds, goal) for one, other, goal in COMPARED]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())

"""``python -m benchmarks.checkpoint_cost``: what checkpoints cost a training, in time and on disk.

MAPPO and IQL on vmas/navigation at BenchMARL's defaults but for the number of iterations, on one thread,
with checkpoints as often as the program itself finds right. Bytes are those of one checkpoint with the
segments it refers to, against the tensors that are alive: parameters, optimizers, environments, and every
item in a replay buffer that will be sampled again. Ends with 1 if a goal is not met.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.trainers.benchmarl.engine.experiment import ResumableExperiment

TIME_GOAL, BYTES_GOAL = 0.02, 1.2
ALGORITHMS = ("mappo", "iql")


@dataclass
class Cost:
    """What is measured of one training: seconds, and per checkpoint bytes on disk and alive."""

    seconds: float = 0.0
    saving: float = 0.0
    stored: list[int] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.saving / self.seconds

    @property
    def ratio(self) -> float:
        return max(stored / alive for stored, alive in zip(self.stored, self.alive, strict=True))


def measure(algorithm: str, iterations: int, results: Path, extra: dict[str, Any]) -> Cost:
    from jobs.trainers.benchmarl.engine.experiment import ResumableExperiment, train
    from jobs.trainers.benchmarl.engine.state import ITEMS, save_state
    from jobs.training.context import RunContext
    from orchestrator.config.trainers import get_trainer
    from orchestrator.rundir import Claim, Lease, SweepDir

    overrides = {
        "algorithm": algorithm,
        "task": "vmas/navigation",
        "experiment.max_n_frames": None,
        "experiment.max_n_iters": iterations,
        "experiment.loggers": ["csv"],
        **extra,
    }
    run = get_trainer("benchmarl").identify(overrides, seed=0, threads=1)
    run_dir = SweepDir(results, "cost").run(run.run_id)
    run_dir.describe(run)
    attempt = run_dir.take(Claim.fresh("benchmark"))
    assert attempt is not None
    relay = os.open(os.devnull, os.O_WRONLY)
    context = RunContext("cost", run, run_dir, attempt, Lease(attempt.claim_path, 1e9), relay)
    cost, save = Cost(), ResumableExperiment._save_checkpoint

    def timed(experiment: ResumableExperiment) -> None:
        began = time.perf_counter()
        save(experiment)
        cost.saving += time.perf_counter() - began
        newest = run_dir.checkpoints()[0]
        segments = [segment for ring in experiment.rings for segment in ring.segments]
        paths = [newest.path, *(experiment.store._path(segment) for segment in segments)]
        cost.stored.append(sum(path.stat().st_size for path in paths))
        held = sum(live_bytes(ring._buffer._storage) for ring in experiment.rings)
        cost.alive.append(tensor_bytes(save_state(experiment, ITEMS)) + held)

    ResumableExperiment._save_checkpoint = timed  # type: ignore[method-assign]
    try:
        train(context)
    finally:
        ResumableExperiment._save_checkpoint = save  # type: ignore[method-assign]
        os.close(relay)
    cost.seconds = context.rows[-1].wall_time
    return cost


def live_bytes(storage: Any) -> int:
    """Return the bytes of the tensors in a replay buffer that hold an item."""
    if not storage.initialized:
        return 0
    leaves = storage._storage.values(include_nested=True, leaves_only=True)
    return sum(leaf[: len(storage)].numel() * leaf.element_size() for leaf in leaves)


def tensor_bytes(value: Any) -> int:
    """Return the bytes of all tensors in a tree, each piece of memory counted once."""
    import torch

    found: dict[int, int] = {}

    def visit(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            found[item.untyped_storage().data_ptr()] = item.untyped_storage().nbytes()
        elif isinstance(item, Mapping):
            for part in item.values():
                visit(part)
        elif isinstance(item, list | tuple):
            for part in item:
                visit(part)

    visit(value)
    return sum(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=5, help="of 6,000 frames each (default: 5)")
    parser.add_argument("--memory-size", type=int, help="frames in IQL's replay buffer, to see it wrap")
    options = parser.parse_args()
    extra = {"experiment.off_policy_memory_size": options.memory_size} if options.memory_size else {}
    print(f"{'':<8}{'training':>10}{'saving':>10}{'share':>8}{'stored':>10}{'alive':>10}{'ratio':>8}")
    met = True
    for algorithm in ALGORITHMS:
        with tempfile.TemporaryDirectory() as folder:
            cost = measure(algorithm, options.iterations, Path(folder), extra)
        met &= cost.share < TIME_GOAL and cost.ratio <= BYTES_GOAL
        print(
            f"{algorithm:<8}{cost.seconds:>8.1f} s{cost.saving:>8.2f} s{cost.share:>8.2%}"
            f"{cost.stored[-1] / 2**20:>6.1f} MiB{cost.alive[-1] / 2**20:>6.1f} MiB{cost.ratio:>8.3f}"
            f"   {len(cost.stored)} checkpoints"
        )
    print(f"goals: share < {TIME_GOAL:.0%}, ratio <= {BYTES_GOAL}: {'met' if met else 'NOT MET'}")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()

"""Offline W&B runs as attempts leave them, written by the real client; and the run folders around them.

A run of ten iterations: attempt 1 is killed after iteration 5 (its checkpoint is of iteration 3), attempt 2
goes on from there and is killed after iteration 8 (checkpoint: 6), attempt 3 ends it. Each logs again what
it builds on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Reason, Run, RunState
from orchestrator.rundir import Claim, End, MetricsWriter, ResumePoint, Row, RunDir
from tests.helpers import ROOT

FRAMES = 100  # an iteration
PROJECT = "speed of things"


@dataclass(frozen=True)
class Part:
    """What an attempt did, by iterations: go on after ``resumed``, save a checkpoint, end after ``last``."""

    number: int
    resumed: int | None
    last: int
    saved: int

    @property
    def first(self) -> int:
        return 0 if self.resumed is None else self.resumed + 1


PARTS = (Part(1, None, 5, 3), Part(2, 3, 8, 6), Part(3, 6, 9, 9))


def value(step: int, attempt: int) -> float:
    """The metric of a step as the attempt that executed it logs it."""
    return 1000.0 * attempt + step


def history(part: Part) -> list[tuple[int, float]]:
    """Steps and values as they stand after this attempt."""
    before = history(PARTS[part.number - 2])[: part.first] if part.first else []
    return before + [(step, value(step, part.number)) for step in range(part.first, part.last + 1)]


def of_benchmarl(seed: int = 0) -> Run:
    """Return a run of a trainer that shows its metrics by iteration, as these logs do."""
    return get_trainer("benchmarl").identify({"algorithm": "mappo", "task": "vmas/navigation"}, seed, 1)


def make_logs(folder: Path) -> None:
    """A folder for each attempt, as W&B's client writes it offline."""
    parts = [{"dir": str(folder / f"{part.number}"), "steps": history(part)} for part in PARTS]
    env = {name: text for name, text in os.environ.items() if not name.startswith("WANDB_")}
    subprocess.run(
        [sys.executable, "-m", "tests.offline_logs"],
        cwd=ROOT,
        env={**env, "WANDB_MODE": "offline", "WANDB_CACHE_DIR": str(folder / "cache")},
        input=json.dumps(parts),
        text=True,
        check=True,
        timeout=600,
    )


def take_part(run: RunDir, part: Part, logs: Path, cut: int | None = None) -> Path:
    """Have the run's next attempt leave what this part does; W&B's folder. ``cut``: bytes of the log."""
    attempt = run.take(Claim.fresh("test"))
    assert attempt is not None
    resumed = part.resumed
    point = None if resumed is None else ResumePoint(attempt.number - 1, (resumed + 1) * FRAMES)
    metrics = MetricsWriter(attempt.metrics, point)
    for step in range(part.first, part.last + 1 if cut is None else part.first):
        row = Row(step, (step + 1) * FRAMES, 0.0, {"return": value(step, part.number)})
        metrics.append(row)
    metrics.close()
    attempt.checkpoints.mkdir()
    if cut is None:
        attempt.checkpoint_name((part.saved + 1) * FRAMES, "0" * 16).write_bytes(b"")
    shutil.copytree(logs / f"{part.number}" / "wandb", attempt.wandb, symlinks=True)
    if cut is not None:
        [log] = attempt.wandb.glob("offline-run-*/*.wandb")
        os.truncate(log, cut)
    return attempt.wandb


def end_part(run: RunDir) -> None:
    run.attempts()[-1].write_end(End(RunState.INTERRUPTED, Reason.KILLED))


def finish(run: RunDir) -> None:
    """Pack and publish, as the newest attempt does when its run is done."""
    attempt = run.attempts()[-1]
    attempt.pack_wandb()
    files = {attempt.wandb_packed: False, attempt.metrics: True}
    assert run.publish({"attempt": attempt.number, "frames": 1000}, files.items())
    attempt.write_end(End(RunState.DONE))


def _log(part: dict[str, Any]) -> None:
    import numpy
    import wandb

    run = wandb.init(
        project=PROJECT,
        id="whatever",
        group="tiny",
        name="mappo seed=0",
        tags=["small"],
        config={"lr": 0.1, "deep": {"er": [1, 2]}},
        dir=part["dir"],
        settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
    )
    for step, number in part["steps"]:
        run.log({"return": number, "again/and/again": step}, step=step, commit=False)
        if step == 2:
            run.log({"picture": wandb.Image(numpy.zeros((2, 2, 3), numpy.uint8))}, step=step, commit=False)
        run.log({}, step=step, commit=True)
    run.finish()


if __name__ == "__main__":
    for one in json.load(sys.stdin):
        Path(one["dir"]).mkdir(parents=True)
        _log(one)

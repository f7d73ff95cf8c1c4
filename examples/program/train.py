"""A program that follows docs/run-protocol.md: a hill climber, which can be interrupted at any moment.

Usage: train.py STEPS SPEED
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

EVERY = 10  # steps between checkpoints
FRAMES = 100  # in a step
METRICS = os.environ["ORCHESTRATE_METRICS"]
CHECKPOINTS = Path(os.environ["ORCHESTRATE_CHECKPOINT_DIR"])


def write(line):
    with open(METRICS, "a") as file:
        file.write(json.dumps(line) + "\n")


def save(step, position, generator):
    """Write under another name first: the name that counts says that the file is whole."""
    unfinished = CHECKPOINTS / "unfinished"
    unfinished.write_text(json.dumps([step, position, generator.getstate()]))
    unfinished.replace(CHECKPOINTS / f"{step * FRAMES}.json")


def load():
    """Where to go on: the step, the position and the random generator."""
    generator = random.Random(int(os.environ["ORCHESTRATE_SEED"]))
    if "ORCHESTRATE_RESUME" not in os.environ:
        return 0, 0.0, generator
    step, position, (version, state, gauss) = json.loads(Path(os.environ["ORCHESTRATE_RESUME"]).read_text())
    generator.setstate((version, tuple(state), gauss))
    return step, position, generator


def main():
    steps, speed = int(sys.argv[1]), float(sys.argv[2])
    asked_to_leave = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_leave.append(True))
    write({"program": {"exactness": "exact", "versions": {"hill-climber": "1.0"}}})
    step, position, generator = load()
    while step < steps:
        step += 1
        candidate = position + generator.gauss(0, speed)
        position = min(position, candidate, key=lambda x: abs(x - 3))
        # Metrics first: a checkpoint covers them.
        write({"frames": step * FRAMES, "total": steps * FRAMES, "metrics": {"return": -abs(position - 3)}})
        if step % EVERY == 0 or step == steps or asked_to_leave:
            save(step, position, generator)
        if asked_to_leave and step < steps:
            return 75
    # From here on all may be done twice: the machine can die before the result is on disk, and the program is
    # started again from its last checkpoint. Writing a file under its name does no harm the second time.
    run = json.loads(Path(os.environ["ORCHESTRATE_RUN"]).read_text())
    summary = Path(os.environ.get("ORCHESTRATE_SUBMIT_DIR", "."), f"summary-{run['run_id']}.txt")
    summary.write_text(f"reached {position}\n")
    sys.stdout.write(f"wrote {summary}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

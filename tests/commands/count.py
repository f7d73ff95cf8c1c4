"""A tiny training program after the run protocol: counts, and leaves a trace of every step it executes.

Usage: count.py AUDIT STEPS SECONDS_PER_STEP [CHECKPOINT_EVERY]

SECONDS_PER_STEP may be a file that holds them: what a test writes there sets the pace from then on, in the
step that is being waited for too. A second number in it is the last step that is done before the file says
otherwise, so that a test finds the run where it wants to, however fast or slow the machine is. Relative paths
are of the folder of the call: runs share these files.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

POLL = 0.02


def main() -> int:
    audit, steps, pace = shared(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    every = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    run = json.loads(Path(os.environ["ORCHESTRATE_RUN"]).read_text())
    generator = random.Random(int(os.environ["ORCHESTRATE_SEED"]))
    me = f"{socket.gethostname()}:{os.getpid()}:{time.monotonic_ns()}"
    step, total = 0, 0.0
    if resume := os.environ.get("ORCHESTRATE_RESUME"):
        state = json.loads(Path(resume).read_text())
        step, total = state["step"], state["total"]
        version, internal, gauss = state["generator"]
        generator.setstate((version, tuple(internal), gauss))
    trace = os.open(audit, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(kind: str) -> None:
        line = f"{kind} {run['run_id']} {me} {step}\n"
        os.write(trace, line.encode())

    say("begin")
    while step < steps:
        step += 1
        say("step")
        wait(pace, step, asked)
        total += generator.random()
        report(step, steps, total)
        if step % every == 0 or step == steps or asked:
            save(step, total, generator)
            say("saved")
        if asked and step < steps:
            say("leave")
            return 75
    say("done")
    return 0


def wait(pace: str, step: int, asked: list[int]) -> None:
    """Let the step take its time, or what of it is left when the pace changes."""
    began = time.monotonic()
    while True:
        seconds, last = read(pace)
        left = began + seconds - time.monotonic()
        held = step > last and not asked
        if left <= 0 and not held:
            return
        time.sleep(POLL if held else min(left, max(POLL, left / 20)))


def read(pace: str) -> tuple[float, float]:
    """Seconds per step, and the last step that may be done."""
    try:
        return float(pace), math.inf
    except ValueError:
        seconds, *last = shared(pace).read_text().split() or [POLL]  # it may be being written
        return float(seconds), float(last[0]) if last else math.inf


def shared(name: str) -> Path:
    return Path(os.environ.get("ORCHESTRATE_SUBMIT_DIR", ""), name)


def report(step: int, steps: int, total: float) -> None:
    row = {"iteration": step, "frames": step * 100, "total": steps * 100, "metrics": {"return": total}}
    with open(os.environ["ORCHESTRATE_METRICS"], "a") as file:
        file.write(json.dumps(row) + "\n")


def save(step: int, total: float, generator: random.Random) -> None:
    folder = Path(os.environ["ORCHESTRATE_CHECKPOINT_DIR"])
    temporary = folder / "unfinished"
    temporary.write_text(json.dumps({"step": step, "total": total, "generator": generator.getstate()}))
    temporary.replace(folder / f"{step * 100}.json")


if __name__ == "__main__":
    sys.exit(main())

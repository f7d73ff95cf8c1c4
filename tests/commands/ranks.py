"""A tiny training program on several nodes: in each step rank 0 adds up numbers of all ranks.

Usage: ranks.py FOLDER STEPS SECONDS_PER_STEP; SECONDS_PER_STEP as of count.py. Each rank leaves a file with
its number in FOLDER while it works; all but rank 0 start a process beside themselves and cannot be stopped.
Where FOLDER holds a file `fail`, they leave with the exit code in it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from count import POLL, wait

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
FAILING = "failing\n"


def main() -> int:
    folder, steps, pace = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    resume = os.environ.get("ORCHESTRATE_RESUME")
    step, total = json.loads(Path(resume).read_text()) if resume else (0, 0)
    sys.stdout.write(f"rank {RANK} of {SIZE} begins after step {step}\n")
    sys.stdout.flush()
    with present(folder):
        if RANK:
            return follow(folder)
        return lead(step, total, steps, pace, asked)


def lead(step: int, total: int, steps: int, pace: str, asked: list[int]) -> int:
    with socket.create_server(MASTER) as server:
        others = [server.accept()[0].makefile("rw") for _ in range(SIZE - 1)]
    while step < steps:
        step += 1
        wait(pace, step, asked)
        for other in others:
            other.write(f"{step}\n")
            other.flush()
        answers = [other.readline() for other in others]
        if FAILING in answers:
            wait_until_asked(asked)
            return 75
        if not all(answers):
            sys.stderr.write("a rank is gone\n")
            return 1
        total += step + sum(map(int, answers))
        row = {"frames": step, "total": steps, "metrics": {"return": total}}
        with open(os.environ["ORCHESTRATE_METRICS"], "a") as file:
            file.write(json.dumps(row) + "\n")
        if step % 3 == 0 or step == steps or asked:
            checkpoints = Path(os.environ["ORCHESTRATE_CHECKPOINT_DIR"])
            (checkpoints / "new").write_text(json.dumps([step, total]))
            (checkpoints / "new").replace(checkpoints / f"{step}.json")
        if asked and step < steps:
            return 75
    return 0


def wait_until_asked(asked: list[int]) -> None:
    """Stay until the failure of the other rank ends this one, ten minutes at most."""
    deadline = time.monotonic() + 600
    while not asked and time.monotonic() < deadline:
        time.sleep(POLL)


def follow(folder: Path) -> int:
    subprocess.Popen(["sleep", "86000"], start_new_session=True)
    lead = connected().makefile("rw")
    for line in lead:
        if (folder / "fail").exists():
            sys.stderr.write("something is wrong\n")
            sys.stderr.flush()
            lead.write(FAILING)
            lead.flush()
            return int((folder / "fail").read_text())
        lead.write(f"{int(line) * RANK}\n")
        lead.flush()
    return 0


def connected() -> socket.socket:
    while True:
        try:
            return socket.create_connection(MASTER)
        except OSError:
            time.sleep(POLL)


@contextmanager
def present(folder: Path) -> Iterator[None]:
    mark = folder / f"rank{RANK}"
    (folder / f"{mark.name}.new").write_text(str(os.getpid()))
    (folder / f"{mark.name}.new").replace(mark)
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m benchmarks.sync``: bringing 10,000 finished runs home over loopback, beside plain ``rsync -a``.

A real sshd on this machine, a sweep made by `synthetic.py`, every command in a process of its own, in turns.
Ends with 1 if a goal is not met.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.run import MATRIX, POINTS, Measured
from benchmarks.synthetic import finished_sweep, write_journal
from tests.ssh.server import ALIAS, Server

_ROUNDS = 5
SYNC = str(Path(sys.executable).with_name("sync-results"))


def seconds(argv: Sequence[str], env: dict[str, str], cwd: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} failed:\n{done.stderr}")
    return time.perf_counter() - began


def compare(folder: Path, server: Server) -> list[Measured]:
    """The first sync, then all over again where nothing changed; medians, in turns."""
    sweep = finished_sweep(server.home / "results", "many", MATRIX, iterations=3)
    write_journal(sweep)
    env = {**os.environ, **server.env}
    ours = [SYNC, ALIAS, "ours"]
    plain = ["rsync", "-a", "-e", str(server.bin / "ssh"), f"{ALIAS}:{sweep.results}/", "plain/"]
    first, first_plain = seconds(ours, env, folder), seconds(plain, env, folder)
    pairs = [(seconds(ours, env, folder), seconds(plain, env, folder)) for _ in range(_ROUNDS)]
    again, again_plain = (median(column) for column in zip(*pairs, strict=True))
    print(f"plain rsync -a: first {first_plain:.2f} s, nothing changed {again_plain:.2f} s")
    return [
        Measured(f"sync {POINTS:,} finished runs home", first, 120, "s"),
        Measured("  and again: nothing changed (the first time)", pairs[0][0], 3, "s"),
        Measured(f"  and again: nothing changed (median of {_ROUNDS})", again, 3, "s"),
    ]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="orchestrate-bench-") as folder:
        server = Server(Path(folder) / "ssh")
        server.start()
        try:
            rows = compare(Path(folder), server)
        finally:
            server.stop()
    for row in rows:
        print(row.line(), flush=True)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""``python -m benchmarks.vs_benchmarl``: the same experiment trained by this project and by BenchMARL alone.

Both from composed configuration to the end of the run, without the imports, on one core and one thread, with
BenchMARL's own defaults (W&B offline). They take turns, so that a machine that slows down slows both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

OVERRIDES = {"algorithm": "mappo", "task": "vmas/navigation", "experiment.max_n_frames": 12_000}
EVALUATE = {"experiment.evaluation_interval": 12_000, "experiment.render": "false"}
# Two runs of one program differ by at least this share on a machine that does other things too.
LEAST_NOISE = 0.03
TIME_LIMIT_S = 900


@dataclass(frozen=True)
class Compared:
    """Medians in seconds; ``noise`` is how far the plain runs differ among themselves, as a share."""

    ours: float
    plain: float
    noise: float

    @property
    def ratio(self) -> float:
        return self.ours / self.plain


def compare(folder: Path, pairs: int) -> Compared:
    """Train ``pairs`` times with each, in turns, below ``folder``."""
    plain, ours = [], []
    for number in range(pairs):
        plain.append(train_plain(folder / f"plain-{number}"))
        ours.append(train_ours(folder / f"ours-{number}"))
    middle = median(plain)
    return Compared(median(ours), middle, max(LEAST_NOISE, (max(plain) - min(plain)) / middle))


def train_ours(folder: Path) -> float:
    from orchestrator.rundir import SweepDir

    folder.mkdir()
    overrides = {**OVERRIDES, **EVALUATE}
    base = "".join(f"  {key}: {value}\n" for key, value in overrides.items())
    (folder / "grid.yaml").write_text(f"name: ours\ntrainer: benchmarl\nbase:\n{base}matrix:\n  seed: [0]\n")
    orchestrate = Path(sys.executable).with_name("orchestrate")
    command = [orchestrate, "sweep", "--grid", "grid.yaml", "--slots", "1", "--json"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=TIME_LIMIT_S)
    sweep = SweepDir(folder / "results", "ours")
    (run_id,) = sweep.run_ids()
    attempt = sweep.run(run_id).attempt(1)
    claim = attempt.claim()
    assert claim is not None, "a run that ended was claimed"
    return attempt.end_path.stat().st_mtime - claim.created


def train_plain(folder: Path) -> float:
    folder.mkdir()
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.vs_benchmarl", "plain", folder],
        env={**os.environ, **one_thread, **offline},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    if told.returncode:
        raise SystemExit(f"plain BenchMARL failed:\n{told.stderr[-3000:]}")
    return float(told.stdout.splitlines()[-1])


def plain(folder: Path) -> None:
    """BenchMARL alone, composed as its own command line does it; prints seconds."""
    import torch
    from benchmarl.hydra_config import load_experiment_from_hydra
    from hydra import compose, initialize_config_module

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with initialize_config_module("benchmarl.conf", version_base=None):
        overrides = {**OVERRIDES, **EVALUATE, "experiment.save_folder": folder, "seed": 0}
        config = compose("config", [f"{key}={value}" for key, value in overrides.items()])
    began = time.perf_counter()
    load_experiment_from_hydra(config, task_name=str(OVERRIDES["task"])).run()
    print(time.perf_counter() - began)


def main() -> None:
    if sys.argv[1:2] == ["plain"]:
        plain(Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory(prefix="orchestrate-bench-") as folder:
        compared = compare(Path(folder), pairs=3)
    print(
        f"ours {compared.ours:.1f} s, plain BenchMARL {compared.plain:.1f} s (medians of 3, in turns): "
        f"ratio {compared.ratio:.3f}, noise {compared.noise:.3f}"
    )


if __name__ == "__main__":
    main()

"""The same work by this program and by what else there is for it on Slurm, for ``benchmarks.slurm``.

A system is a command that submits: `orchestrate sweep`, raw `sbatch --array`, submitit's `map_array`, and
Hydra with its submitit launcher. All get the same cores (four runs at once on the test cluster), one thread
and as much memory a run. The peers run one run in each element of an array, as they do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ALGORITHMS, SEEDS = ("mappo", "ippo"), 8
TRAININGS = len(ALGORITHMS) * SEEDS
# Three iterations of 600 frames: a second or two of training on one core.
_TRAINING: Mapping[str, object] = {
    "task": "vmas/navigation",
    "experiment.max_n_frames": 1800,
    "experiment.on_policy_collected_frames_per_batch": 600,
    "experiment.on_policy_n_envs_per_worker": 60,
    "experiment.on_policy_n_minibatch_iters": 1,
    "experiment.on_policy_minibatch_size": 600,
    "experiment.evaluation": "false",
    "experiment.loggers": "[csv]",
}
_ITERATIONS = 3
_MINUTES, _TOUCH_GB, _TRAIN_GB = 30, 1, 2
_PROFILE = "partition: cpu\ncpus_per_task: 2\nmem: 4G\ntime: 30\nsignal: 60\n"


@dataclass(frozen=True)
class System:
    """Commands that submit, each in a folder of its own.

    ``touch(folder, count, held)``: runs that create a file each in ``folder/marks``; held ones are submitted
    and do not start. ``train(folder)``: all the short trainings; ``trained(folder)``: how many came to their
    end. ``waits``: the command stays until its jobs are over.
    """

    name: str
    touch: Callable[[Path, int, bool], list[str]]
    train: Callable[[Path], list[str]]
    trained: Callable[[Path], int]
    waits: bool = False


# This program


def sweep_command(folder: Path, grid: str, *options: str) -> list[str]:
    """`orchestrate sweep` with this grid, its name left away."""
    (folder / "cluster.yaml").write_text(_PROFILE)
    (folder / "grid.yaml").write_text(f"name: bench\n{grid}")
    orchestrate = str(Path(sys.executable).with_name("orchestrate"))
    return [orchestrate, "sweep", "--grid", "grid.yaml", "--on", "./cluster.yaml", *options]


def _our_touch(folder: Path, count: int, held: bool) -> list[str]:
    base = f"base: {{command: [touch, '{folder}/marks/{{seed}}']}}"
    grid = f"trainer: command\n{base}\nmatrix: {{seed: range({count})}}\n"
    return sweep_command(folder, grid, *["--", "--hold"] * held)


def _our_train(folder: Path) -> list[str]:
    base = "".join(f"  {key}: {value}\n" for key, value in _TRAINING.items())
    matrix = f"  algorithm: [{', '.join(ALGORITHMS)}]\n  seed: range({SEEDS})\n"
    return sweep_command(folder, f"trainer: benchmarl\nbase:\n{base}matrix:\n{matrix}")


def _our_trained(folder: Path) -> int:
    return len(list(folder.glob("results/bench/runs/*/result.json")))


# Peers


def _sbatch(folder: Path, count: int, gigabytes: int, body: str, *options: str) -> list[str]:
    script = folder / "job.sh"
    script.write_text(f"#!/bin/bash\n{body}\n")
    asked = [f"--array=0-{count - 1}", "--cpus-per-task=1", f"--mem={gigabytes}G", f"--time={_MINUTES}"]
    return ["sbatch", *asked, f"--output={folder}/%a.out", *options, str(script)]


def _raw_touch(folder: Path, count: int, held: bool) -> list[str]:
    body = f'touch "{folder}/marks/$SLURM_ARRAY_TASK_ID"'
    return _sbatch(folder, count, _TOUCH_GB, body, *["--hold"] * held)


def _raw_train(folder: Path) -> list[str]:
    """BenchMARL's own command line, once an element."""
    fixed = " ".join(f"'{key}={value}'" for key, value in _TRAINING.items())
    body = (
        f"algorithms=({' '.join(ALGORITHMS)})\n"
        f"{sys.executable} -m benchmarl.run {fixed} hydra.run.dir={folder}/runs/$SLURM_ARRAY_TASK_ID "
        f"algorithm=${{algorithms[SLURM_ARRAY_TASK_ID / {SEEDS}]}} seed=$((SLURM_ARRAY_TASK_ID % {SEEDS}))"
    )
    return _sbatch(folder, TRAININGS, _TRAIN_GB, body)


def _peer_trained(folder: Path) -> int:
    files = folder.rglob("scalars/timers_iteration_time.csv")
    return sum(len(file.read_text().splitlines()) == _ITERATIONS for file in files)


def _launcher(folder: Path, gigabytes: int, held: bool) -> list[str]:
    asked = {"cpus_per_task": 1, "mem_gb": gigabytes, "timeout_min": _MINUTES, "partition": "cpu"}
    options = [f"hydra.launcher.{name}={value}" for name, value in asked.items()]
    hold = ["+hydra.launcher.additional_parameters.hold=true"] * held
    return ["--multirun", "hydra/launcher=submitit_slurm", f"hydra.sweep.dir={folder}/runs", *options, *hold]


def _hydra_touch(folder: Path, count: int, held: bool) -> list[str]:
    matrix = [f"+marks={folder}/marks", f"+number=range({count})"]
    program = [sys.executable, "-m", "benchmarks.slurm_touch"]
    return [*program, *_launcher(folder, _TOUCH_GB, held), *matrix]


def _hydra_train(folder: Path) -> list[str]:
    matrix = [f"algorithm={','.join(ALGORITHMS)}", f"seed=range({SEEDS})"]
    fixed = [f"{key}={value}" for key, value in _TRAINING.items()]
    program = [sys.executable, "-m", "benchmarl.run"]
    return [*program, *_launcher(folder, _TRAIN_GB, held=False), *fixed, *matrix]


def _submitit(what: str, folder: Path, *numbers: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "benchmarks.slurm_peers",
        what,
        str(folder),
        *(str(int(one)) for one in numbers),
    ]


OURS = System("orchestrate", _our_touch, _our_train, _our_trained)
RAW = System("sbatch --array", _raw_touch, _raw_train, _peer_trained)
SUBMITIT = System(
    "submitit map_array",
    lambda folder, count, held: _submitit("touch", folder, count, held),
    lambda folder: _submitit("train", folder),
    _peer_trained,
)
HYDRA = System("Hydra submitit launcher", _hydra_touch, _hydra_train, _peer_trained, waits=True)
PEERS = (RAW, SUBMITIT, HYDRA)


# What submitit's user writes: a program that submits, and the functions that its jobs call


def touch(path: Path) -> None:
    path.touch()


def train(folder: Path, algorithm: str, seed: int) -> None:
    """BenchMARL alone, composed as its own command line does it."""
    from benchmarl.hydra_config import load_experiment_from_hydra
    from hydra import compose, initialize_config_module

    folder.mkdir(parents=True)
    chosen = {**_TRAINING, "algorithm": algorithm, "seed": seed, "experiment.save_folder": folder}
    with initialize_config_module("benchmarl.conf", version_base=None):
        config = compose("config", [f"{key}={value}" for key, value in chosen.items()])
    load_experiment_from_hydra(config, task_name=str(_TRAINING["task"])).run()


def _map(function: Callable[..., None], points: Sequence[Sequence[Any]], folder: Path, **asked: Any) -> None:
    import submitit

    executor = submitit.AutoExecutor(folder / "submitit", cluster="slurm")
    executor.update_parameters(
        cpus_per_task=1, timeout_min=_MINUTES, slurm_partition="cpu", slurm_array_parallelism=10_000, **asked
    )
    executor.map_array(function, *zip(*points, strict=True))


def main(what: str, where: str, *numbers: str) -> None:
    # Not those of __main__, which no job would find again.
    from benchmarks import slurm_peers

    folder = Path(where)
    if what == "touch":
        count, held = map(int, numbers)
        marks = [(folder / "marks" / str(number),) for number in range(count)]
        hold = {"slurm_additional_parameters": {"hold": True}} if held else {}
        _map(slurm_peers.touch, marks, folder, mem_gb=_TOUCH_GB, **hold)
    else:
        points = [(folder / f"{name}-{seed}", name, seed) for name in ALGORITHMS for seed in range(SEEDS)]
        _map(slurm_peers.train, points, folder, mem_gb=_TRAIN_GB)


if __name__ == "__main__":
    main(*sys.argv[1:])

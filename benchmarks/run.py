"""``python -m benchmarks.run``: what the project promises about its own speed, measured on this machine.

Every row is a command as a person would type it, in a process of its own. Ends with 1 if a goal is not met.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.rundir import RunDir

ORCHESTRATE = str(Path(sys.executable).with_name("orchestrate"))
MATRIX = {
    "task": [f"vmas/{name}" for name in ("navigation", "balance", "sampling", "transport", "wheel")],
    "algorithm": ["mappo", "ippo", "iql", "vdn", "qmix"],
    "experiment.lr": [0.00005, 0.0001, 0.0003, 0.001],
    "seed": list(range(100)),
}
POINTS = 10_000


@dataclass(frozen=True)
class Measured:
    """One line of the table. ``value`` and ``goal`` are in ``unit``; met when the value is below."""

    what: str
    value: float
    goal: float
    unit: str

    @property
    def met(self) -> bool:
        return self.value < self.goal

    def line(self) -> str:
        found, goal = f"{self.value:.3g} {self.unit}", f"< {self.goal:g} {self.unit}"
        return f"{self.what:<52} {found:>10} {goal:>10}   {'met' if self.met else 'NOT MET'}"


def call(arguments: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run a command to its end: seconds and peak memory in MiB. Raises if it fails."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [ORCHESTRATE, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"orchestrate {' '.join(arguments)} failed:\n{errors.read().decode()}")
    return seconds, usage.ru_maxrss / 1024


def help_time(folder: Path) -> Iterator[Measured]:
    times = [call(["--help"], folder)[0] for _ in range(10)]
    yield Measured("orchestrate --help (median of 10)", median(times), 0.25, "s")
    bare = [sys.executable, "-c", "pass"]
    ratios = [cpu_seconds([ORCHESTRATE, "--help"]) / cpu_seconds(bare) for _ in range(20)]
    yield Measured("  its CPU time by that of `python -c pass` (20 pairs)", median(ratios), 6, "times")


def cpu_seconds(command: Sequence[str], folder: Path | None = None) -> float:
    """User and system time of a command, which other work on the machine changes less than its duration."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime


def plan_time(folder: Path) -> Iterator[Measured]:
    grid = many_points(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # without checks that passed before
    first, *calls = [call(["sweep", "--grid", str(grid), "--dry-run"], folder) for _ in range(4)]
    yield Measured(f"expand and plan {POINTS:,} points (sweep --dry-run)", max(c[0] for c in calls), 2, "s")
    yield Measured("  peak memory", max(c[1] for c in calls), 300, "MiB")
    yield Measured("  the first time, with the check of 25 structures", first[0], 30, "s")
    # The check is made by a process that imports BenchMARL, which takes 325 MiB for that alone.
    yield Measured("  peak memory of that check", first[1], 400, "MiB")


def submit_time(folder: Path) -> Iterator[Measured]:
    """A submission of runs that wait: the program that the first ones start does nothing for a minute."""
    grid = folder / "waiting.yaml"
    seeds = f"matrix: {{seed: range({POINTS})}}\n"
    grid.write_text(f'name: waiting\ntrainer: command\nbase: {{command: [sleep, "60"]}}\n{seeds}')
    seconds, _ = call(["sweep", "--grid", str(grid), "--detach", "--slots", "1"], folder)
    files = sum(1 for _ in (folder / "results").rglob("*"))
    call(["cancel", "waiting"], folder)
    yield Measured(f"submit {POINTS:,} runs (sweep --detach)", seconds, 10, "s")
    yield Measured("  files and folders that this makes", files, 500, "")


def many_points(folder: Path) -> Path:
    grid = folder / "many.yaml"
    matrix = "".join(f"  {key}: {values}\n" for key, values in MATRIX.items())
    grid.write_text(f"name: many\ntrainer: benchmarl\nmatrix:\n{matrix}")
    return grid


def finished_times(folder: Path) -> Iterator[Measured]:
    from benchmarks.synthetic import finished_sweep, write_journal

    sweep = finished_sweep(folder / "results", "many", MATRIX, iterations=10)
    write_journal(sweep)
    status = median(call(["status", "many"], folder)[0] for _ in range(3))
    yield Measured(f"status of {POINTS:,} finished runs", status, 1, "s")
    again = ["sweep", "--grid", str(many_points(folder))]
    call(again, folder)  # records the grid: nothing is missing, and from now on nothing is written
    settled = median(call(again, folder)[0] for _ in range(3))
    yield Measured(f"sweep again, {POINTS:,} runs finished, none missing", settled, 2, "s")
    collected = median(call(["collect", "many"], folder)[0] for _ in range(3))
    yield Measured(f"collect {POINTS:,} finished runs", collected, 5, "s")


def report_times(folder: Path) -> Iterator[Measured]:
    """Build the page of 10,000 runs in several shapes, and open it in Chromium if there is one."""
    from benchmarks.synthetic import finished_sweep

    few = {"task": ["t"], "algorithm": [f"a{number}" for number in range(5)]}
    shapes = {
        "100 groups × 100 seeds": {**few, "experiment.lr": list(range(1, 21)), "seed": list(range(100))},
        "1,000 groups × 10 seeds": {**few, "experiment.lr": list(range(1, 201)), "seed": list(range(10))},
        "20 tasks × 100 variants × 5 seeds": {
            **few,
            "task": [f"t{number}" for number in range(20)],
            "experiment.lr": list(range(1, 21)),
            "seed": list(range(5)),
        },
    }
    for number, (shape, matrix) in enumerate(shapes.items()):
        finished_sweep(folder / "results", f"r{number}", matrix, iterations=10)
        command = [ORCHESTRATE, "report", f"r{number}"]
        yield Measured(f"report of {shape}, CPU time", cpu_seconds(command, folder), 60, "s")
        page = folder / "results" / f"r{number}" / "report" / "index.html"
        yield Measured("  its page", page.stat().st_size / 1e6, 3, "MB")
        if shutil.which("chromium") is not None:
            yield Measured(
                "  first paint in Chromium", first_paint(page, folder / f"profile{number}"), 1, "s"
            )


def first_paint(page: Path, profile: Path) -> float:
    """Seconds until a browser shows something of a page, the median of three."""
    from tests.browser import chromium

    seen = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    with chromium(profile) as browser:
        return median(float(browser.open(page).evaluate(seen)) / 1000 for _ in range(3))


def start_time(folder: Path) -> Iterator[Measured]:
    """From the end of one run to the first step of training of the next, in the same worker."""
    from orchestrator.rundir import SweepDir

    grid = folder / "starts.yaml"
    grid.write_text(
        "name: starts\ntrainer: benchmarl\n"
        "base: {task: vmas/navigation, algorithm: mappo, experiment.max_n_frames: 120,\n"
        "       experiment.on_policy_collected_frames_per_batch: 120,\n"
        "       experiment.on_policy_n_envs_per_worker: 60,\n"
        "       experiment.on_policy_n_minibatch_iters: 1, experiment.on_policy_minibatch_size: 120,\n"
        "       experiment.evaluation: false, experiment.loggers: []}\n"
        "matrix: {seed: range(8)}\n"
    )
    call(["sweep", "--grid", str(grid), "--slots", "1"], folder)
    sweep = SweepDir(folder / "results", "starts")
    times = sorted(start_and_end(sweep.run(run_id)) for run_id in sweep.run_ids())
    gaps = [start - end for (_, end), (start, _) in pairwise(times)]
    yield Measured("start of a run in a warm worker (median of 7)", median(gaps), 0.5, "s")


def start_and_end(run: RunDir) -> tuple[float, float]:
    """When a run of one iteration began to train, and when it was over, in seconds since the epoch."""
    attempt = run.attempt(1)
    (row,) = run.history()
    return attempt.metrics.stat().st_mtime - row.wall_time, attempt.end_path.stat().st_mtime


def reuse_times(folder: Path) -> Iterator[Measured]:
    """Make 16 runs longer, beside training them at once; plan against a library of 100,000 runs."""
    times = []
    for results, frames in (("extended", 12_000), ("extended", 24_000), ("at-once", 24_000)):
        grid = folder / "longer.yaml"
        grid.write_text(
            "name: longer\ntrainer: benchmarl\n"
            "base: {task: vmas/navigation, algorithm: mappo, experiment.loggers: [],\n"
            "       experiment.on_policy_n_envs_per_worker: 60, experiment.on_policy_n_minibatch_iters: 20,\n"
            f"       experiment.evaluation: false, experiment.max_n_frames: {frames}}}\n"
            "matrix: {seed: range(16)}\n"
        )
        times.append(call(["sweep", "--grid", str(grid), "--results", results], folder)[0])
    _, longer, at_once = times
    yield Measured("16 runs made longer / trained at once", longer / at_once, 0.55, "×")
    grid = many_points(folder)
    with open(grid, "a") as file:
        file.write(f"library: [{large_library(folder / 'lab' / 'results')}]\n")
    call(["sweep", "--grid", str(grid), "--dry-run"], folder)  # the check of its structures
    for option in ("exact", "any"):
        command = ["sweep", "--grid", str(grid), "--dry-run", "--reuse", option]
        took = median(call(command, folder)[0] for _ in range(3))
        yield Measured(f"plan against 100,000 runs of a library, {option}", took, 5, "s")


def large_library(folder: Path) -> Path:
    """Make a tree with 10,000 finished runs and 90,000 that only indexes name."""
    from benchmarks.synthetic import finished_sweep, matrix_runs
    from orchestrator.rundir import IndexRow, SweepDir

    finished_sweep(folder, "many", MATRIX, iterations=2)
    for number in range(9):
        runs = matrix_runs({**MATRIX, "experiment.max_n_frames": [(number + 1) * 100_000]})
        sweep = SweepDir(folder, f"many{number}")
        sweep.create()
        sweep.record_grid(f"name: many{number}\ntrainer: benchmarl\n")
        sweep.write_index([IndexRow(run.run_id, True, run.point) for run in runs])
    return folder


def against_benchmarl(folder: Path) -> Iterator[Measured]:
    from benchmarks.vs_benchmarl import compare

    compared = compare(folder, pairs=3)
    yield Measured(
        f"our trainer's time / plain BenchMARL's ({compared.ours:.1f} s / {compared.plain:.1f} s)",
        compared.ratio,
        1 + compared.noise,
        "×",
    )


BENCHMARKS: dict[str, Callable[[Path], Iterator[Measured]]] = {
    "help": help_time,
    "submit": submit_time,
    "plan": plan_time,
    "finished": finished_times,
    "report": report_times,
    "start": start_time,
    "reuse": reuse_times,
    "benchmarl": against_benchmarl,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="|".join(BENCHMARKS), help="all if left away")
    names = parser.parse_args().only or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}")
    all_met = True
    print(f"{'what':<52} {'measured':>10} {'goal':>10}")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="orchestrate-bench-") as folder:
            for measured in BENCHMARKS[name](Path(folder)):
                print(measured.line(), flush=True)
                all_met = all_met and measured.met
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())

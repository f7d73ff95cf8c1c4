"""``python -m benchmarks.slurm``: what this program costs on a Slurm cluster, beside what else there is.

Starts the tests' own cluster (as root: two nodes of two cores on this machine), lets every system of
``benchmarks.slurm_peers`` do the same work on it in turns, and prints medians of several rounds with their
spread. Times begin with the command that submits and end when the queue is empty again. Ends with 1 if a
goal is not met.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.slurm_peers import HYDRA, OURS, PEERS, RAW, SUBMITIT, TRAININGS, System, sweep_command
from benchmarks.synthetic import finished_sweep, write_journal
from orchestrator.core.machine.hardware import cpu_model
from tests.slurm.cluster import Cluster
from tests.slurm.config import DEFAULTS
from tests.slurm.daemons import search_path

REPOSITORY = Path(__file__).resolve().parents[1]
# One array may have 5,000 elements: the peers have no other way to submit 5,000 runs at once.
SETTINGS = {**DEFAULTS, "MaxArraySize": 10_001, "MaxJobCount": 30_000}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LIMIT_S = 900.0
TRAINED, FASTER = f"{TRAININGS} trainings", f"{TRAININGS} trainings, by ours"


@dataclass(frozen=True)
class Sizes:
    """How much of everything, by system. Slow ones get fewer trivial runs: told is the time of one."""

    points: Mapping[str, tuple[int, ...]]
    finished_seeds: int
    trivial: Mapping[str, int]


# Hydra composes the config of every point before it submits any: over a minute for 1,000.
FULL = Sizes(
    {
        OURS.name: (1_000, 5_000),
        RAW.name: (1_000, 5_000),
        SUBMITIT.name: (1_000, 5_000),
        HYDRA.name: (1_000,),
    },
    200,
    {OURS.name: 200, RAW.name: 200, SUBMITIT.name: 40, HYDRA.name: 40},
)
QUICK = Sizes(
    {OURS.name: (1_000,), RAW.name: (1_000,), SUBMITIT.name: (1_000,), HYDRA.name: ()},
    40,
    {OURS.name: 100, RAW.name: 20, SUBMITIT.name: 8, HYDRA.name: 8},
)


@dataclass(frozen=True)
class Goal:
    """Met when the median is below the bound, or, if ``least``, not below it."""

    bound: float
    least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.bound if self.least else value < self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.least else '<'} {self.bound:g}"


# Of this program; the last one is how much longer each peer takes than it.
GOALS = {
    "submit 1,000 points": Goal(3),
    "submit 5,000 points": Goal(10),
    "resubmit, all finished": Goal(2),
    "RPCs of a resubmission": Goal(5),
    "a trivial run": Goal(0.05),
    "RPCs a trivial run": Goal(1),
    FASTER: Goal(2, least=True),
}


@dataclass
class Table:
    """All that was measured, by what and by whose, in the order in which it first came."""

    units: dict[str, str] = field(default_factory=dict)
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    messages: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, what: str, system: System, value: float, unit: str = "") -> None:
        self.units[what] = unit
        self.values.setdefault((what, system.name), []).append(value)
        print(f"  {what}, {system.name}: {value:.3g} {unit}", file=sys.stderr)

    def compare(self) -> None:
        """Add how much longer each peer's trainings took than ours in the same round."""
        self.units[FASTER] = "×"
        ours = self.values[TRAINED, OURS.name]
        for peer in PEERS:
            theirs = self.values[TRAINED, peer.name]
            self.values[FASTER, peer.name] = [one / our for one, our in zip(theirs, ours, strict=True)]

    def rows(self) -> Iterator[dict[str, Any]]:
        for (what, system), values in sorted(self.values.items(), key=self._place):
            goal = GOALS.get(what) if system == OURS.name or what == FASTER else None
            yield {
                "what": what,
                "system": system,
                "unit": self.units[what],
                "median": median(values),
                "values": values,
                "goal": goal and str(goal),
                "met": goal and goal.met(median(values)),
            }

    def _place(self, item: tuple[tuple[str, str], list[float]]) -> tuple[int, int]:
        what, system = item[0]
        return list(self.units).index(what), [one.name for one in (OURS, *PEERS)].index(system)

    def lines(self) -> Iterator[str]:
        yield f"{'what':<24} {'whose':<24} {'median':>10} {'least – most':>16} {'goal':>7}"
        for row in self.rows():
            found = f"{row['median']:.3g} {row['unit']}".rstrip()
            spread = f"{min(row['values']):.3g} – {max(row['values']):.3g}"
            verdict = {None: "", True: "met", False: "NOT MET"}[row["met"]]
            line = f"{row['what']:<24} {row['system']:<24} {found:>10} {spread:>16} {row['goal'] or '':>7}"
            yield f"{line}   {verdict}".rstrip()
        for what, messages in self.messages.items():
            yield f"{what}: {', '.join(f'{name} {count}' for name, count in messages.most_common())}"


class Lab:
    """A cluster to measure on, and a folder for what is measured."""

    def __init__(self, cluster: Cluster, folder: Path, sizes: Sizes) -> None:
        self.cluster, self.sizes, self.table = cluster, sizes, Table()
        self._folder, self._places = folder, 0
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        paths = {"PATH": search_path(), "PYTHONPATH": str(REPOSITORY)}
        self._env = {**kept, **dict.fromkeys(THREADS, "1"), **paths, **cluster.env}
        cluster.sdiag_reset()
        cluster.queue()
        self._question = self.messages(0)
        self.finished = self.place()
        finished_matrix(self.finished, sizes.finished_seeds)

    def place(self) -> Path:
        """A new folder for one submission."""
        self._places += 1
        folder = self._folder / str(self._places)
        (folder / "marks").mkdir(parents=True)
        return folder

    @contextmanager
    def submitted(self, system: System, argv: Sequence[str], folder: Path, count: int) -> Iterator[None]:
        """A command that has submitted ``count`` runs; if it waits for them, it is ended afterwards."""
        with open(folder / "submit.log", "wb") as log:
            process = subprocess.Popen(argv, cwd=folder, env=self._env, stdout=log, stderr=log)

        def over() -> bool:
            if process.poll() is not None:
                return True
            # The launcher waits for its jobs; it has submitted when all its pickles have their last names.
            return system.waits and len(list(folder.rglob("*_submitted.pkl"))) == count

        try:
            self.wait(over, folder)
            if process.poll():
                text = (folder / "submit.log").read_text(errors="replace")
                raise SystemExit(f"{' '.join(argv)} failed:\n{text[-3000:]}")
            yield
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def work(
        self, system: System, argv: Sequence[str], folder: Path, count: int, done: Callable[[], bool]
    ) -> tuple[float, Counter[str]]:
        """Submit, wait until all is done and the queue is empty: seconds, and messages to the controller."""
        self.cluster.sdiag_reset()
        began, looks = time.perf_counter(), 1
        with self.submitted(system, argv, folder, count):
            self.wait(done, folder)
            while self.cluster.queue():
                time.sleep(0.2)
                looks += 1
            seconds = time.perf_counter() - began
        return seconds, self.messages(looks)

    def messages(self, looks: int) -> Counter[str]:
        """What reached the controller since the last reset, without our own looks at its queue."""
        counted = Counter(self.cluster.sdiag()["types"])
        del counted["REQUEST_STATS_INFO"]  # that was us too
        for name, count in self._question.items() if looks else ():
            counted[name] -= count * looks
        return +counted

    def wait(self, done: Callable[[], bool], folder: Path) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            if time.monotonic() > deadline:
                raise SystemExit(f"not done after {LIMIT_S:.0f} s: {folder}")
            time.sleep(0.02)


# What is measured: each of these once a round and system


def submit(lab: Lab, system: System) -> None:
    """Plan and submit many runs, none of which starts."""
    for count in lab.sizes.points[system.name]:
        what = f"submit {count:,} points"
        if system is HYDRA and (what, system.name) in lab.table.values:
            continue  # slow, and never near the others: once is enough
        folder, began = lab.place(), time.perf_counter()
        with lab.submitted(system, system.touch(folder, count, True), folder, count):
            lab.table.add(what, system, time.perf_counter() - began, "s")
        lab.cluster.cancel_all()


def resubmit(lab: Lab, system: System) -> None:
    """The same command for a matrix that is finished. The peers would train all of it again."""
    if system is not OURS:
        return
    argv = sweep_command(lab.finished, (lab.finished / "matrix.yaml").read_text())
    lab.cluster.sdiag_reset()
    began = time.perf_counter()
    with lab.submitted(system, argv, lab.finished, 0):
        lab.table.add("resubmit, all finished", system, time.perf_counter() - began, "s")
    lab.table.add("RPCs of a resubmission", system, lab.messages(0).total())


def trivial(lab: Lab, system: System) -> None:
    """Runs that create one file each, and all it takes to have them run."""
    count, folder = lab.sizes.trivial[system.name], lab.place()
    argv, marks = system.touch(folder, count, False), folder / "marks"
    seconds, messages = lab.work(system, argv, folder, count, lambda: len(os.listdir(marks)) == count)
    lab.table.add("a trivial run", system, seconds / count, "s")
    lab.table.add("RPCs a trivial run", system, messages.total() / count)
    lab.table.messages[f"{count} runs by {system.name}"] = messages


def train(lab: Lab, system: System) -> None:
    """A matrix of short BenchMARL runs."""
    folder = lab.place()
    seconds, _ = lab.work(system, system.train(folder), folder, TRAININGS, lambda: True)
    if (trained := system.trained(folder)) != TRAININGS:
        raise SystemExit(f"{system.name} finished {trained} of {TRAININGS} trainings: {folder}")
    lab.table.add(TRAINED, system, seconds, "s")


MEASUREMENTS = {"submit": submit, "resubmit": resubmit, "trivial": trivial, "train": train}


def finished_matrix(folder: Path, seeds: int) -> None:
    """A finished sweep in this folder, and its grid, name left away, in matrix.yaml."""
    matrix: dict[str, list[Any]] = {
        "task": [f"vmas/{name}" for name in ("navigation", "balance", "sampling", "transport", "wheel")],
        "algorithm": ["mappo", "ippo", "iql", "vdn", "qmix"],
        "seed": list(range(seeds)),
    }
    text = "trainer: benchmarl\nmatrix:\n" + "".join(f"  {key}: {some}\n" for key, some in matrix.items())
    (folder / "matrix.yaml").write_text(text)
    sweep = finished_sweep(folder / "results", "bench", matrix)
    sweep.record_grid(f"name: bench\n{text}")
    write_journal(sweep)


def measure(lab: Lab, rounds: int, names: Sequence[str]) -> None:
    """Every system in every round, another first each time; the trainings, minutes long, in every second."""
    systems = [OURS, *PEERS]
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for name in names:
            if name == "train" and number % 2:
                continue
            for system in systems:
                MEASUREMENTS[name](lab, system)
        systems = [*systems[1:], systems[0]]
    if "train" in names:
        lab.table.compare()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="|".join(MEASUREMENTS), help="all if left away")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--quick", action="store_true", help="one round of little, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured there")
    options = parser.parse_args()
    names = options.only or list(MEASUREMENTS)
    if unknown := set(names) - set(MEASUREMENTS):
        parser.error(f"no measurement named {', '.join(sorted(unknown))}")
    load = os.getloadavg()[0]
    cluster = Cluster.in_temporary_folder(settings=SETTINGS)
    cluster.start()
    with tempfile.TemporaryDirectory(prefix="orchestrate-bench-") as folder:
        try:
            lab = Lab(cluster, Path(folder), QUICK if options.quick else FULL)
            measure(lab, 1 if options.quick else options.rounds, names)
        finally:
            cluster.stop()  # before the folder goes in which its jobs write
    print(f"{cpu_model()}, {os.cpu_count()} cores; load before it began: {load:.1f}")
    print("\n".join(lab.table.lines()))
    rows = list(lab.table.rows())
    if options.json:
        machine = {"cpu": cpu_model(), "cores": os.cpu_count(), "load": load}
        facts = {"machine": machine, "rows": rows, "messages": lab.table.messages}
        options.json.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    return 0 if all(row["met"] is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

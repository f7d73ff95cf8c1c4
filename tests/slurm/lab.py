"""A folder from which sweeps go to the test cluster by the public commands, and a judge of what came out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from orchestrator.core.types import Run
from orchestrator.rundir import SweepDir, depends_on_time
from orchestrator.rundir.records.journal import STARTED
from orchestrator.rundir.records.ledger_entries import submissions
from tests import helpers, warm
from tests.audit import Audit, check_finished
from tests.slurm.cluster import Cluster
from tests.tiny_benchmarl import NAVIGATION_IQL, NAVIGATION_MAPPO

STEPS = 30
PROFILE: Mapping[str, Any] = {"partition": "cpu", "cpus_per_task": 2, "mem": "2G", "time": 10, "signal": 60}


class Lab:
    """A folder with grids, a profile and results. Nothing in a grid names the folder: its runs are the same
    in every lab.
    """

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.env = {"PYTHONPATH": str(helpers.ROOT), "COLUMNS": "160", **(env or {})}
        self.folder, self.results, self.audit = folder, folder / "results", folder / "audit"
        self.started: list[subprocess.Popen[str]] = []
        self.profile()

    def profile(self, **keys: Any) -> None:
        """What is to be different from `PROFILE`."""
        (self.folder / "profile.yaml").write_text(json.dumps({**PROFILE, **keys}))

    def pace(self, seconds: float, last: int = STEPS) -> None:
        """How long a step of the counting programs takes from now on, and the last one that they may do."""
        unfinished = self.folder / "pace.new"
        unfinished.write_text(f"{seconds} {last}")
        unfinished.replace(self.folder / "pace")

    def count_grid(self, runs: int, pace: float = 0.0, last: int = STEPS) -> None:
        """Sweep `tiny`, of so many runs of tests/commands/count.py, at this :meth:`pace`."""
        argv = [sys.executable, str(helpers.COMMANDS / "count.py"), "audit", str(STEPS), "pace"]
        self.write_grid("tiny", "command", {"command": argv}, {"seed": list(range(runs))})
        self.pace(pace, last)

    def train_grid(self, iterations: int = 12, algorithms: Sequence[str] = ("mappo", "iql")) -> None:
        """Sweep `real`, of a policy-based and a value-based training."""
        base = {**NAVIGATION_MAPPO, **NAVIGATION_IQL, "experiment.max_n_iters": iterations}
        del base["algorithm"]
        self.write_grid("real", "benchmarl", base, {"algorithm": list(algorithms)})

    def write_grid(self, name: str, trainer: str, base: Mapping[str, Any], matrix: Mapping[str, Any]) -> None:
        grid = {"name": name, "trainer": trainer, "base": base, "matrix": matrix}
        (self.folder / f"{name}.yaml").write_text(json.dumps(grid))

    # Commands

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return self.start_python("-m", "orchestrator.ui.cli", *arguments, env=env)

    def start_python(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, **self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, code: int = 0, env: Mapping[str, str] | None = None) -> str:
        """Both outputs of a command that leaves with ``code`` and without a traceback."""
        process = self.start(*arguments, env={**warm.COMMANDS, **(env or {})})
        output, errors = process.communicate(timeout=helpers.PATIENCE_S)
        assert process.returncode == code, f"{arguments}: {process.returncode}\n{output}\n{errors}"
        assert "Traceback" not in output + errors
        return output + errors

    def sweep(
        self, name: str = "tiny", *more: str, code: int = 0, env: Mapping[str, str] | None = None
    ) -> str:
        return self.run("sweep", "--grid", f"{name}.yaml", "--on", "profile.yaml", *more, code=code, env=env)

    def states(self, name: str = "tiny", env: Mapping[str, str] | None = None) -> list[str]:
        """The state of every run, as `status` says."""
        process = self.start("status", name, "--json", env={**warm.COMMANDS, **(env or {})})
        output, errors = process.communicate(timeout=helpers.PATIENCE_S)
        assert process.returncode == 0, errors
        (sweep,) = json.loads(output)
        return [run["state"] for run in sweep["runs"]]

    def sweep_here(self, name: str) -> None:
        """Work a sweep through on this machine, by warm workers, and collect it."""
        self.run("sweep", "--grid", f"{name}.yaml", "--on", "local", "--follow", env=warm.WORKERS)
        self.run("collect", name)

    # What lies on disk

    def dir(self, name: str = "tiny") -> SweepDir:
        return SweepDir.existing(self.results, name)

    def descriptions(self, name: str = "tiny") -> list[Run]:
        sweep = self.dir(name)
        return [sweep.run(run_id).description() for run_id in sweep.run_ids()]

    def job_ids(self, name: str = "tiny") -> dict[str, str]:
        """Slurm's ids of all jobs that were ever submitted, by token."""
        ids: dict[str, str] = {}
        for entry in submissions(self.dir(name).read_ledger()):
            ids |= entry.job_ids
        return {token: job_id.removeprefix("slurm:") for token, job_id in ids.items()}

    def queued(self, slurm: Cluster, name: str = "tiny") -> list[str]:
        """Slurm's ids of the sweep's jobs that are waiting or at work."""
        return sorted(set(self.job_ids(name).values()) & set(slurm.queue()))

    def left_queue(self, name: str, slurm: Cluster) -> bool:
        """Whether none of the sweep's jobs is waiting or at work."""
        return not self.queued(slurm, name)

    def begun(self) -> list[str]:
        """The tokens that workers took."""
        return [log.token for log in self.dir().read_journals() if log.holder is not None]

    def hosts(self, name: str = "tiny") -> list[str]:
        """Where workers started, for every start."""
        logs = self.dir(name).read_journals()
        starts = [event for log in logs for event in log.events if event.kind == STARTED]
        return [event.data["holder"]["host"] for event in starts]

    def steps(self) -> int:
        """Steps that the counting programs executed so far."""
        return sum(kind == "step" for kind, *_ in Audit(self.audit).lines)

    def at_work(self, number: int, timeout: float = helpers.PATIENCE_S) -> None:
        """Wait until so many more steps were executed."""
        goal = self.steps() + number
        helpers.wait_for(lambda: self.steps() >= goal, timeout, f"{number} more steps in {self.folder}")

    def rows(self, name: str = "real") -> int:
        """Lines of metrics that all attempts wrote."""
        files = (self.results / name / "runs").glob("*/attempts/*/metrics.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in files)

    def results_of(self, name: str = "tiny") -> int:
        return len(list((self.results / name / "runs").glob("*/result.json")))

    def wait_done(self, name: str = "tiny", timeout: float = helpers.PATIENCE_S) -> None:
        number = len(self.descriptions(name))
        helpers.wait_for(lambda: self.results_of(name) == number, timeout, f"the end of {self.folder}/{name}")

    def metrics(self, name: str) -> pl.DataFrame:
        """All that was collected and is a function of the runs' identities, bit for bit."""
        table = pl.read_parquet(self.dir(name).metrics_parquet).drop("sweep", "wall_time")
        decided = [item for item in table["name"].unique().to_list() if not depends_on_time(item)]
        return table.filter(pl.col("name").is_in(decided)).sort("run_id", "iteration", "name")


def judge(
    lab: Lab,
    undisturbed: Lab,
    slurm: Cluster,
    name: str = "tiny",
    *,
    beside: bool = False,
    timeout: float = helpers.PATIENCE_S,
) -> list[int]:
    """As :func:`judge_runs`, and the commands tell the same: metrics, bit for bit, and nothing left to do."""
    attempts = judge_runs(lab, slurm, name, beside=beside, timeout=timeout)
    assert set(lab.states(name)) == {"done"}
    run_ids = lab.dir(name).run_ids()
    expected = undisturbed.metrics(name).filter(pl.col("run_id").is_in(run_ids))
    assert expected["run_id"].n_unique() == len(run_ids)
    lab.run("collect", name)
    assert lab.metrics(name).equals(expected)
    assert "nothing new to submit" in lab.sweep(name)
    return attempts


def judge_runs(
    lab: Lab, slurm: Cluster, name: str = "tiny", *, beside: bool = False, timeout: float = helpers.PATIENCE_S
) -> list[int]:
    """Wait until no job is left: every run was done once, as if nothing had happened. Attempts, run by run.

    ``beside``: programs of which nobody could know worked for a while beside those that took over.
    """
    lab.wait_done(name, timeout)
    helpers.wait_for(lambda: lab.left_queue(name, slurm), what=f"the end of the jobs of {lab.folder}")
    sweep, runs = lab.dir(name), lab.descriptions(name)
    if name == "tiny" and not beside:
        check_finished(sweep, runs, lab.folder / "audit", STEPS)
    for run in runs:
        assert [path.name for path in sweep.run(run.run_id).path.glob("re*.json")] == ["result.json"]
    results = [sweep.run(run.run_id).result() for run in runs]
    attempts = [len(sweep.run(run.run_id).attempts()) for run in runs]
    assert [result and result.attempt for result in results] == attempts, "work went on after a result"
    return attempts

"""The commands as a person types them: real processes, exit codes, what they print and what they leave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import jobs_of
from orchestrator.ui.cli import app
from tests import warm
from tests.helpers import COMMANDS, PATIENCE_S, ROOT, kill, wait_for

ORCHESTRATE = [sys.executable, "-m", "orchestrator.ui.cli"]


# All that a program has to do to be done.
DONE = """import os
with open(os.environ["ORCHESTRATE_METRICS"], "a") as metrics:
    metrics.write('{"frames": 1}\\n')
"""


class Bench:
    """A folder with a grid, in which commands are run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"
        self.audit, self.grid = folder / "audit.txt", folder / "grid.yaml"
        self.started: list[subprocess.Popen[str]] = []

    def write_grid(
        self,
        seeds: int = 4,
        steps: int = 10,
        seconds: float | Path = 0.005,
        name: str = "tiny",
        program: str = "",
    ) -> None:
        argv = [
            sys.executable,
            program or str(COMMANDS / "count.py"),
            str(self.audit),
            str(steps),
            str(seconds),
        ]
        self.grid.write_text(
            f"name: {name}\ntrainer: command\nbase:\n  command: {json.dumps(argv)}\n"
            f"matrix:\n  seed: range({seeds})\n"
        )

    def hold_at(self, step: int) -> Path:
        """A grid of two runs that wait at that step until "0" is written to the file that is returned."""
        pace = self.folder / "pace"
        pace.write_text(f"0.01 {step}")
        self.write_grid(seeds=2, steps=60, seconds=pace)
        return pace

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", **(env or {})}
        process = subprocess.Popen(
            [*ORCHESTRATE, *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, code: int = 0, timeout: float = PATIENCE_S) -> str:
        """Standard output; fails unless the command leaves with ``code``, or if it shows a traceback."""
        process = self.start(*arguments, env=warm.COMMANDS)
        output, errors = process.communicate(timeout=timeout)
        assert process.returncode == code, f"{arguments}: {process.returncode}\n{output}\n{errors}"
        assert "Traceback" not in output + errors
        self.errors = errors
        return output

    def sweep(self, *more: str, code: int = 0) -> str:
        return self.run("sweep", "--grid", "grid.yaml", *more, code=code)

    def states(self, name: str = "tiny") -> list[str]:
        (sweep,) = json.loads(self.run("status", name, "--json"))
        return [run["state"] for run in sweep["runs"] if run["in_grid"]]

    def steps(self) -> list[tuple[str, int]]:
        """Every step executed so far, as (run, step)."""
        if not self.audit.exists():
            return []
        fields = [line.split() for line in self.audit.read_text().splitlines()]
        return [(run, int(step)) for kind, run, _, step in fields if kind == "step"]

    def live_workers(self, name: str = "tiny") -> list[int]:
        holders = [log.holder for log in SweepDir(self.results, name).read_journals()]
        return [holder.pid for holder in holders if holder is not None and holder.alive()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    bench.write_grid()
    yield bench
    for process in bench.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    for pid in bench.live_workers() if bench.results.exists() else []:
        kill(pid)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A folder with a sweep of one run, which is done."""
    bench = Bench(tmp_path_factory.mktemp("done"))
    bench.write_grid(seeds=1, steps=2)
    bench.sweep()
    return bench


def test_a_sweep_from_grid_to_tables(bench: Bench) -> None:
    assert "4/4 done" in bench.sweep()
    assert bench.states() == ["done"] * 4
    output = bench.run("collect", "tiny")
    for name in ("results.parquet", "results.csv", "metrics.parquet"):
        assert name in output
        assert (bench.results / "tiny" / name).stat().st_size > 0
    assert "index.html" in bench.run("report", "tiny")
    page = (bench.results / "tiny" / "report" / "index.html").read_text()
    assert "<svg" in page


def test_again_does_nothing_and_says_so(bench: Bench) -> None:
    bench.sweep()
    steps = bench.steps()
    assert "nothing" in bench.sweep()
    assert bench.steps() == steps


def test_a_grown_grid_runs_only_what_is_new(bench: Bench) -> None:
    bench.sweep()
    before = len(bench.steps())
    bench.write_grid(seeds=6)
    assert "6/6 done" in bench.sweep()
    assert len(bench.steps()) == before + 2 * 10
    bench.write_grid(seeds=1)
    assert "kept but not counted" in bench.sweep("--yes")


def test_dry_run_writes_nothing_and_shows_what_is_submitted(bench: Bench) -> None:
    output = bench.sweep("--dry-run")
    assert "4 runs" in output
    assert not bench.results.exists()
    (shown,) = [line.strip() for line in output.splitlines() if "jobs.worker" in line]
    bench.sweep()
    ((_, job),) = jobs_of(SweepDir(bench.results, "tiny").read_ledger())
    assert shown == SweepDir(bench.results, "tiny").script(job.token).read_text()
    assert "nothing" in bench.sweep("--dry-run")


def test_dry_run_shows_no_plan_of_what_would_be_refused(bench: Bench) -> None:
    bench.write_grid(program="no-such-file.py")
    assert bench.sweep("--dry-run", code=2) == ""
    refused = bench.errors
    assert "no-such-file.py" in refused
    bench.sweep(code=2)
    assert bench.errors == refused
    assert not bench.results.exists()


def test_detached_then_adopted(bench: Bench) -> None:
    pace = bench.hold_at(10)
    assert "status tiny" in bench.sweep("--detach")
    wait_for(bench.steps, what="a first step")
    assert "adopted" in bench.sweep("--detach")
    pace.write_text("0")
    bench.sweep()
    assert bench.states() == ["done"] * 2
    assert sorted(bench.steps()) == sorted(set(bench.steps())), "a step was executed twice"


def test_ctrl_c_stops_with_checkpoints_and_the_same_command_goes_on(bench: Bench) -> None:
    pace = bench.hold_at(40)
    process = bench.start("sweep", "--grid", "grid.yaml")
    wait_for(lambda: len(bench.steps()) > 10, what="some steps")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    pace.write_text("0")
    assert process.returncode == 130
    assert "orchestrate sweep --grid grid.yaml" in errors
    assert bench.live_workers() == []
    assert bench.states() == ["interrupted"] * 2
    bench.sweep()
    assert bench.states() == ["done"] * 2
    assert sorted(bench.steps()) == sorted(set(bench.steps())), "a checkpointed step was executed again"


def test_a_killed_command_line_leaves_its_worker_to_the_next(bench: Bench) -> None:
    pace = bench.hold_at(10)
    process = bench.start("sweep", "--grid", "grid.yaml")
    wait_for(bench.steps, what="a first step")
    process.kill()
    process.wait()
    assert len(bench.live_workers()) == 1
    pace.write_text("0")
    bench.sweep()
    assert bench.states() == ["done"] * 2
    assert sorted(bench.steps()) == sorted(set(bench.steps()))


def test_a_killed_worker_is_replaced_while_the_command_line_follows(bench: Bench) -> None:
    pace = bench.hold_at(10)
    process = bench.start("sweep", "--grid", "grid.yaml")
    wait_for(bench.steps, what="a first step")
    (worker,) = bench.live_workers()
    kill(worker)
    pace.write_text("0")
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, output + errors
    assert bench.states() == ["done"] * 2


def test_two_command_lines_share_one_sweep(bench: Bench) -> None:
    bench.write_grid(seeds=4, steps=30, seconds=0.02)
    both = [bench.start("sweep", "--grid", "grid.yaml") for _ in range(2)]
    for process in both:
        output, errors = process.communicate(timeout=600)
        assert process.returncode == 0, output + errors
    assert sorted(bench.steps()) == sorted(set(bench.steps()))
    assert len(bench.steps()) == 4 * 30


def test_cancel_and_retry(bench: Bench) -> None:
    pace = bench.hold_at(10)
    bench.sweep("--detach")
    wait_for(lambda: len({run for run, _ in bench.steps()}) == 2, what="both runs at work")
    assert "1 run cancelled" in bench.run("cancel", "tiny", "seed=1")
    wait_for(lambda: bench.states()[1] == "cancelled", what="the cancellation")
    assert "2 runs" in bench.run("cancel", "tiny") or bench.states() == ["cancelled"] * 2
    wait_for(lambda: not bench.live_workers(), what="the worker to leave")
    assert bench.states() == ["cancelled"] * 2
    assert "nothing new" in bench.sweep()
    pace.write_text("0")
    bench.run("retry", "tiny", "seed=1")
    assert bench.states() == ["cancelled", "done"]


def test_a_failed_run_says_why_and_what_next(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text("import sys\nprint('about to fail')\nsys.exit('no such map: desert')\n")
    bench.write_grid(seeds=2, program=str(program))
    output = bench.sweep(code=1)
    assert "failed" in output
    assert "no such map: desert" in output
    assert "orchestrate retry tiny" in output
    assert bench.states() == ["failed"] * 2
    assert "about to fail" in bench.run("logs", "tiny", "seed=0")
    bench.sweep(code=1)  # failed runs wait for a person
    program.write_text(DONE)
    assert "2/2 done" in bench.run("retry", "tiny")


# A program that ends in vain: the first of its runs leaves by itself, the others speak of full disks.
IN_VAIN = """import sys
seed = int(os.environ["ORCHESTRATE_SEED"])
if seed == 0:
    sys.exit(75)
number = [28, 30, 122][seed - 1]  # ENOSPC, EROFS, EDQUOT
raise OSError(number, os.strerror(number), "/elsewhere/x")
"""


@pytest.mark.nightly
def test_a_run_that_ends_in_vain_each_time_is_given_up(bench: Bench, tmp_path: Path) -> None:
    """The file system of the results has room and takes writes, whatever disk the program speaks of."""
    program = tmp_path / "in_vain.py"
    program.write_text(DONE + IN_VAIN)
    bench.write_grid(seeds=4, program=str(program))
    assert "crash loop" in bench.sweep(code=1)
    (sweep,) = json.loads(bench.run("status", "tiny", "--json"))
    assert [(run["state"], run["attempt"]) for run in sweep["runs"]] == [("failed", 3)] * 4


def test_logs_follow_until_the_run_ends(bench: Bench, tmp_path: Path) -> None:
    program, go = tmp_path / "talks.py", tmp_path / "go"
    program.write_text(
        f"import os, time\n{DONE}print('line 0', flush=True)\n"
        f"while not os.path.exists({str(go)!r}):\n    time.sleep(0.02)\nprint('line 1')\n"
    )
    bench.write_grid(seeds=1, program=str(program))
    bench.sweep("--detach")
    wait_for(lambda: bench.states() == ["running"], what="the run to begin")
    following = bench.start("logs", "tiny", "seed=0", "-f")
    assert following.stdout is not None
    assert "line 0" in following.stdout.readline()
    go.touch()
    output, errors = following.communicate(timeout=600)
    assert (following.returncode, output.count("line 1")) == (0, 1), errors


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["sweep", "--grid", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["sweep"], 2, "no grid is given"),
        (["sweep", "--grid", "grid.yaml", "--on", "mars"], 2, "mars"),
        (["check", "grid.yaml", "--on", "mars"], 2, "mars"),
        (["status", "nosuch"], 2, "nosuch"),
        (["logs", "tiny", "seed=9"], 2, "no run fits"),
        (["logs", "tiny", "seed=0", "--attempt", "7"], 2, "attempt 7"),
        (["cancel", "nosuch"], 2, "nosuch"),
        (["retry", "tiny", "zz"], 2, "zz"),
        (["collect", "nosuch"], 2, "nosuch"),
        (["report", "../tiny"], 2, "../tiny"),
    ],
)
def test_mistakes_end_in_one_line(done: Bench, arguments: list[str], code: int, expected: str) -> None:
    done.run(*arguments, code=code)
    assert expected in done.errors


@pytest.mark.parametrize(
    "command",
    [
        "check",
        "sweep",
        "status",
        "top",
        "monitor",
        "logs",
        "cancel",
        "retry",
        "evaluate",
        "collect",
        "report",
        "clean",
        "profiles",
        "doctor",
    ],
)
def test_every_help_shows_examples(done: Bench, command: str) -> None:
    output = done.run(command, "--help")
    assert "Examples" in output
    assert f"orchestrate {command}" in output


def test_the_programs_help_lists_every_command_with_what_it_does(done: Bench) -> None:
    output = done.run("--help")
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    words = " ".join(output.split())
    for name, command in group.commands.items():
        first = str(command.help).partition("\n\n")[0]
        assert (f" {name} {' '.join(first.split())}" in words) is not command.hidden
    for said in ("[OPTIONS] COMMAND [ARGS]...", "--version Print", "-h, --help Show", "Begin with:"):
        assert said in words


def test_json_everywhere_a_table_is_printed(bench: Bench) -> None:
    def parsed(*arguments: str) -> Any:
        return json.loads(bench.run(*arguments, "--json"))

    assert parsed("check", "grid.yaml")["points"] == 4
    assert parsed("sweep", "--grid", "grid.yaml", "--dry-run")["jobs"][0]["slots"] >= 1
    swept = parsed("sweep", "--grid", "grid.yaml")
    assert {run["state"] for run in swept["runs"]} == {"done"}
    assert (swept["started"]["to_do"], swept["started"]["over"]) == (4, False)
    (told,) = parsed("status")
    assert told["counts"] == {"done": 4}
    assert {run_id for job in told["jobs"].values() for run_id in job["runs"]} == {
        run["run_id"] for run in told["runs"]
    }
    assert parsed("collect", "tiny")["missing"] == []
    assert Path(bench.folder / parsed("report", "tiny")["page"]).exists()
    assert parsed("cancel", "tiny")["cancelled"] == []
    assert parsed("retry", "tiny")["jobs"] == []
    assert parsed("clean")["bytes"] == 0
    assert parsed("profiles")["profiles"][0]["name"] == "local"


@pytest.mark.nightly
def test_a_damaged_index_is_named_and_the_sweep_writes_it_anew(bench: Bench) -> None:
    bench.sweep()
    bench.write_grid(seeds=2)
    bench.sweep("--yes")
    index = bench.results / "tiny" / "index.tsv"
    index.write_text(index.read_text()[:-30])
    assert bench.states() == ["done"] * 2  # the line that is cut is read from its run's description
    index.write_text("not an index\n")
    bench.run("status", "tiny", code=2)
    assert "index.tsv" in bench.errors
    assert "orchestrate sweep" in bench.errors
    steps = bench.steps()
    assert "2 runs kept but not counted" in bench.sweep()
    assert bench.steps() == steps
    assert bench.states() == ["done"] * 2


def test_what_other_code_trained_is_stale_and_never_silently_reused(bench: Bench) -> None:
    bench.write_grid(seeds=2)
    bench.sweep()
    for journal in (bench.results / "tiny" / "journals").glob("*.jsonl"):  # as if an older version had run
        journal.write_text(re.sub(r'"code_id": "\w+"', '"code_id": "0123456789ab"', journal.read_text()))
    assert bench.states() == ["stale"] * 2
    steps = bench.steps()
    output = bench.sweep()
    assert "2 stale" in output
    assert "orchestrate retry tiny" in output
    assert bench.steps() == steps
    assert "2/2 done" in bench.run("retry", "tiny")
    assert len(bench.steps()) == 2 * len(steps)
    assert len(list(bench.results.glob("tiny/runs/*/retired-1.json"))) == 2


@pytest.mark.nightly
def test_a_failure_whose_worker_died_before_it_said_so_is_told_and_can_be_retried(
    bench: Bench, tmp_path: Path
) -> None:
    program = tmp_path / "fails.py"
    program.write_text("import sys, time\ntime.sleep(1)\nsys.exit('boom')\n")
    bench.write_grid(seeds=1, program=str(program))
    bench.sweep("--detach")
    runs = bench.results / "tiny" / "runs"
    wait_for(lambda: list(runs.glob("*/attempts/1/claim")), what="the claim")
    (worker,) = bench.live_workers()
    kill(worker, signal.SIGSTOP)
    wait_for(lambda: list(runs.glob("*/attempts/1/end.json")), what="the end record")
    kill(worker)
    assert "boom" in bench.sweep(code=1)
    assert bench.states() == ["failed"]
    program.write_text(DONE)
    assert "1/1 done" in bench.run("retry", "tiny")


@pytest.mark.nightly
def test_a_retry_is_run_though_the_worker_that_passed_the_run_lives(bench: Bench, tmp_path: Path) -> None:
    program, failing, held = (tmp_path / name for name in ("first_fails.py", "failing", "held"))
    program.write_text(
        f"import os, pathlib, sys, time\nfailing, held = map(pathlib.Path, {[str(failing), str(held)]})\n"
        "os.environ['ORCHESTRATE_SEED'] == failing.read_text() and sys.exit(1)\n"
        f"while held.exists():\n    time.sleep(0.02)\n{DONE}"
    )
    bench.write_grid(seeds=3, program=str(program))
    first = next(line for line in bench.sweep("--dry-run").splitlines() if "seed=" in line)
    seed = int(re.findall(r"seed=(\d)", first)[0])
    failing.write_text(str(seed))
    held.touch()
    bench.sweep("--detach", "--slots", "1")
    wait_for(lambda: bench.states()[seed] == "failed", what="the failure")
    failing.write_text("")
    retry = bench.start("retry", "tiny", f"seed={seed}")
    wait_for(lambda: bench.states()[seed] != "failed", what="the retry")
    held.unlink()
    output, errors = retry.communicate(timeout=600)
    assert retry.returncode == 0, output + errors
    assert bench.states() == ["done"] * 3


@pytest.mark.nightly
def test_two_grids_of_one_name_are_each_judged_by_their_own(bench: Bench) -> None:
    bench.write_grid(seeds=2, steps=60, seconds=0.05)
    process = bench.start("sweep", "--grid", "grid.yaml")
    wait_for(bench.steps, what="a first step")
    text = bench.grid.read_text()
    (bench.folder / "other.yaml").write_text(text.replace("range(2)", "range(2,4)"))
    bench.run("sweep", "--grid", "other.yaml", "--detach")
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, output + errors
    assert re.findall(r"^[0-9a-f]{8} +(\d+) +done", output, re.MULTILINE) == ["0", "1"]
    bench.run("sweep", "--grid", "other.yaml")
    assert bench.states() == ["done"] * 2


def test_output_and_folders_that_cannot_be_end_in_one_line(bench: Bench) -> None:
    (bench.folder / "file").write_text("")
    bench.run("sweep", "--grid", "grid.yaml", "--results", "file", code=3)
    assert "file" in bench.errors
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*ORCHESTRATE, "status"], cwd=bench.folder, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert "Traceback" not in done.stderr
    assert done.returncode != 0
    bench.grid.write_text(bench.grid.read_text() + "targets: [mars]\n")
    bench.sweep(code=2)
    assert "grid.yaml" in bench.errors


def test_one_unusable_run_folder_stops_no_other(bench: Bench) -> None:
    bench.write_grid(seeds=4)
    rows = [line.split()[0] for line in bench.sweep("--dry-run").splitlines() if "seed=" in line]
    runs = bench.results / "tiny" / "runs"
    runs.mkdir(parents=True)
    (runs / rows[0]).write_text("a file where a folder should be")
    (runs / rows[1] / "run.json").mkdir(parents=True)
    (runs / rows[2] / "result.json").mkdir(parents=True)
    output = bench.sweep(code=1)
    assert "1/4 done" in output
    for run_id in rows[:3]:
        assert run_id[:8] in bench.errors + output
    bench.run("collect", "tiny")
    bench.run("report", "tiny")

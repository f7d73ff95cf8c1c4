"""A sweep on the cluster, from a laptop that has nothing but ssh to it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import jobs_of
from tests import helpers
from tests.audit import expected_rows
from tests.slurm.cluster import Cluster
from tests.slurm.lab import STEPS, Lab
from tests.ssh.server import ALIAS, Server

FOLDER = "~/marl's place"

HELD = """
import pathlib, sys, time
from orchestrator.control.remote import delegate
from orchestrator.ui.cli import main

step, here, gate = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1))
function = getattr(delegate, step)

def held(*arguments, **options):
    here.touch()
    while not gate.exists():
        time.sleep(0.05)
    return function(*arguments, **options)

setattr(delegate, step, held)
main()
"""

KILLED = """
import os, signal, sys
from orchestrator.control import submit
from orchestrator import rundir
from orchestrator.control.remote import delegate
from orchestrator.control.remote.program import RemoteProgram
from orchestrator.ui.cli import main

def deadly(function):
    def called(*arguments, **options):
        function(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    return called

step = sys.argv.pop(1)
owner = next(one for one in (delegate, submit, RemoteProgram, rundir.SweepDir) if hasattr(one, step))
setattr(owner, step, deadly(getattr(owner, step)))
main()
"""


class Laptop(Lab):
    """A folder on a laptop; its profile leads to the cluster's login node."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        super().__init__(folder)
        self.audit = self.there / "audit"
        # Programs are part of the project, as anybody's: they go along with the code.
        (folder / "count.py").write_bytes((helpers.COMMANDS / "count.py").read_bytes())
        subprocess.run(["git", "init", "-q", str(folder)], check=True)

    def profile(self, **keys: object) -> None:
        there = {"ssh": ALIAS, "folder": FOLDER, "python": [sys.executable]}
        super().profile(**{**there, **keys})

    def count_grid(self, runs: int, pace: float = 0.0) -> None:
        self.write_grid("tiny", "command", {"command": self.count_argv()}, {"seed": list(range(runs))})
        self.pace(pace)

    def count_argv(self) -> list[str]:
        return [sys.executable, "count.py", str(self.audit), str(STEPS), str(self.there / "pace")]

    def pace(self, seconds: float) -> None:
        self.there.mkdir(parents=True, exist_ok=True)
        unfinished = self.there / "pace.new"
        unfinished.write_text(str(seconds))
        unfinished.replace(self.there / "pace")

    def talking_grid(self, runs: int) -> None:
        talking = ["sh", "-c", 'echo "this is run $ORCHESTRATE_SEED"; exec "$@"', "sh", *self.count_argv()]
        self.write_grid("tiny", "command", {"command": talking}, {"seed": list(range(runs))})

    def audit_counts(self) -> list[int]:
        """How often each run was finished, by anybody."""
        lines = [line.split() for line in self.audit.read_text().splitlines()]
        return sorted(Counter(run_id for kind, run_id, *_ in lines if kind == "done").values())

    def results_there(self) -> int:
        return len(list(self.there.glob("results/tiny/runs/*/result.json")))

    def all_done(self, number: int) -> None:
        """Wait until so many runs are done, first by the disk there: a question over ssh takes a second."""
        helpers.wait_for(lambda: self.results_there() == number, what="all results there")
        helpers.wait_for(lambda: self.states() == ["done"] * number, what="the end of the sweep")

    def run_id(self, seed: int) -> str:
        return next(row.run_id for row in self.dir().read_index() if row.point["seed"] == seed)

    def left(self, seed: int) -> bool:
        """Whether nobody on the cluster works on a run."""
        return all(attempt.end() for attempt in self.tree().run(self.run_id(seed)).attempts())

    def unknown(self) -> list[str]:
        states = self.states()
        return states if "unknown" in states else []

    def killed_after(self, step: str) -> None:
        """`sweep`, killed right after the function of that name has done its part."""
        sweep = ("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml")
        process = self.start_python("-c", KILLED, step, *sweep)
        process.communicate(timeout=helpers.PATIENCE_S)
        assert process.returncode == -signal.SIGKILL, step

    def held_at(self, step: str, *arguments: str) -> subprocess.Popen[str]:
        """A command that has come to the function of that name in :mod:`delegate`, and waits there."""
        here, gate = self.folder / "here", self.folder / "gate"
        process = self.start_python("-c", HELD, step, str(here), str(gate), *arguments)
        helpers.wait_for(here.exists, 180, step)
        return process

    def let_go(self) -> None:
        (self.folder / "gate").touch()

    @property
    def there(self) -> Path:
        return self.server.home / "marl's place"

    def tree(self, name: str = "tiny") -> SweepDir:
        """The sweep's folder on the cluster."""
        return SweepDir.existing(self.there / "results", name)


@pytest.fixture
def laptop(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    """Slurm is behind the login node only: the laptop's own commands do not find it."""
    server = Server(tmp_path / "ssh")
    server.start(slurm.env)
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    for name in slurm.env:
        monkeypatch.delenv(name)
    laptop = Laptop(tmp_path / "laptop", server)
    yield laptop
    for process in laptop.started:
        process.kill()
        process.communicate()
    server.stop()


def test_a_sweep_from_a_laptop(laptop: Laptop, slurm: Cluster) -> None:
    laptop.talking_grid(runs=4)
    laptop.pace(3.0)
    dry = laptop.sweep("tiny", "--dry-run")
    said = laptop.sweep()
    assert "4 runs to do on profile" in said
    for script in laptop.tree().path.glob("scripts/*.sh"):
        assert script.read_text() in dry
    laptop.at_work(4)
    helpers.wait_for(lambda: laptop.states().count("running") >= 2, what="runs at work")
    laptop.server.stop()
    told_while_the_link_is_down(laptop)
    laptop.server.start(slurm.env)
    logs_cancel_and_retry(laptop)
    assert laptop.audit_counts() == [1] * 4
    laptop.write_grid("tiny", "command", {"command": ["./no-such-program"]}, {"seed": [0]})
    assert "the configurations are checked there" in laptop.sweep("tiny", "--dry-run")
    for more in ((), ("--dry-run",)):  # the first sends the code
        assert "no program './no-such-program'" in laptop.sweep("tiny", *more, code=2)


def told_while_the_link_is_down(laptop: Laptop) -> None:
    told = helpers.wait_for(laptop.unknown, what="what was heard last to be too old")
    assert set(told) == {"unknown"}
    shown = laptop.run("status", "tiny")
    assert re.search(r"profile: unknown since \d\d:\d\d: cluster: cannot be reached", shown), shown
    assert "cannot be reached" in laptop.sweep(code=3)
    assert "cannot be reached" in laptop.run("cancel", "tiny", code=3)
    assert "without what is new on profile: cluster: cannot be reached" in laptop.run("sync", code=1)
    assert "4 runs stay: on profile: cluster: cannot be reached" in laptop.run(
        "sweep", "--grid", "tiny.yaml", "--on", "local", code=1
    )


def logs_cancel_and_retry(laptop: Laptop) -> None:
    following = laptop.start("logs", "tiny", "seed=0", "--follow")
    assert "3 runs cancelled" in laptop.run("cancel", "tiny", "seed=1", "seed=2", "seed=3")
    assert laptop.states()[1:] == ["cancelled"] * 3
    helpers.wait_for(lambda: all(map(laptop.left, (1, 2, 3))), what="the cancelled runs to have left")
    laptop.pace(0.0)
    output, errors = following.communicate(timeout=helpers.PATIENCE_S)
    assert (output, errors) == ("this is run 0\n", "")
    helpers.wait_for(lambda: laptop.results_there() == 1, what="the result of run 0")
    helpers.wait_for(lambda: laptop.states()[0] == "done", what="the end of run 0")
    assert "nothing new to submit on profile" in laptop.sweep(), "cancelled runs wait for a retry"
    assert "3 runs to do again" in laptop.run("retry", "tiny")
    laptop.all_done(4)
    assert "no run fits" in laptop.run("logs", "tiny", "seed=9", code=2)


@pytest.mark.nightly
def test_a_run_has_one_tree_at_a_time(laptop: Laptop, slurm: Cluster) -> None:
    """What works there stays; what was cancelled there can be retried here; nothing is done twice."""
    laptop.count_grid(runs=4, pace=1.0)
    laptop.profile(pack=1, array_limit=1)
    laptop.sweep()
    helpers.wait_for(lambda: "running" in laptop.states(), what="a run at work")
    said = laptop.run("sweep", "--grid", "tiny.yaml", "--on", "local", code=1)
    assert "on profile: it is running there; cancel it first" in said
    assert laptop.dir().path.joinpath("runs").exists()
    first = laptop.states().index("running")
    others = [f"seed={seed}" for seed in range(4) if seed != first]
    laptop.run("cancel", "tiny", *others)
    assert "3 runs to do again" in laptop.run("retry", "tiny", *others, "--on", "local", "--follow")
    here = [run_id for run_id in laptop.dir().run_ids() if laptop.dir().run(run_id).result_path.exists()]
    assert len(here) == 3
    laptop.pace(0.0)
    helpers.wait_for(lambda: laptop.states() == ["done"] * 4, what="the end of the sweep")
    assert laptop.audit_counts() == [1] * 4
    assert len(laptop.tree().run_ids()) == 4


@pytest.mark.nightly
def test_the_command_line_killed_at_each_step_of_sending(laptop: Laptop) -> None:
    """The same command again does just what is missing."""
    laptop.count_grid(runs=2)
    for after in ("record", "look_there", "freeze", "deliver", "add_to_ledger", "run"):
        laptop.killed_after(after)
    laptop.sweep()
    laptop.all_done(2)
    assert laptop.audit_counts() == [1] * 2


@pytest.mark.nightly
def test_what_is_wrong_there_is_said_in_a_line(laptop: Laptop, tmp_path: Path) -> None:
    laptop.count_grid(runs=1)
    laptop.profile(partition="nowhere")
    assert "set `partition:` in the profile" in laptop.sweep(code=3)
    laptop.profile(python="no-such-python")
    assert "name a Python 3.11 or newer of that machine" in laptop.sweep(code=3)
    laptop.profile(python=["/usr/bin/python3", "-S"])
    assert "install the program's packages for it (in a clone of this program there: " in laptop.sweep(code=3)
    laptop.profile(folder="/proc/marl")
    assert "set `folder:` in the profile" in laptop.sweep(code=3)
    laptop.profile(ssh="nobody.invalid")
    assert "no such machine" in laptop.sweep(code=3)
    laptop.profile()
    laptop.server.banner('Welcome! {"error": "no"}\nquota 12%')
    laptop.sweep()
    laptop.all_done(1)


@pytest.mark.nightly
def test_code_that_was_removed_there_is_sent_again(laptop: Laptop) -> None:
    laptop.count_grid(runs=1)
    laptop.sweep()
    laptop.all_done(1)
    shutil.rmtree(laptop.tree().path / "code")
    assert "cancelled" in laptop.run("cancel", "tiny")
    assert laptop.states() == ["done"]
    (changed,) = (laptop.tree().path / "code").glob("*/tree/count.py")
    changed.chmod(0o644)
    changed.write_text("changed")
    assert "1 run to do again" in laptop.run("retry", "tiny", "seed=0")
    helpers.wait_for(lambda: laptop.states() == ["done"], what="the end of the run with the code as it was")


@pytest.mark.nightly
def test_tables_are_made_at_home(laptop: Laptop) -> None:
    laptop.count_grid(runs=3)
    laptop.sweep()
    laptop.all_done(3)
    assert "3 results not fetched from profile yet" in laptop.run("status", "tiny")
    assert not any(laptop.dir().run(laptop.run_id(seed)).result_path.exists() for seed in range(3))
    assert "fetched 3 results from profile" in laptop.run("sync")
    assert "missing" not in laptop.run("collect", "tiny")
    table = laptop.metrics("tiny")
    assert table["run_id"].n_unique() == 3
    for seed in range(3):
        run_id = laptop.run_id(seed)
        values = table.filter((pl.col("run_id") == run_id) & (pl.col("name") == "return"))["value"].to_list()
        assert values == [row[2] for row in expected_rows(seed, STEPS)]
    laptop.pace(1.0)
    assert "1 run to do again" in laptop.run("retry", "tiny", "seed=0")
    assert laptop.states()[0] in ("queued", "running")
    assert laptop.states()[1:] == ["done"] * 2
    laptop.pace(0.0)
    helpers.wait_for(lambda: laptop.states() == ["done"] * 3, what="the end of the run that was retried")
    laptop.run("status", "tiny", "--exchange")
    result = laptop.dir().run_to_read(laptop.run_id(0)).result()
    assert result is not None
    assert result.attempt == 2
    laptop.server.stop()
    shutil.rmtree(laptop.there)
    assert laptop.dir().latest_grid() is not None
    assert laptop.states() == ["done"] * 3, "what came home is known here"
    assert "nothing new to submit" in laptop.run("sweep", "--grid", "tiny.yaml", "--on", "local")


@pytest.mark.nightly
def test_runs_of_an_edited_program_are_told_apart_there_too(laptop: Laptop) -> None:
    """By what was sent, as the project itself is not there; also when their results have come home."""
    laptop.count_grid(runs=1)
    laptop.sweep()
    laptop.all_done(1)
    with open(laptop.folder / "count.py", "a") as program:
        program.write("EDITED = True\n")
    laptop.count_grid(runs=2)
    laptop.sweep()
    helpers.wait_for(lambda: laptop.states() == ["stale", "done"], what="the end of the second run")
    assert "count.py changed" in laptop.run("status", "tiny")
    laptop.run("sync")
    assert laptop.states() == ["stale", "done"]


@pytest.mark.nightly
def test_the_doctor_goes_there(laptop: Laptop) -> None:
    told = laptop.run("doctor", "--on", "profile.yaml")
    for line in (
        r"ok +Login node +cluster answers in ",
        r"ok +Results there +.*/marl's place: can be written",
        r"ok +Python there +.* is Python 3\.\d+\.\d+, with the program's packages",
        r"ok +Programs there +sbatch, ",
        r"ok +Slurm controller +answers in ",
        r"ok +Script +sbatch accepts it",
    ):
        assert re.search(line, told), f"{line}\n{told}"
    (laptop.server.home / "file").touch()
    laptop.profile(partition="nowhere", folder="~/file/marl", python=["/usr/bin/python3", "-S"])
    told = laptop.run("doctor", "--on", "profile.yaml", code=3)
    assert re.search(r"problem +Results there +.*/file/marl cannot be written", told), told
    assert re.search(r"problem +Python there +.*without hydra, ", told), told
    assert re.search(r"problem +Partition +there is no nowhere", told), told
    laptop.server.stop()
    told = laptop.run("doctor", "--on", "profile.yaml", code=3)
    assert re.search(r"problem +Login node +cluster: cannot be reached", told), told


@pytest.mark.nightly
def test_a_script_launches_follows_and_collects(laptop: Laptop) -> None:
    laptop.count_grid(runs=2)
    script = (
        "from orchestrator.api import launch\n"
        "sweep = launch('tiny.yaml', on='profile.yaml')\n"
        "sweep.follow()\n"
        "print(*sweep.status()['state'], len(sweep.collect().runs), sweep.stop())\n"
    )
    process = laptop.start_python("-c", script)
    output, errors = process.communicate(timeout=helpers.PATIENCE_S)
    assert output.splitlines()[-1:] == ["done done 2 True"], errors


@pytest.mark.nightly
def test_a_submission_that_is_late_finds_its_runs_asked_back(laptop: Laptop) -> None:
    """A slow link, or a laptop that slept: meanwhile the same sweep was begun here."""
    laptop.count_grid(runs=2)
    slow = laptop.held_at("run_there", "sweep", "--grid", "tiny.yaml", "--on", "profile.yaml")
    laptop.run("sweep", "--grid", "tiny.yaml", "--on", "local", "--follow")
    laptop.let_go()
    _, errors = slow.communicate(timeout=helpers.PATIENCE_S)
    assert slow.returncode == 2, errors
    assert "has been decided anew meanwhile" in errors
    assert laptop.states() == ["done"] * 2
    assert laptop.audit_counts() == [1] * 2
    assert not laptop.tree().path.joinpath("scripts").exists(), "nothing was submitted there"


@pytest.mark.nightly
def test_a_folder_that_is_away_proves_nothing(laptop: Laptop) -> None:
    """As when its file system is not mounted on the login node that answers."""
    laptop.count_grid(runs=2, pace=1.0)
    laptop.sweep()
    helpers.wait_for(lambda: "running" in laptop.states(), what="runs at work")
    tree = laptop.tree().path
    tree.rename(tree.with_name("away"))
    assert "was on cluster and is not there now" in laptop.run(
        "sweep", "--grid", "tiny.yaml", "--on", "local", code=1
    )
    assert "was on cluster and is not there now" in laptop.sweep(code=3)
    helpers.wait_for(laptop.unknown, what="what was heard last to be too old")
    assert not tree.exists(), "a look, or a question, made a new one"
    tree.with_name("away").rename(tree)
    laptop.pace(0.0)
    # Workers cannot write without their folder, and leave.
    helpers.wait_for(lambda: "running" not in laptop.states(), what="what becomes of the workers")
    laptop.sweep()
    laptop.all_done(2)
    assert laptop.audit_counts() == [1] * 2


@pytest.mark.nightly
def test_a_place_that_is_gone_for_good(laptop: Laptop) -> None:
    laptop.count_grid(runs=2)
    laptop.profile(partition="gpu", gpus="a100:1")  # which the cluster has not: the sweep stays where it is
    laptop.sweep(code=3)
    shutil.rmtree(laptop.tree().path)
    (laptop.folder / "profile.yaml").unlink()
    assert "its profile cannot be used" in laptop.run("status", "tiny")
    said = laptop.run("retry", "tiny", "--on", "local", "--lost", "--follow")
    assert "2 runs to do again" in said
    assert laptop.states() == ["done"] * 2


@pytest.mark.nightly
def test_two_laptops_and_one_folder(laptop: Laptop, tmp_path: Path) -> None:
    laptop.count_grid(runs=2)
    laptop.sweep()
    other = Laptop(tmp_path / "other", laptop.server)
    other.count_grid(runs=3)
    said = other.sweep(code=2)
    assert "a sweep of this name is " in said
    assert str(laptop.folder) in said
    laptop.all_done(2)
    assert "1 run to do" in other.run("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml", "--adopt")
    other.all_done(3)
    assert "a sweep of this name is " in laptop.run("cancel", "tiny", code=2)
    assert laptop.audit_counts() == [1] * 3


@pytest.mark.nightly
def test_a_retry_elsewhere_moves_what_it_names_and_no_more(laptop: Laptop) -> None:
    argv = ["sh", "-c", '[ "$ORCHESTRATE_SEED" = 0 ] && exit 1; exec "$@"', "sh", *laptop.count_argv()]
    laptop.write_grid("tiny", "command", {"command": argv}, {"seed": list(range(4))})
    laptop.profile(pack=1, array_limit=1)
    laptop.pace(1.0)
    laptop.start("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml").communicate()  # one may have failed
    helpers.wait_for(lambda: "running" in laptop.states() and "failed" in laptop.states(), what="both")
    laptop.run("cancel", "tiny", "seed=3")
    said = laptop.run("sweep", "--grid", "tiny.yaml", "--on", "local", code=1)
    assert "it is failed there; orchestrate retry names what is to be done again" in said
    said = laptop.run("retry", "tiny", "seed=3", "--on", "local", "--detach", code=1)  # for one has failed
    assert "1 run to do again" in said
    assert [job.run_ids for _, job in jobs_of(laptop.dir().read_ledger())] == [(laptop.run_id(3),)]
    assert laptop.states()[0] == "failed"


@pytest.mark.nightly
def test_runs_that_the_grid_has_no_more_are_told_as_they_are(laptop: Laptop) -> None:
    laptop.count_grid(runs=3, pace=1.0)
    laptop.sweep()
    helpers.wait_for(lambda: laptop.states().count("running") >= 2, what="runs at work")
    laptop.count_grid(runs=1, pace=1.0)
    laptop.sweep()
    assert "running" in laptop.states()[1:]
    laptop.pace(0.0)
    laptop.all_done(3)


SHARED = ("sweep", "--grid", "tiny.yaml", "--on", "local,profile.yaml", "--slots", "1")


@pytest.mark.nightly
def test_the_laptop_and_the_cluster_share_a_sweep(laptop: Laptop) -> None:
    """One run at once on each."""
    laptop.count_grid(runs=6, pace=0.05)
    laptop.profile(pack=1, array_limit=1)
    assert "6 runs to do on profile (3), local (3)" in laptop.run(*SHARED)
    assert laptop.states() == ["done"] * 6
    (sweep,) = json.loads(laptop.run("status", "tiny", "--json"))
    assert {run["target"] for run in sweep["runs"]} == {"local", "profile"}
    assert len(laptop.tree().run_ids()) == 3


@pytest.mark.nightly
def test_what_waits_on_the_cluster_comes_back_by_the_same_command(laptop: Laptop) -> None:
    laptop.count_grid(runs=2, pace=0.01)
    laptop.profile(pack=1, array_limit=1, options={"hold": True})
    assert "2 runs to do on profile (1), local (1)" in laptop.run(*SHARED, "--detach")
    helpers.wait_for(lambda: laptop.states().count("done") == 1, what="the run of this machine")
    helpers.wait_for(lambda: "on local (1)" in laptop.run(*SHARED, "--detach"), what="what only waits there")
    helpers.wait_for(lambda: laptop.states() == ["done"] * 2, what="the end of both")
    assert laptop.audit_counts() == [1] * 2

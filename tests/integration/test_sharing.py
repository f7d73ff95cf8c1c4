"""One sweep over several targets that are all this machine, by the commands that a person types."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.api import launch
from orchestrator.rundir import Holder
from orchestrator.rundir.records.journal import CLAIMED, ENDED
from orchestrator.rundir.records.ledger_entries import jobs_of
from tests.audit import check_finished
from tests.helpers import children, kill, run_processes, wait_for
from tests.slurm.lab import Lab

BOTH = ("--on", "left.yaml,right.yaml")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A folder to submit from, with two profiles: one run at once, and two."""
    lab = Lab(tmp_path / "lab")
    (lab.folder / "left.yaml").write_text("backend: local\npack: 1\n")
    (lab.folder / "right.yaml").write_text("backend: local\npack: 2\nprice_per_hour: 0.5\n")
    yield lab
    for process in lab.started:
        process.kill()
        process.communicate()
    for log in lab.dir().read_journals() if lab.results.exists() else ():
        if log.holder is not None and log.holder.alive():
            log.holder.signal(signal.SIGKILL)


def sweep(lab: Lab, *more: str, code: int = 0) -> str:
    return lab.run("sweep", "--grid", "tiny.yaml", *BOTH, *more, code=code)


def targets(lab: Lab) -> list[str | None]:
    """Where each run is, in the order of the grid."""
    (found,) = json.loads(lab.run("status", "tiny", "--json"))
    return [run["target"] for run in found["runs"]]


def most_at_once(lab: Lab) -> dict[str, int]:
    """How many runs each target had at work at the same time, at most."""
    found: dict[str, int] = {}
    ledger = lab.dir().read_ledger()
    where = {job.token: job.target for _, job in jobs_of(ledger)}
    events = [
        (event.time, event.kind, where[log.token])
        for log in lab.dir().read_journals()
        for event in log.events
        if event.kind in (CLAIMED, ENDED)
    ]
    now: dict[str, int] = {}
    for _, kind, target in sorted(events):
        now[target] = now.get(target, 0) + (1 if kind == CLAIMED else -1)
        found[target] = max(found.get(target, 0), now[target])
    return found


def holder(lab: Lab, target: str) -> Holder:
    """The worker of a target's only job."""
    own = {job.token for _, job in jobs_of(lab.dir().read_ledger()) if job.target == target}
    (found,) = [log.holder for log in lab.dir().read_journals() if log.token in own]
    assert found is not None
    return found


def judge(lab: Lab) -> list[int]:
    """Every run was done once, as if there were one target; its attempts."""
    check_finished(lab.dir(), lab.descriptions(), lab.folder / "audit", 30)
    return [len(lab.dir().run(run_id).attempts()) for run_id in lab.dir().run_ids()]


def test_each_has_as_much_as_it_can_work_on(lab: Lab) -> None:
    lab.count_grid(runs=9, pace=0.03)
    said = sweep(lab)
    assert "9 runs to do on left (3), right (6)" in said
    assert judge(lab) == [1] * 9
    assert most_at_once(lab) == {"left": 1, "right": 2}
    again = sweep(lab)
    assert "nothing new to submit" in again
    assert "target" in lab.run("status", "tiny")


def test_a_dry_run_prints_what_each_gets_and_writes_nothing(lab: Lab) -> None:
    lab.count_grid(runs=9)
    said = sweep(lab, "--dry-run")
    assert "0001-0001 on left: 1 job, 3 runs, 1 at once in each" in said
    assert "0002-0001 on right: 1 job, 6 runs, 2 at once in each" in said
    assert not lab.results.exists()
    lab.write_grid("tiny", "command", {"command": ["./no-such-program"]}, {"seed": [0]})
    assert "no program './no-such-program'" in sweep(lab, "--dry-run", code=2)


def test_without_anybody_who_follows_all_is_shared_out_at_once(lab: Lab) -> None:
    lab.count_grid(runs=6, pace=0.01)
    assert "detached" in sweep(lab, "--detach")
    lab.wait_done()
    wait_for(lambda: set(lab.states()) == {"done"}, 180, "the end of all")
    assert sorted(filter(None, targets(lab))) == ["left"] * 2 + ["right"] * 4
    assert judge(lab) == [1] * 6


def test_killed_and_begun_again_it_adopts_what_lives(lab: Lab) -> None:
    lab.count_grid(runs=8, pace=0.1)
    for steps in (1, 5, 20):
        following = lab.start("sweep", "--grid", "tiny.yaml", *BOTH)
        lab.at_work(steps)
        following.kill()
        following.communicate()
    lab.pace(0.01)
    sweep(lab)
    assert judge(lab) == [1] * 8
    assert most_at_once(lab) == {"left": 1, "right": 2}


def test_interrupted_by_a_person_its_runs_save_and_leave(lab: Lab) -> None:
    lab.count_grid(runs=4, pace=0.05, last=4)
    following = lab.start("sweep", "--grid", "tiny.yaml", *BOTH)
    lab.at_work(15)  # three runs, held at their fifth step
    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=600)
    assert following.returncode == 130, errors
    assert "runs on this machine save a checkpoint and leave, jobs elsewhere go on" in errors
    both = f"{lab.folder}/left.yaml,{lab.folder}/right.yaml"
    assert f"stopped; go on with: orchestrate sweep --grid tiny.yaml --on {both}" in errors
    assert not {"running", "queued"} & set(lab.states())
    lab.pace(0.01)
    sweep(lab)
    assert sorted(judge(lab)) == [1, 2, 2, 2]


def test_a_submission_that_every_target_refuses_fails_the_command(lab: Lab) -> None:
    (lab.folder / "right.yaml").write_text("backend: local\n")
    lab.count_grid(runs=2)
    said = sweep(lab, "--detach", "--budget", "5", code=2)
    assert "left: " in said
    assert set(lab.states()) == {"pending"}


@pytest.mark.nightly
def test_the_same_command_deals_again_what_has_not_begun(lab: Lab) -> None:
    """The first target's job has all runs and works on one: the second target gets its part of the others."""
    lab.count_grid(runs=6, pace=0.05, last=4)
    lab.run("sweep", "--grid", "tiny.yaml", "--on", "left.yaml", "--detach")
    lab.at_work(1)
    rehearsed = json.loads(sweep(lab, "--dry-run", "--json"))
    assert "on right (4)" in sweep(lab, "--detach")
    (job,) = rehearsed["jobs"]
    (submitted,) = [job for _, job in jobs_of(lab.dir().read_ledger()) if job.target == "right"]
    assert (submitted.token, list(submitted.run_ids)) == (job["token"], job["run_ids"])
    lab.pace(0.01)
    wait_for(lambda: set(lab.states()) == {"done"}, 180, "the end of all")
    assert sorted(filter(None, targets(lab))) == ["left"] * 2 + ["right"] * 4
    assert judge(lab) == [1] * 6


@pytest.mark.nightly
def test_a_worker_that_is_asked_to_leave_leaves_its_runs_to_the_same_command(lab: Lab) -> None:
    lab.count_grid(runs=4, pace=0.05, last=4)
    following = lab.start("sweep", "--grid", "tiny.yaml", *BOTH)
    lab.at_work(10)  # three runs, held at their fifth step
    holder(lab, "left").signal(signal.SIGTERM)
    both = f"{lab.folder}/left.yaml,{lab.folder}/right.yaml"
    again = f"now by: orchestrate sweep --grid tiny.yaml --on {both}"
    told = ""
    while again not in told:
        told = next(following.stdout or iter(()))
    assert told.startswith("left: ")
    lab.pace(0.01)
    output, errors = following.communicate(timeout=600)
    assert following.returncode == 1, output + errors
    assert "the same command goes on with" in errors
    sweep(lab)
    assert sorted(judge(lab))[-1] == 2


def test_a_worker_that_is_killed_is_replaced_when_no_other_works(lab: Lab) -> None:
    lab.count_grid(runs=4, pace=0.05, last=4)
    following = lab.start("sweep", "--grid", "tiny.yaml", *BOTH)
    lab.at_work(10)
    worker = holder(lab, "left").pid
    for process in [worker, *children(worker), *run_processes(worker)]:
        kill(process)
    lab.pace(0.01)
    output, errors = following.communicate(timeout=600)
    assert following.returncode == 0, output + errors
    assert sorted(judge(lab))[-1] == 2


def test_what_no_target_can_do_is_skipped_and_each_says_why(lab: Lab) -> None:
    lab.count_grid(runs=1)
    grid = json.loads((lab.folder / "tiny.yaml").read_text())
    (lab.folder / "tiny.yaml").write_text(json.dumps({**grid, "resources": {"gpus": 64}}))
    said = sweep(lab, code=2)
    assert "left, right can train no run of this grid" in said
    assert lab.states() == ["skipped"]
    assert "left: needs" in said
    assert "right: needs" in said


@pytest.mark.parametrize(
    ("on", "code", "said"),
    [
        ("left.yaml,left.yaml", 2, "found the target left twice, expected each once"),
        ("left.yaml,nowhere", 2, "there is no such profile"),
        ("left.yaml,", 2, "there is no such profile"),
        ("left.yaml,empty.yaml", 2, "empty: account is empty, and jobs there need it"),
    ],
)
def test_targets_that_cannot_be(lab: Lab, on: str, code: int, said: str) -> None:
    (lab.folder / "empty.yaml").write_text("backend: slurm\nrequire: [account]\n")
    lab.count_grid(runs=1)
    assert said in lab.run("sweep", "--grid", "tiny.yaml", "--on", on, code=code)
    assert not lab.results.exists()


def test_options_of_sbatch_are_for_clusters(lab: Lab) -> None:
    lab.count_grid(runs=1)
    said = lab.run("sweep", "--grid", "tiny.yaml", *BOTH, "--", "--qos=x", code=2)
    assert "none of left.yaml, right.yaml passes options on" in said


def test_from_python(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.count_grid(runs=6, pace=0.01)
    monkeypatch.chdir(lab.folder)
    launched = launch("tiny.yaml", on="left.yaml,right.yaml")
    assert launched.flow.target == "left, right"
    launched.follow()
    assert judge(lab) == [1] * 6


def test_a_grid_that_compares_names_its_targets_and_so_does_a_retry(lab: Lab) -> None:
    profiles = Path.home() / ".config" / "orchestrate" / "profiles"
    profiles.mkdir(parents=True)
    for name in ("left", "right"):
        (lab.folder / f"{name}.yaml").rename(profiles / f"{name}.yaml")
    lab.count_grid(runs=2)
    grid = json.loads((lab.folder / "tiny.yaml").read_text())
    both = {**grid, "targets": ["left", "right"], "compare": True}
    (lab.folder / "tiny.yaml").write_text(json.dumps(both))
    lab.run("sweep", "--grid", "tiny.yaml")
    assert targets(lab) == ["left", "right"] * 2
    assert judge(lab) == [1] * 4
    assert "1 run to do again" in lab.run("retry", "tiny", "target=right,seed=1")
    assert targets(lab) == ["left", "right"] * 2
    assert sorted(len(lab.dir().run(run_id).attempts()) for run_id in lab.dir().run_ids()) == [1, 1, 1, 2]
    (said,) = [json.loads(lab.run("collect", "tiny", "--json"))["targets"]]
    assert (said[0]["key"], said[0]["values"]) == ("target", ["left", "right"])
    assert "2 pairs: too few to tell from noise" in said[0]["verdict"]
    (lab.folder / "tiny.yaml").write_text(json.dumps({**both, "targets": ["left", "nowhere"]}))
    assert "tiny.yaml: targets: " in lab.run("sweep", "--grid", "tiny.yaml", code=2)

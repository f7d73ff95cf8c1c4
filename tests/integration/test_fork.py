"""Runs fork from the state of others with other keys, or begin with their policies."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import shutil
import signal
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from orchestrator.rundir import RunDir
from tests import helpers, warm
from tests.integration.test_extend import PPO, assert_equal, rows_of, state_of, train
from tests.slurm.lab import Lab
from tests.tiny_benchmarl import NAVIGATION_IQL, NAVIGATION_MAPPO

PROGRAM = """
import os, random, signal, sys
from orchestrate_run import run

steps, seed, gain = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
state, generator = [0.0], random.Random(seed)
start = run.resume(state, generator, total=steps, exactness="exact", every=0)
for step in range(start + 1, steps + 1):
    state[0] += gain * generator.random()
    run.log(step, **{"return": state[0]})
    run.save(step, now=True)
    if random.SystemRandom().random() < float(os.environ.get("KILLS", 0)):
        os.kill(os.getpid(), signal.SIGKILL)
"""
COMMAND = [sys.executable, "train.py", "{steps}", "{seed}", "{gain}"]
AT, STEPS, SEEDS = 4, 10, [0, 1]
FORK = {"for": {"gain": 1}, "at": AT}


def program(lab: Lab, **sections: Any) -> dict[str, Any]:
    (lab.folder / "train.py").write_text(PROGRAM)
    grid: dict[str, Any] = {
        "name": "tiny",
        "trainer": "command",
        "base": {"command": COMMAND, "steps": STEPS},
    }
    return {**grid, "matrix": {"gain": [1, 2], "seed": SEEDS}, "length": "steps", "fork": FORK} | sections


def write(lab: Lab, **sections: Any) -> None:
    (lab.folder / "grid.yaml").write_text(json.dumps(program(lab, **sections)))


def returns_of(run: RunDir) -> list[float]:
    return [row.metrics["return"] for row in run.history()]


def expected(seed: int, gain: float, steps: int = STEPS, at: int = AT) -> list[float]:
    """The returns of a run whose gain is 1 up to the fork: one stream of random numbers."""
    generator = random.Random(seed)
    return list(accumulate((1 if step < at else gain) * generator.random() for step in range(steps)))


def runs_of(lab: Lab, sweep: str = "tiny") -> dict[tuple[Any, ...], RunDir]:
    """The runs of a sweep by length, gain and seed."""
    home = lab.dir(sweep)
    points = {row.run_id: row.point for row in home.read_index()}
    return {
        (point["steps"], point["gain"], point["seed"]): home.run(run_id) for run_id, point in points.items()
    }


def test_what_variants_share_is_trained_once(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    write(lab)
    waiting = "4 runs waiting for 2 runs to fork from, trained first"
    planned = lab.run("sweep", "grid.yaml", "--dry-run")
    assert waiting in planned
    assert "when there is room" not in planned
    assert f"2 to do\n{waiting}" in lab.run("check", "grid.yaml")
    assert f"{waiting}; this command submits them then" in train(lab, program(lab))
    runs = runs_of(lab)
    assert len(runs) == 6
    for (steps, gain, seed), run in runs.items():
        run.verify(run.result(), checksums=True)
        assert returns_of(run) == expected(seed, gain, steps)
        lengths = [len(piece.rows) for piece in run.chain()]
        assert lengths == ([AT] if steps == AT else [AT, STEPS - AT])
        assert run.result().attempts == 1
    assert "6/6 done" in lab.run("sweep", "grid.yaml")
    # What the forks begin with is no variant beside them.
    lab.run("collect", "tiny")
    table = pl.read_parquet(lab.dir().path / "results.parquet")
    assert sorted(table.select("steps", "in_grid").rows()) == [(AT, False)] * 2 + [(STEPS, True)] * 4
    # Another sweep of the tree takes them from here.
    more = train(lab, program(lab, matrix={"gain": [3], "seed": SEEDS}) | {"name": "more"})
    assert "2 of 4 runs are in the library" in more
    # Without the section the run of the first gain is the same run, that of the other one is not.
    train(lab, program(lab, fork=None) | {"name": "plain"})
    plain = runs_of(lab, "plain")
    alike = {key for key, run in plain.items() if run.run_id == runs[key].run_id}
    assert alike == {(STEPS, 1, seed) for seed in SEEDS}


def test_only_what_is_left_counts_in_the_estimate(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")

    def frames() -> list[int]:
        (target,) = json.loads(lab.run("estimate", "grid.yaml", "--json"))["targets"]
        return [run["frames"] for run in target["runs"]]

    write(lab, matrix={"gain": [1, 2, 3], "seed": SEEDS})
    assert frames() == [AT] * 2 + [STEPS - AT] * 6
    train(lab, program(lab, matrix={"gain": [1], "seed": SEEDS}))
    write(lab, matrix={"gain": [1, 2, 3], "seed": SEEDS})
    assert frames() == [STEPS - AT] * 4
    assert "4 runs go on from 2 shorter ones: 16 of 40 frames are there" in lab.run(
        "sweep", "grid.yaml", "--dry-run"
    )


def test_forks_of_a_run_that_failed_are_skipped(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    grid = program(lab, matrix={"gain": [2], "seed": [0]}, fork={"for": {"gain": "none"}, "at": AT})
    (lab.folder / "grid.yaml").write_text(json.dumps(grid))
    said = lab.run("sweep", "grid.yaml", env=warm.WORKERS, code=1)
    assert "to fork from is failed" in said


MAPPO = {**NAVIGATION_MAPPO, "experiment.max_n_iters": None, "experiment.max_n_frames": 720}
BATCH = "experiment.on_policy_collected_frames_per_batch"


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        (
            {"base": {**MAPPO, "minutes": 1}},
            "found minutes, and runs that end by time keep no state to fork from",
        ),
        (
            {
                "base": {k: v for k, v in MAPPO.items() if k != BATCH},
                "matrix": {BATCH: [120, 240]},
                "fork": {"for": {BATCH: 120}, "at": 360},
            },
            f"found {BATCH}: 120 before the fork and 240 after it",
        ),
        ({"fork": {"for": {"experiment.lr": 1e-3}, "at": 100}}, "at: 100, expected a multiple of the 120"),
    ],
)
def test_what_cannot_be_forked_is_refused_before_anything_trains(
    tmp_path: Path, sections: dict[str, Any], wanted: str
) -> None:
    lab = Lab(tmp_path / "lab")
    grid = {"name": "tiny", "trainer": "benchmarl", "base": MAPPO, "matrix": {"experiment.lr": [1e-3, 2e-3]}}
    fork = {"for": {"experiment.lr": 1e-3}, "at": 360}
    (lab.folder / "grid.yaml").write_text(json.dumps({**grid, "fork": fork, **sections}))
    assert wanted in lab.run("sweep", "grid.yaml", "--dry-run", code=2)


def test_a_program_that_saves_nothing_cannot_be_forked_and_it_is_said(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    grid = program(lab, matrix={"gain": [1, 2], "seed": [0]})
    script = lab.folder / "train.py"
    script.write_text("import sys\nprint('return,frames', *sys.argv, file=open('log.csv', 'w'))\n")
    (lab.folder / "grid.yaml").write_text(json.dumps(grid))
    assert "no checkpoint can be seen in the program's files" in lab.run("check", "grid.yaml")
    script.write_text(PROGRAM.replace("run.save(step, now=True)", "pass"))
    said = lab.run("sweep", "grid.yaml", env=warm.WORKERS)
    assert "2/2 done  1 skipped" in said
    assert "saved no checkpoint: the program has to save one, by run.save" in said


def test_a_fork_that_changes_nothing_starts_anew_where_its_schedule_depends_on_its_length(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path / "lab")
    grid = {"name": "tiny", "trainer": "ppo", "base": {**PPO, "steps": 1280, "anneal_lr": True}}
    forked = {"matrix": {"lr": [1e-3, 2e-3]}, "fork": {"for": {"lr": 1e-3}, "at": 640}}
    (lab.folder / "grid.yaml").write_text(json.dumps({**grid, **forked}))
    said = lab.run("sweep", "grid.yaml", "--dry-run")
    assert "1 job, 2 runs" in said
    assert "1 run waiting for 1 run to fork from, trained first" in said
    assert "1 fork without a change, trained at once and not paired with others: the learning rate" in said


def test_a_fork_without_effect_is_named_and_so_are_the_runs_to_fork_from(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    grid = program(lab)
    own = PROGRAM.replace("[0.0]", "[0.0, gain]").replace("+= gain", "+= state[1]")  # as an optimizer's rate
    (lab.folder / "train.py").write_text(own)
    train(lab, grid)
    what = "have no effect (a program that loads its optimizer has the old learning rate): gain=1, gain=2"
    assert what in lab.run("collect", "tiny")
    lab.run("report", "tiny")
    page = (lab.dir().path / "report" / "index.html").read_text()
    assert "<b>2</b> beginning of others" in page
    assert page.count("done, beginning of others") == 2
    assert "fork=gain=1@4" in page
    assert page.count('"again":""') == 4
    assert "outside the grid" not in page


def test_a_fork_of_one_run_goes_on_from_its_end(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, program(lab, matrix={"gain": [1], "seed": [0]}, fork=None) | {"name": "base"})
    (base,) = runs_of(lab, "base").values()
    one = {"from": f"base/{base.run_id}"}
    more = {"base": {"command": COMMAND, "steps": 15}, "matrix": {"gain": [1, 3], "seed": [0]}}
    train(lab, program(lab, fork=one, **more))
    for (_, gain, _), run in runs_of(lab).items():
        assert returns_of(run) == expected(0, gain, 15, STEPS)
        assert run.result().fields["prefix"]["run_id"] == base.run_id
    for fork, hint in {
        f"base/{base.run_id}@5": "has no checkpoint at 5 frames; the nearest is at its end, 10",
        f"base/{'0' * 16}": f"no finished run {'0' * 16} in",
        "base/0123": "expected SWEEP/RUN, with the 16 digits",
    }.items():
        name, _, at = fork.partition("@")
        wrong = program(lab, fork={"from": name, **({"at": int(at)} if at else {})}, **more)
        (lab.folder / "wrong.yaml").write_text(json.dumps(wrong | {"name": "wrong"}))
        assert hint in lab.run("sweep", "wrong.yaml", "--dry-run", code=2)
    (base.path / base.result().final_state[0]).unlink()
    (lab.folder / "wrong.yaml").write_text(json.dumps(program(lab, fork=one, **more) | {"name": "wrong"}))
    assert "the last checkpoint of" in lab.run("sweep", "wrong.yaml", "--dry-run", code=2)


def test_skipped_forks_come_back_when_their_trunk_is_retried(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    write(lab, matrix={"gain": [2], "seed": SEEDS})
    fails = "import pathlib\nassert pathlib.Path('ok').exists()\nsteps, seed"
    (lab.folder / "train.py").write_text(PROGRAM.replace("steps, seed", fails, 1))
    lab.run("sweep", "grid.yaml", env=warm.WORKERS, code=1)
    assert lab.states() == ["failed"] * 2 + ["skipped"] * 2
    (lab.folder / "ok").touch()
    first, second = (run.run_id for (steps, _, _), run in runs_of(lab).items() if steps == AT)
    lab.run("retry", "tiny", first, env=warm.WORKERS, code=1)
    assert lab.states() == ["done", "failed", "done", "skipped"]
    lab.run("retry", "tiny", second, env=warm.WORKERS)
    for (steps, gain, seed), run in runs_of(lab).items():
        assert returns_of(run) == expected(seed, gain, steps)
        assert len(run.attempts()) == (2 if steps == AT else 1)


def test_what_waits_has_its_beginning_from_a_library(tmp_path: Path) -> None:
    """Later submissions, here once the canary has trained, look into no library."""
    lab, other = Lab(tmp_path / "lab"), Lab(tmp_path / "other")
    train(other, program(other, matrix={"gain": [1], "seed": [0]}, fork=None) | {"name": "base"})
    (base,) = runs_of(other, "base").values()
    more = {"base": {"command": COMMAND, "steps": 15}, "matrix": {"gain": [3], "seed": SEEDS}}
    write(lab, fork={"from": f"base/{base.run_id}"}, library=str(other.results), **more)
    lab.run("sweep", "grid.yaml", "--canary", env=warm.WORKERS)
    for run in runs_of(lab).values():
        assert returns_of(run) == expected(0, 3, 15, STEPS)
        assert [len(piece.rows) for piece in run.chain()] == [STEPS, 5]


@pytest.mark.nightly(but=["benchmarl"])
@pytest.mark.parametrize("kind", ["benchmarl", "iql", "ppo"])
def test_a_fork_takes_over_the_state_and_keeps_its_own_settings(tmp_path: Path, kind: str) -> None:
    lab, other = Lab(tmp_path / "lab"), Lab(tmp_path / "other")
    grid: dict[str, Any] = {
        "benchmarl": {
            "trainer": "benchmarl",
            "base": {**NAVIGATION_MAPPO, "experiment.max_n_iters": 6},
            "matrix": {"experiment.lr": [1e-3, 2e-3]},
            "fork": {"for": {"experiment.lr": 1e-3}, "at": 3},
        },
        "iql": {
            "trainer": "benchmarl",
            "base": {
                **NAVIGATION_IQL,
                "experiment.max_n_iters": 6,
                "experiment.exploration_anneal_frames": 600,
            },
            "matrix": {"experiment.gamma": [0.9, 0.8]},
            "fork": {"for": {"experiment.gamma": 0.9}, "at": 3},
        },
        "ppo": {
            "trainer": "ppo",
            "base": {**PPO, "steps": 1280},
            "matrix": {"lr": [1e-3, 2e-3]},
            "fork": {"for": {"lr": 1e-3}, "at": 640},
        },
    }[kind]
    key, (same, changed) = next(iter(grid["matrix"].items()))
    train(lab, {"name": "tiny", **grid})
    train(other, {"name": "tiny", **grid, "fork": None, "matrix": {key: [same]}})
    home = lab.dir()
    points = {row.run_id: row.point for row in home.read_index()}
    (at_once,) = other.dir().run_ids()
    assert rows_of(home.run(at_once)) == rows_of(other.dir().run(at_once))
    assert_equal(state_of(home.run(at_once)), state_of(other.dir().run(at_once)))
    (forked,) = (home.run(run_id) for run_id, point in points.items() if point[key] == changed)
    rows, straight = rows_of(forked), rows_of(home.run(at_once))
    there = [row[1] for row in rows].index(forked.result().fields["prefix"]["frames"]) + 1
    assert rows[:there] == straight[:there]
    assert rows[there + 1 :] != straight[there + 1 :]
    state = state_of(forked)
    if kind == "benchmarl":
        groups = [one["param_groups"] for group in state["optimizers"].values() for one in group.values()]
        assert {group["lr"] for (group,) in groups} == {changed}
    elif kind == "iql":
        gammas = [float(loss["_value_estimator.gamma"]) for loss in state["losses"].values()]
        assert gammas == pytest.approx([changed])
    else:
        assert state["learned"]["param_groups"][0]["lr"] == changed


@pytest.mark.nightly(but=["iql", "ppo"])
@pytest.mark.parametrize("kind", ["mappo", "iql", "ppo"])
def test_init_takes_the_policy_and_nothing_else(tmp_path: Path, kind: str) -> None:
    lab = Lab(tmp_path / "lab")
    if kind == "ppo":
        base = {**PPO, "steps": 512, "normalize_observations": False}
        source, own = {"trainer": "ppo", "base": base}, {"trainer": "ppo", "base": {**base, "lr": 1e-30}}
    else:
        base = {**(NAVIGATION_MAPPO if kind == "mappo" else NAVIGATION_IQL), "experiment.max_n_iters": 2}
        base["experiment.exploration_anneal_frames"] = 600
        source = {"trainer": "benchmarl", "base": base}
        own = {"trainer": "benchmarl", "base": {**base, "experiment.lr": 1e-30}}
    train(lab, {"name": "base", **source, "matrix": {"seed": [0]}})
    (trained,) = (lab.dir("base").run(run_id) for run_id in lab.dir("base").run_ids())
    said = train(lab, {"name": "tiny", **own, "matrix": {"seed": [5, 6]}, "init": f"base/{trained.run_id}"})
    assert "2 runs starting with the policy of 1 finished run" in said
    policy = {
        name: one for name, one in state_of(trained)["policy"].items() if name.endswith(("weight", "bias"))
    }
    assert policy
    explores = {name: one for name, one in state_of(trained)["policy"].items() if name.endswith(".eps")}
    assert len(explores) == (kind == "iql")
    for run_id in lab.dir().run_ids():
        run = lab.dir().run(run_id)
        after = state_of(run)["policy"]
        assert all(torch.equal(after[name], one) for name, one in policy.items())
        # Exploration has fallen as far as in the first training: from its own beginning.
        assert all(torch.equal(after[name], one) for name, one in explores.items())
        for loss in state_of(run)["losses"].values() if kind == "iql" else ():
            targets = {name: one for name, one in loss.items() if name.startswith("target_")}
            assert targets
            assert_equal(targets, {name: loss[name.removeprefix("target_")] for name in targets})
        assert [piece.attempt for piece in run.chain()] == [1]
        assert run.result().fields["init"]["run_id"] == trained.run_id


def test_a_program_begins_with_the_weights_of_another_run_and_its_own_random_numbers(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    shutil.copy(helpers.ROOT / "examples/resume/evolution.py", lab.folder)
    base = {"command": [sys.executable, "evolution.py", "{steps}", "{seed}"], "steps": 3}
    grid: dict[str, Any] = {"trainer": "command", "base": base}
    train(lab, {**grid, "name": "base", "matrix": {"seed": [0]}})
    (trained,) = (lab.dir("base").run(run_id) for run_id in lab.dir("base").run_ids())
    train(lab, {**grid, "name": "tiny", "matrix": {"seed": [5]}, "init": f"base/{trained.run_id}"})
    (run,) = (lab.dir().run(run_id) for run_id in lab.dir().run_ids())
    assert run.result().fields["init"]["run_id"] == trained.run_id
    assert returns_of(trained) == evolved(0, np.zeros(8))
    assert returns_of(run) == evolved(5, weights_of(trained))


def evolved(seed: int, weights: np.ndarray) -> list[float]:
    """The returns of examples/resume/evolution.py from these weights on."""
    generator = np.random.default_rng(seed)
    goal = generator.normal(size=8)
    returns = []
    for _ in range(3):
        noise = generator.normal(size=(20, 8))
        fitness = -np.square(weights + 0.1 * noise - goal).sum(axis=1)
        weights = weights + 0.05 / 0.1 * (fitness - fitness.mean()) @ noise / 20
        returns.append(float(-np.square(weights - goal).sum()))
    return returns


def weights_of(run: RunDir) -> np.ndarray:
    with (run.path / run.result().final_state[0]).open("rb") as file:
        parts = pickle.Unpickler(file)
        return np.asarray([parts.load(), parts.load()][1])


def test_a_fork_with_networks_of_another_size_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    fork = {"for": {"hidden": [8]}, "at": 512}
    train_ppo = {"trainer": "ppo", "base": {**PPO, "steps": 1024}, "matrix": {"hidden": [[16]]}}
    (lab.folder / "grid.yaml").write_text(json.dumps({"name": "tiny", **train_ppo, "fork": fork}))
    said = lab.run("sweep", "grid.yaml", env=warm.WORKERS, code=1)
    assert "it has networks or memories of other sizes" in " ".join(said.split())


@pytest.mark.nightly(but=["6"])
@pytest.mark.parametrize("number", range(1, 11))
def test_killed_while_it_places_beginnings_nothing_is_lost_or_doubled(tmp_path: Path, number: int) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, program(lab, matrix={"gain": [1], "seed": SEEDS}))
    write(lab)
    killed = lab.start_python("-m", "tests.executioner", str(number), "sweep", "grid.yaml", "--detach")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    lab.run("sweep", "grid.yaml", env=warm.WORKERS)
    for (steps, gain, seed), run in runs_of(lab).items():
        run.verify(run.result(), checksums=True)
        assert returns_of(run) == expected(seed, gain, steps)
        assert not [path for path in (run.path / "attempts").iterdir() if path.name.startswith(".")]


@pytest.mark.nightly
def test_killed_at_random_forks_end_as_if_they_had_been_left_alone(tmp_path: Path) -> None:
    """Their workers' programs at every fourth step, and the command six times."""
    lab = Lab(tmp_path / "lab", env={"KILLS": "0.25"})
    seeds = list(range(5))
    write(lab, base={"command": COMMAND, "steps": 25}, matrix={"gain": [1, 2, 3], "seed": seeds})
    for _ in range(6):
        command = lab.start("sweep", "grid.yaml", env=warm.WORKERS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(random.SystemRandom().uniform(0.5, 4))
        command.kill()
        command.communicate()
    lab.run("sweep", "grid.yaml", env=warm.WORKERS)
    runs = runs_of(lab)
    assert len(runs) == 4 * len(seeds)
    for (steps, gain, seed), run in runs.items():
        run.verify(run.result(), checksums=True)
        assert returns_of(run) == expected(seed, gain, steps)
        assert run.chain()[0].attempt == int(steps == AT)
    assert sum(len(run.attempts()) - 1 for run in runs.values()) > 40


def test_a_trunk_without_its_checkpoint_is_trained_again_on_request(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, program(lab, matrix={"gain": [1], "seed": [0]}))
    (trunk,) = (run for (steps, _, _), run in runs_of(lab).items() if steps == AT)
    (trunk.path / trunk.result().final_state[0]).unlink()
    write(lab, matrix={"gain": [1, 2], "seed": [0]})
    again = ("retry", "tiny", trunk.run_id)
    said = lab.run("sweep", "grid.yaml", code=1)
    assert f"train it again: orchestrate {' '.join(again)}" in said
    lab.run(*again, env=warm.WORKERS)
    assert lab.states() == ["done"] * 3
    (forked,) = (run for (_, gain, _), run in runs_of(lab).items() if gain == 2)
    assert returns_of(forked) == expected(0, 2)


def test_a_retried_fork_goes_on_from_the_same_state(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, program(lab, matrix={"gain": [1, 2], "seed": [0]}))
    (forked,) = (run for (steps, gain, _), run in runs_of(lab).items() if gain == 2)
    lab.run("retry", "tiny", forked.run_id, env=warm.WORKERS)
    lab.run("sweep", "grid.yaml", env=warm.WORKERS)
    assert forked.result().attempt == 2
    assert returns_of(forked) == expected(0, 2)

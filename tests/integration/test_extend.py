"""Longer runs go on from finished shorter ones, and end as if they had been trained that long at once."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.rundir import RunDir, depends_on_time
from tests import warm
from tests.slurm.lab import Lab
from tests.tiny_benchmarl import NAVIGATION_IQL, NAVIGATION_MAPPO

PPO: dict[str, Any] = {
    "task": "gymnasium/CartPole-v1",
    "envs": 4,
    "rollout_steps": 32,
    "batch_size": 64,
    "evaluation_interval": 256,
    "evaluation_episodes": 2,
}
PROGRAM = """
import os, random, signal, sys
from orchestrate_run import run

steps, seed = int(sys.argv[1]), int(sys.argv[2])
state, generator = [0.0], random.Random(seed)
kills = float(os.environ.get("KILLS", 0))
start = run.resume(state, generator, total=steps, exactness=sys.argv[3], every=0)
for step in range(start + 1, steps + 1):
    state[0] += generator.random()
    run.log(step, **{"return": state[0]})
    run.save(step, now=True)
    if random.SystemRandom().random() < kills:  # each attempt gets further: none is in vain
        os.kill(os.getpid(), signal.SIGKILL)
"""


def rows_of(run: RunDir) -> list[Any]:
    """The history, less what differs between two executions."""
    return [
        (row.iteration, row.frames, {k: repr(v) for k, v in row.metrics.items() if not depends_on_time(k)})
        for row in run.history()
    ]


def state_of(run: RunDir) -> dict[str, Any]:
    """The final checkpoint, less the seconds of training."""
    (path,) = (
        run.path / item.path for item in run.manifest() if item.required and "checkpoints" in item.path
    )
    payload = torch.load(path, weights_only=True)["payload"]
    return {**payload, "counters": {**payload["counters"], "total_time": 0.0}}


def assert_equal(one: Any, other: Any, at: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for key in one:
            assert_equal(one[key], other[key], f"{at}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), at
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_equal(left, right, f"{at}/{index}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one.nan_to_num(), other.nan_to_num()), at
    else:
        assert repr(one) == repr(other), at


def train(lab: Lab, grid: dict[str, Any]) -> str:
    (lab.folder / "grid.yaml").write_text(json.dumps(grid))
    return lab.run("sweep", "grid.yaml", env=warm.WORKERS)


def benchmarl(iterations: int, *algorithms: str) -> dict[str, Any]:
    base = {**NAVIGATION_MAPPO, **NAVIGATION_IQL, "experiment.max_n_iters": iterations}
    del base["algorithm"]
    return {
        "name": "tiny",
        "trainer": "benchmarl",
        "base": base,
        "matrix": {"algorithm": algorithms},
        "for": [{"algorithm": "iql", "set": {"experiment.exploration_anneal_frames": 600}}]
        * ("iql" in algorithms),
    }


def ppo(steps: int, *modes: str) -> dict[str, Any]:
    return {
        "name": "tiny",
        "trainer": "ppo",
        "base": {**PPO, "steps": steps},
        "matrix": {"mode": modes},
        "for": [{"mode": "parallel", "set": {"actors": 2}}] * ("parallel" in modes),
    }


def program(lab: Lab, steps: int, *arguments: str, **sections: Any) -> dict[str, Any]:
    (lab.folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "train.py", "{steps}", "{seed}", *(arguments or ("exact",))]
    base = {"command": command, "steps": steps}
    return {"name": "tiny", "trainer": "command", "base": base, "matrix": {"seed": [0, 1]}} | sections


@pytest.mark.nightly(but=["iql", "parallel"])
@pytest.mark.parametrize(
    ("kind", "which", "short", "long"),
    [
        (benchmarl, "mappo", 2, 4),
        (benchmarl, "iql", 2, 4),  # the ring of its replay memory wraps in the fourth iteration
        (ppo, "sequential", 512, 1280),
        (ppo, "parallel", 512, 1280),
    ],
    ids=["mappo", "iql", "sequential", "parallel"],
)
def test_a_longer_run_goes_on_from_a_shorter_one_bit_for_bit(
    tmp_path: Path, kind: Any, which: str, short: int, long: int
) -> None:
    lab, other = Lab(tmp_path / "lab"), Lab(tmp_path / "other")
    train(lab, kind(short, which))
    assert "1 run goes on from 1 shorter one" in train(lab, kind(long, which))
    train(other, kind(long, which))
    (run_id,) = other.dir().run_ids()
    run, at_once = lab.dir().run(run_id), other.dir().run(run_id)
    assert run.prefix is not None
    run.verify(run.result(), checksums=True)
    assert rows_of(run) == rows_of(at_once)
    assert_equal(state_of(run), state_of(at_once))
    assert [row.in_grid for row in lab.dir().read_index()] == [True, False]
    lab.run("collect", "tiny")
    (lab.folder / "grid.yaml").write_text(json.dumps(kind(short, which)))  # a seed more is as large as these
    (target,) = json.loads(lab.run("estimate", "grid.yaml", "--set", "seed=7", "--json"))["targets"]
    sizes = [
        {item.path: item.bytes for item in lab.dir().run(run_id).manifest()} for run_id in lab.dir().run_ids()
    ]
    assert target["bytes"] == pytest.approx(sum(sum(one.values()) for one in sizes) / 2, abs=2)
    assert 0 < target["bytes_of_state"] < target["bytes"]


def test_only_what_is_left_of_a_program_is_trained(tmp_path: Path) -> None:
    lab, other = Lab(tmp_path / "lab"), Lab(tmp_path / "other")
    train(lab, program(lab, 4))
    (lab.folder / "grid.yaml").write_text(json.dumps(program(lab, 10)))
    assert "write `length: steps`" in lab.run("sweep", "grid.yaml", "--dry-run")
    (lab.folder / "grid.yaml").write_text(json.dumps(program(lab, 10, length="steps")))
    planned = lab.run("sweep", "grid.yaml", "--dry-run")
    assert "2 runs go on from 2 shorter ones: 8 of 20 frames are there" in planned
    (target,) = json.loads(lab.run("estimate", "grid.yaml", "--json"))["targets"]
    assert [run["frames"] for run in target["runs"]] == [6, 6]
    train(lab, program(lab, 10, length="steps"))
    train(other, program(other, 10))
    for run_id in other.dir().run_ids():
        run = lab.dir().run(run_id)
        assert rows_of(run) == rows_of(other.dir().run(run_id))
        assert [len(piece.rows) for piece in run.chain()] == [4, 6]
        assert (run.result().attempts, run.result().fields["prefix"]["frames"]) == (1, 4)


@pytest.mark.parametrize("case", ["code", "exactness", "removed", "damaged"])
def test_a_shorter_run_that_cannot_be_the_beginning_is_not_used(tmp_path: Path, case: str) -> None:
    lab = Lab(tmp_path / "lab")
    exactness = "no progress lost" if case == "exactness" else "exact"
    one = {"length": "steps", "matrix": {"seed": [0]}}
    train(lab, program(lab, 4, exactness, **one))
    (lab.folder / "grid.yaml").write_text(json.dumps(program(lab, 10, exactness, **one)))
    shorter = [lab.dir().run(run_id) for run_id in lab.dir().run_ids()]
    if case == "code":
        (lab.folder / "train.py").write_text(PROGRAM.replace("+= generator", "+= 2 * generator"))
    for run in shorter if case in ("removed", "damaged") else ():
        (path,) = (run.path / name for name in run.result().final_state)
        path.unlink() if case == "removed" else path.write_bytes(b"")
    why = {
        "code": "they were trained by other code",
        "exactness": "their exactness is 'no progress lost'",
        "removed": "their last checkpoints were removed",
        "damaged": "",
    }[case]
    told = lab.run("sweep", "grid.yaml", "--yes", env=warm.WORKERS)
    assert why in told
    for run_id in set(lab.dir().run_ids()) - {run.run_id for run in shorter}:
        run = lab.dir().run(run_id)
        assert run.has_result()
        assert [piece.attempt for piece in run.chain()] == [1]
        assert len(run.history()) == 10


@pytest.mark.nightly(but=["5", "6"])  # while it links the beginning, and before it has its name
@pytest.mark.parametrize("number", range(1, 10))
def test_killed_while_it_extends_nothing_is_lost_or_doubled(tmp_path: Path, number: int) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, program(lab, 4))
    (lab.folder / "grid.yaml").write_text(json.dumps(program(lab, 10, length="steps")))
    command = ["-m", "tests.executioner", str(number), "sweep", "grid.yaml", "--detach"]
    killed = lab.start_python(*command)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    lab.run("sweep", "grid.yaml", env=warm.WORKERS)
    longer = [row.run_id for row in lab.dir().read_index() if row.in_grid]
    assert len(longer) == 2
    for run_id in longer:
        run = lab.dir().run(run_id)
        run.verify(run.result(), checksums=True)
        assert [len(piece.rows) for piece in run.chain()] == [4, 6]
        assert not [path for path in (run.path / "attempts").iterdir() if path.name.startswith(".")]


@pytest.mark.nightly
def test_killed_at_random_it_ends_as_if_trained_at_once(tmp_path: Path) -> None:
    lab, other = Lab(tmp_path / "lab", env={"KILLS": "0.25"}), Lab(tmp_path / "other")
    matrix = {"matrix": {"seed": list(range(10))}}
    train(lab, program(lab, 5, length="steps", **matrix))
    train(lab, program(lab, 25, length="steps", **matrix))
    train(other, program(other, 25, **matrix))
    runs = [lab.dir().run(run_id) for run_id in other.dir().run_ids()]
    for run in runs:
        run.verify(run.result(), checksums=True)
        assert rows_of(run) == rows_of(other.dir().run(run.run_id))
        assert run.chain()[0].attempt == 0
    assert sum(len(run.attempts()) - 1 for run in runs) > 20

"""The trainers ppo, impala and a2c: killed anywhere = left alone; checked, swept, evaluated, collected."""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from jobs.trainers.actor_critic.saved_policy import load_policy
from jobs.training.loop import iterate
from orchestrator.config.returns import EVALUATION_RETURN
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.ui.cli import app
from tests import warm
from tests.helpers import ROOT, wait_for
from tests.recorded_env import EPISODES, TASK
from tests.resuming import Attempt, Kill, Nursery, bits, differences

TINY: dict[str, Any] = {
    "task": "bucket_brigade/hard",
    "steps": 256,
    "envs": 4,
    "rollout_steps": 8,
    "hidden": [8],
    "evaluation_interval": 64,
    "evaluation_episodes": 2,
    "checkpoint_interval": 64,
    "loggers": ["csv"],
}
# The keys of each trainer alone.
OWN: dict[str, dict[str, Any]] = {
    "ppo": {"batch_size": 16, "epochs": 2},
    "impala": {"batch_envs": 2},
    "a2c": {"gae_lambda": 0.9},
}
PAGE = ROOT / "docs" / "ppo.md"
# The return from which on CartPole counts as solved.
SOLVED = 475
# An attempt that is killed at any of the places but an evaluation comes nowhere near the end.
LONG: dict[str, Any] = {"steps": 4096, "evaluation_interval": 0, "checkpoint_interval": 256}
# How often a process is at each place in the whole run, roughly.
PLACES = {
    "collecting": 60,
    "training": 30,
    "evaluation": 3,
    "before rename": 8,
    "after rename": 8,
    "flush": 15,
}
SAVES, PLAYS_AND_LEARNS = ["before rename", "after rename", "flush"], ["collecting", "training"]


def final_state(folder: Path) -> dict[str, Any]:
    (newest, *_) = RunDir(folder).checkpoints()
    return torch.load(newest.path, weights_only=True)["payload"]


@pytest.mark.nightly(but=["gymnasium", "a2c"])
@pytest.mark.parametrize(
    ("trainer", "more", "number"),
    [
        ("ppo", {}, 12),
        ("ppo", {"task.opponents": 1, "anneal_lr": True}, 12),
        ("ppo", {"network": "transformer", "features": 8, "heads": 2}, 12),
        ("ppo", {"task": "gymnasium/CartPole-v1"}, 12),
        ("impala", {"task.opponents": 1}, 12),
        ("a2c", {"task": "gymnasium/CartPole-v1"}, 12),
        ("ppo", {"mode": "parallel", "actors": 2, "task.opponents": 2, "anneal_lr": True}, 12),
        ("a2c", {"mode": "parallel", "actors": 4, "task": "gymnasium/CartPole-v1"}, 12),
        # Its files are large.
        ("ppo", {"task": "procgen/leaper", "network": "cnn", "evaluation_interval": 256}, 6),
    ],
    ids=[
        "one learner",
        "three learners",
        "transformer",
        "gymnasium",
        "impala",
        "a2c",
        "two actors",
        "four",
        "procgen",
    ],
)
def test_killed_anywhere_equals_left_alone(
    trainer: str, more: dict[str, Any], number: int, tmp_path: Path
) -> None:
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    draw, overrides = random.Random(json.dumps([trainer, more])), {**TINY, **OWN[trainer], **more}
    others = range(1, more.get("actors", 1))
    places = {"": list(PLACES), **{f"actor {other}": PLAYS_AND_LEARNS for other in others}}
    kills = kills_of(draw, places)
    with Nursery(trainer) as nursery:
        assert nursery.run(Attempt(str(alone), overrides, 3)) == 0, log(alone)
        hits = 0
        while hits < number:
            code = nursery.run(Attempt(str(killed), overrides, 3, next(kills)))
            assert code in (0, -9) or was_killed(killed), log(killed)
            hits += code != 0
            if code == 0:  # it was done before: kill another
                compare(alone, killed)
                killed = tmp_path / f"killed-{hits}"
        assert nursery.run(Attempt(str(killed), overrides, 3)) == 0, log(killed)
    compare(alone, killed)


@pytest.mark.nightly(but=["asynchronous"])
@pytest.mark.parametrize(
    ("trainer", "more", "places"),
    [
        (
            "impala",
            {"mode": "parallel", "actors": 2, "learners": 2},
            {
                "": [*SAVES, "training"],
                "learner 1": ["training"],
                "actor 0": ["collecting"],
                "actor 1": ["collecting"],
            },
        ),
        (
            "a2c",
            {"mode": "asynchronous", "actors": 2},
            {"": SAVES, "actor 0": PLAYS_AND_LEARNS, "actor 1": PLAYS_AND_LEARNS},
        ),
    ],
    ids=["impala", "asynchronous"],
)
def test_killed_anywhere_loses_nothing_that_was_saved(
    trainer: str, more: dict[str, Any], places: dict[str, list[str]], tmp_path: Path
) -> None:
    """Each attempt goes on from the newest checkpoint, with episodes that no attempt before has played."""
    kills, killed = kills_of(random.Random(trainer), places), RunDir(tmp_path / "killed")
    keys = {**TINY, **OWN[trainer], **more, "task": TASK, **LONG}
    hits, saved, played = 0, 0, list[str]()
    with Nursery(trainer) as nursery:
        while hits < 5:
            episodes = tmp_path / f"episodes-{hits}"
            code = nursery.run(Attempt(str(killed.path), keys, 3, next(kills), env={EPISODES: str(episodes)}))
            assert code == -9 or (code and was_killed(killed.path)), log(killed.path)
            hits += 1
            wait_for(lambda: not open_below(killed.path), what="the end of all processes and of their memory")
            checkpoints = killed.checkpoints(below=99)
            newest = checkpoints[0].frames if checkpoints else 0
            assert newest >= saved
            saved = newest
            frames = [row.frames for row in killed.history()]
            assert frames == [*range(32, len(frames) * 32 + 32, 32)]
            assert frames[-1:] >= [saved] * bool(saved)
            played += episodes.read_text().split() if episodes.exists() else []
        code = nursery.run(Attempt(str(killed.path), keys, 3, env={EPISODES: str(tmp_path / "last")}))
        assert code == 0, log(killed.path)
    assert len(played) == len(set(played)) > 8
    assert [row.frames for row in killed.history()] == [*range(32, LONG["steps"] + 32, 32)]
    assert killed.attempts()[-1].number == hits + 1


def kills_of(draw: random.Random, places: Mapping[str, Sequence[str]]) -> Iterator[Kill]:
    """Kills of each process of a run at each place that it comes to: all once, then all again.

    ``places``: those of each process.
    """
    pairs = [(process, where) for process, wheres in places.items() for where in wheres]
    while True:
        for process, where in draw.sample(pairs, len(pairs)):
            yield Kill(where, draw.randint(1, PLACES[where]), process)


def was_killed(folder: Path) -> bool:
    """Whether the last attempt ended because another process of the run was killed."""
    return "killed by SIGKILL" in log(folder)


def open_below(folder: Path) -> list[str]:
    """The processes that have files open in a folder, as all of a run have its log."""
    return [
        pid
        for pid in os.listdir("/proc")
        if pid.isdigit() and any(target.startswith(f"{folder}/") for target in open_files(pid))
    ]


def open_files(pid: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    return []


def compare(alone: Path, killed: Path) -> None:
    assert [bits(row.metrics) for row in RunDir(killed).history()] == [
        bits(row.metrics) for row in RunDir(alone).history()
    ]
    assert len(RunDir(alone).history()) == 8
    assert differences(final_state(alone), final_state(killed)) == []
    kept = [RunDir(folder).policies(below=100) for folder in (alone, killed)]
    assert [[path.name for path in paths] for paths in kept] == [
        [f"{n:012d}.pt" for n in (64, 128, 192, 256)]
    ] * 2
    for one, other in zip(*kept, strict=True):
        assert differences(torch.load(one, weights_only=True), torch.load(other, weights_only=True)) == []
    outcomes = [json.loads((folder / "outcome.json").read_text()) for folder in (alone, killed)]
    assert [outcome["exactness"] for outcome in outcomes] == ["exact"] * 2
    operations = {outcome.get("flop_per_frame") for outcome in outcomes}
    assert len(operations) == 1
    assert (operations != {None}) == ("procgen" in RunDir(alone).description().overrides["task"])


def log(folder: Path) -> str:
    return RunDir(folder).attempts()[-1].log.read_text()


def run(*arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == code, found.output
    return found.output


def gap_per_reward(one: dict[str, float], other: dict[str, float]) -> float:
    gap, reward = (one[name] - other[name] for name in ("team/gap_closed", "team/reward_per_night"))
    return gap / reward


@pytest.fixture
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this test's sweeps are forks of the warm parent."""
    for name, value in warm.WORKERS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("warm_workers")
def test_by_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = "\n".join(f"  {key}: {json.dumps(value)}" for key, value in {**TINY, **OWN["ppo"]}.items())
    Path("grid.yaml").write_text(f"name: tiny\ntrainer: ppo\nbase:\n{base}\nmatrix:\n  seed: [0, 1]\n")
    assert "2 runs" in run("check", "grid.yaml")
    run("sweep", "--grid", "grid.yaml", "--slots", "1")
    sweep = SweepDir(tmp_path / "results", "tiny")
    for run_id in sweep.run_ids():
        result = sweep.run(run_id).result()
        assert result is not None
        assert (result.frames, result.fields["exactness"]) == (256, "exact")
        returns = [result.fields[f"{which}_return"] for which in ("initial", "final", "best")]
        assert max(returns[:2]) <= returns[2]
        assert result.fields["episodes"] == sweep.run(run_id).history()[-1].metrics["train/total_episodes"]
        metrics = sweep.run(run_id).history()[-1].metrics
        assert {"eval/team/reward_per_night", "eval/behaviour/free_riding"} <= set(metrics)
        (policy,) = (path for path in sweep.run(run_id).path.rglob("policy.pt"))
        assert torch.load(policy, weights_only=True)
        loaded = load_policy(sweep.run(run_id).path)
        assert loaded.act(torch.zeros(2, loaded.seen.mean.numel()), None)[0].shape == (2, 3)
    others = ("bucket_brigade/easy", "bucket_brigade/*_m*,opponents=[hero,liar,specialist]")
    found = CliRunner().invoke(
        app,
        ["evaluate", "tiny", "--episodes=3", "--seed=5", "--json", *(f"--on-task={one}" for one in others)],
    )
    answer, end = json.JSONDecoder().raw_decode(found.output)
    evaluations, said = answer["evaluations"], " ".join(found.output[end:].split())
    assert len(evaluations) == 2 * 2
    assert all(-1e4 < one["figures"]["team/reward_per_night"] < 1e4 for one in evaluations)
    figures = {"team/reward_per_night", "behaviour/work_rate", "behaviour/honesty"}
    assert all(figures < set(one["figures"]) for one in evaluations)
    specialist = evaluations[0]["baselines"]["specialist"]
    assert {"return", *figures} < set(specialist), "in the place of the learner, against its opponents"
    assert specialist["behaviour/honesty"] == 1
    assert gap_per_reward(evaluations[0]["figures"], specialist) == pytest.approx(
        gap_per_reward(evaluations[0]["baselines"]["uniform"], specialist)
    ), "policies and scripted players are on one scale"
    # Another size of the game: named for the first run, and the rest goes on.
    assert found.exit_code == 2
    assert "on bucket_brigade/v2_minimal" in said
    assert "the policy takes 38 numbers" in said
    assert "(and 1 more)" in said
    assert {row["trained_on"] for row in answer["matrix"] if not row["scripted"]} == {"hard"}
    assert len({row["tested_on"] for row in answer["matrix"]}) == 2
    said = run("evaluate", "tiny", "--matrix", "--episodes", "3")
    assert "trained on (rows) × tested on (columns): 3 episodes" in said
    assert "heatmap: " in said
    assert all((sweep.evaluations.path / name).exists() for name in ("matrix.csv", "matrix-1.png"))
    run("collect", "tiny")
    run("report", "tiny")
    page = (sweep.path / "report" / "index.html").read_text()
    assert "Evaluations on several tasks" in page


@pytest.mark.nightly
@pytest.mark.usefixtures("warm_workers")
def test_it_learns_cartpole_with_the_keys_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (grid,) = re.findall(r"```yaml\n(name: cartpole\n.*?)```", PAGE.read_text(), re.DOTALL)
    Path("grid.yaml").write_text(grid.replace("range(3)", "0"))
    run("sweep", "--grid", "grid.yaml")
    sweep = SweepDir(tmp_path / "results", "cartpole")
    (history,) = (sweep.run(run_id).history() for run_id in sweep.run_ids())
    assert max(row.metrics.get(EVALUATION_RETURN, 0.0) for row in history) >= SOLVED
    assert "policies on gymnasium/CartPole-v1: 5 episodes" in run("evaluate", "cartpole", "--episodes", "5")
    found = CliRunner().invoke(app, ["evaluate", "cartpole", "--on-task", "gymnasium/Acrobot-v1"])
    said = " ".join(f"{found.output} {found.exception}".split())
    assert "the policy takes 4 numbers and returns actions of [2] choices" in said
    run("collect", "cartpole")


@pytest.mark.nightly
@pytest.mark.parametrize("trainer", ["impala", "a2c"])
def test_the_keys_of_the_page_solve_cartpole(trainer: str) -> None:
    """In one process: a step is that of several with the same batch."""
    text = (ROOT / "docs" / "actor-critic.md").read_text()
    (grid,) = re.findall(rf"```yaml\n(name: {trainer}_cartpole\n.*?)```", text, re.DOTALL)
    keys = {**yaml.safe_load(grid)["base"], "mode": "sequential", "actors": 1}
    made = pkgutil.resolve_name(f"jobs.trainers.{trainer}.training:TRAINER")
    config = made.config.compose(keys)
    learner, frames, best = made.learner(config, 0), 0, 0.0
    while best < SOLVED and frames < config.steps:
        last = frames
        while frames // config.evaluation_interval == last // config.evaluation_interval:
            iterate(learner, frames / config.steps)
            frames += learner.frames_per_iteration
        best = fmean(learner.play(config.evaluation_episodes, 0, deterministic=True).returns)
    assert best >= SOLVED


@pytest.mark.parametrize(
    ("trainer", "changes", "message", "hint"),
    [
        (
            "ppo",
            {"task": "bucket_brigade/hardd"},
            "task: found 'bucket_brigade/hardd'",
            "did you mean bucket_brigade/hard?",
        ),
        (
            "a2c",
            {"task": "gymnasium/Cartpole"},
            "task: found 'gymnasium/Cartpole'",
            "did you mean gymnasium/CartPole-v1?",
        ),
        (
            "impala",
            {"task": "gymnasium/Zzyzx-v7"},
            "task: found 'gymnasium/Zzyzx-v7'",
            "name the module that registers it, such as gymnasium/minigrid:",
        ),
        ("ppo", {"task.opponents": 5}, "5 opponents: expected 0 to 4", ""),
        (
            "ppo",
            {"task.opponents": ["firefigther"]},
            "no player named 'firefigther'; did you mean firefighter?",
            "",
        ),
        ("ppo", {"task.opponents": 4}, "leaves no agent to learn", ""),
        ("ppo", {"task.opponents": "hro"}, "no player named 'hro'; did you mean hero?", ""),
        ("ppo", {"task.nights": 0}, "found 0 nights, expected a number from 1", ""),
        (
            "ppo",
            {"batch_size": 100},
            "batch_size: found 100, expected a divisor of the 32 rows",
            "write batch_size: 32",
        ),
        (
            "impala",
            {"batch_envs": 3},
            "batch_envs: found 3, expected a divisor of the 4 envs",
            "write batch_envs: 2",
        ),
        ("impala", {"batch_envs": 0}, "batch_envs: found 0, expected a number above 0", ""),
        ("impala", {"batch_envz": 2}, "no key 'batch_envz'", "did you mean batch_envs?"),
        ("impala", {"rho_bar": 1}, "no key 'rho_bar'", "did you mean rho_clip?"),
        ("impala", {"c_clip": -1}, "c_clip: found -1.0, expected a number above 0", ""),
        ("impala", {"gae_lambda": 0.9}, "no key 'gae_lambda'", ""),
        ("a2c", {"gae_lambda": 1.5}, "gae_lambda: found 1.5, expected a number from 0 to 1", ""),
        ("a2c", {"network": "cnn"}, "network: found cnn, expected mlp or transformer", ""),
        ("ppo", {"learning_rate": 0.1}, "no key 'learning_rate'", "did you mean lr?"),
        ("ppo", {"opponents": 3}, "no key 'opponents'", "did you mean task.opponents?"),
        ("ppo", {"lr": "fast"}, "lr: found 'fast', expected a number", ""),
        ("ppo", {"hidden": []}, "hidden: found [], expected sizes", ""),
        ("ppo", {"device": "gpu"}, "device: found 'gpu', expected cpu, cuda or cuda:N", ""),
        ("ppo", {"minutes": -1}, "minutes: found -1, expected minutes of training above 0", ""),
        ("ppo", {"task.name": "x"}, "task.name", "the key `task` names it"),
    ],
)
def test_what_cannot_work_is_refused_before_it_starts(
    trainer: str,
    changes: dict[str, Any],
    message: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {**TINY, **OWN[trainer], **changes}
    base = "\n".join(f"  {key}: {json.dumps(value)}" for key, value in values.items())
    Path("grid.yaml").write_text(f"name: tiny\ntrainer: {trainer}\nbase:\n{base}\n")
    found = CliRunner().invoke(app, ["check", "grid.yaml"])
    said = " ".join(f"{found.output} {found.exception}".split())
    assert found.exit_code != 0, said
    assert message in said
    assert hint in said

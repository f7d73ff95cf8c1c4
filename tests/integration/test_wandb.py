"""The logs of a run with three attempts, read back from its files: every step once, and whose run it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from orchestrator.rundir import Row, RunDir, SweepDir
from orchestrator.sync.wandb import plan_uploads, send
from tests import offline_wandb
from tests.helpers import ROOT, inodes, unpack, wait_for
from tests.resuming import Attempt, Kill, Nursery
from tests.tiny_benchmarl import NAVIGATION_MAPPO
from tests.wandb_server import signed_in

OVERRIDES = {
    **NAVIGATION_MAPPO,
    "experiment.loggers": ["csv", "wandb", "tensorboard"],
    "experiment.project_name": "speed of things",
    "+experiment.wandb_extra_kwargs.offline": True,
    "+experiment.wandb_extra_kwargs.tags": ["tiny"],
}
INTERRUPTED_EXIT = 75
SECRET = "5ec2e70123456789" + "abcdef0123456789abcdef99"  # as long as W&B's keys are
# The run's folder with run.json and result.json, attempts/1 with claim, end.json, log.txt, metrics.jsonl and
# the last checkpoint in its folder; besides them the event file and wandb.tar.
MOST_INODES = 11 + 2


@pytest.fixture(scope="module")
def thrice(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run killed in its third iteration, stopped after its fifth, then finished."""
    folder = str(tmp_path_factory.mktemp("results") / "run")
    # A run's environment may ask for online; without a key it is offline all the same.
    env = {"WANDB_MODE": "online"}
    first = Attempt(folder, OVERRIDES, kill=Kill("training", 14), sweep="my sweep", env=env)
    second = Attempt(folder, OVERRIDES, stop_after=5, sweep="my sweep")
    with Nursery() as nursery:
        assert nursery.run(first) == -9
        assert nursery.run(second) == INTERRUPTED_EXIT
        assert nursery.run(Attempt(folder, OVERRIDES, sweep="my sweep")) == 0
    return RunDir(Path(folder))


def test_wandb_has_every_step_once_and_says_whose_run_it_is(thrice: RunDir) -> None:
    last = thrice.attempts()[-1]
    records = list(offline_wandb.records(last.wandb))
    [run] = [record.run for record in records if record.HasField("run")]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    steps = [offline_wandb.values(record.history.item) for record in records if record.HasField("history")]
    summary: dict[str, Any] = {}
    for record in records:
        if record.HasField("summary"):
            summary |= offline_wandb.values(record.summary.update)

    assert [step["_step"] for step in steps] == [0, 1, 2, 3, 4, 5]
    rows = thrice.history()
    assert [_values(step, row) for step, row in zip(steps, rows, strict=True)] == [
        offline_wandb.finite(row.metrics) for row in rows
    ]
    assert run.tags == ["tiny"]
    identity = config["orchestrate"]
    assert run.run_id == f"my-sweep-{_only_run(thrice)}"
    assert (run.project, run.run_group) == ("speed of things", "my sweep")
    assert (identity["run_id"], identity["sweep"], identity["attempt"]) == (_only_run(thrice), "my sweep", 3)
    assert identity["point"]["algorithm"] == "mappo"
    assert identity["versions"]["benchmarl"] == "1.5.2"
    assert config["experiment_config"]["on_policy_collected_frames_per_batch"] == 120
    assert config["experiment_config"]["loggers"] == ["csv", "wandb", "tensorboard"]
    assert config["algorithm_name"] == "mappo"
    assert summary["counters/total_frames"] == 720
    assert run.display_name.startswith("mappo navigation seed=0 ")


def test_three_attempts_go_up_as_one_run(
    thrice: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = SweepDir(tmp_path / "results", "copy")
    sweep.create()
    run_dir = sweep.run(_only_run(thrice))
    shutil.copytree(thrice.path, run_dir.path, symlinks=True)
    last = run_dir.attempt(3).path.rename(tmp_path / "last")
    with signed_in(tmp_path, monkeypatch) as server:
        list(send(plan_uploads([sweep]).todo))
        [up] = server.runs.values()
        assert [step["_step"] for step in up.history] == [0, 1, 2, 3, 4]
        last.rename(run_dir.attempt(3).path)
        list(send(plan_uploads([sweep]).todo))
    assert [step["_step"] for step in up.history] == [0, 1, 2, 3, 4, 5]
    for step, row in zip(up.history, thrice.history(), strict=True):
        assert _values(step, row) == pytest.approx(offline_wandb.finite(row.metrics), rel=1e-12)


def test_every_attempt_closed_its_files_but_the_killed_one(thrice: RunDir) -> None:
    killed, stopped, done = thrice.attempts()
    assert not _exit_codes(killed.wandb)
    assert _exit_codes(stopped.wandb) == [1]
    assert _exit_codes(done.wandb) == [0]


def test_tensorboard_has_every_step_once_under_benchmarls_tags(thrice: RunDir) -> None:
    [events] = thrice.attempts()[-1].event_files()
    seen: dict[str, list[tuple[int, float]]] = {}
    for event in EventFileLoader(str(events)).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars":
                seen.setdefault(value.tag, []).append((event.step, value.tensor.float_val[0]))

    assert [step for step, _ in seen["collection_reward_reward_mean"]] == [0, 1, 2, 3, 4, 5]
    assert [step for step, _ in seen["eval_reward_episode_reward_mean"]] == [0, 1, 3, 5]
    assert [value for _, value in seen["counters_total_frames"]] == [120, 240, 360, 480, 600, 720]


def test_nothing_is_written_outside_the_attempts_folders(thrice: RunDir) -> None:
    assert {path.name for path in thrice.path.iterdir()} == {
        "run.json",
        "attempts",
        "outcome.json",
        "state.pt",
    }
    for attempt in thrice.attempts():
        assert not attempt.scratch.exists() or attempt.number == 1
        assert not list(attempt.path.rglob("config.pkl"))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepDir, RunDir]:
    """A sweep of one run through the command line and a worker, by somebody who has a key of W&B."""
    folder = tmp_path_factory.mktemp("swept")
    base = {**OVERRIDES, "experiment.max_n_iters": 3}
    del base["+experiment.wandb_extra_kwargs.offline"]
    (folder / "grid.yaml").write_text(
        yaml.safe_dump({"name": "logged", "trainer": "benchmarl", "base": base})
    )
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.ui.cli", "sweep", "--grid", "grid.yaml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "WANDB_API_KEY": SECRET},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    sweep = SweepDir(folder / "results", "logged")
    holders = [log.holder for log in sweep.read_journals()]
    wait_for(lambda: not any(holder is not None and holder.alive() for holder in holders), 180)
    [run_id] = sweep.run_ids()
    return sweep, sweep.run(run_id)


def test_a_worker_packs_a_wandb_run_that_is_whole(swept: tuple[SweepDir, RunDir], tmp_path: Path) -> None:
    run_dir = swept[1]
    [attempt] = run_dir.attempts()
    assert not attempt.wandb.exists()
    unpack(attempt.wandb_packed, tmp_path)
    records = list(offline_wandb.records(tmp_path / "wandb"))
    [run] = [record.run for record in records if record.HasField("run")]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    steps = [offline_wandb.values(record.history.item) for record in records if record.HasField("history")]

    assert (run.run_id, run.run_group) == (f"logged-{run_dir.run_id}", "logged")
    assert config["orchestrate"]["run_id"] == run_dir.run_id
    assert config["experiment_config"]["max_n_iters"] == 3
    assert config["algorithm_config"]["clip_epsilon"] == 0.2
    assert config["task_config"]["max_steps"] == 20
    assert [step["_step"] for step in steps] == [0, 1, 2]
    rows = run_dir.history()
    assert [_values(step, row) for step, row in zip(steps, rows, strict=True)] == [
        offline_wandb.finite(row.metrics) for row in rows
    ]
    assert _exit_codes(tmp_path / "wandb") == [0]
    for record in records:
        assert SECRET not in str(record)


def test_it_goes_up_from_where_there_is_a_key(
    swept: tuple[SweepDir, RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, run_dir = swept
    with signed_in(tmp_path, monkeypatch) as server:
        [sent] = send(plan_uploads([sweep]).todo)
        assert sent.error == ""
    [up] = server.runs.values()
    assert (up.name, up.project, up.exit_code) == (f"logged-{run_dir.run_id}", "speed of things", 0)
    assert up.config["orchestrate"]["run_id"] == run_dir.run_id
    assert up.config["algorithm_config"]["clip_epsilon"] == 0.2
    rows = run_dir.history()
    assert [step["_step"] for step in up.history] == [row.iteration for row in rows]
    for step, row in zip(up.history, rows, strict=True):
        assert _values(step, row) == pytest.approx(offline_wandb.finite(row.metrics), rel=1e-12)


def test_no_secret_is_written_and_few_files_are(swept: tuple[SweepDir, RunDir]) -> None:
    sweep, run_dir = swept
    files = [path for path in sweep.results.rglob("*") if path.is_file()]
    assert run_dir.attempts()[-1].wandb_packed in files
    assert run_dir.attempts()[-1].event_files()[0] in files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert inodes(run_dir.path) <= MOST_INODES, sorted(run_dir.path.rglob("*"))


def _only_run(run_dir: RunDir) -> str:
    return run_dir.description().run_id


def _exit_codes(folder: Path) -> list[int]:
    return [record.exit.exit_code for record in offline_wandb.records(folder) if record.HasField("exit")]


def _values(step: dict[str, Any], row: Row) -> dict[str, float]:
    return {name: step[name] for name in offline_wandb.finite(row.metrics)}

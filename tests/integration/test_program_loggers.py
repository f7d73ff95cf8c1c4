"""`loggers` of a grid: TensorBoard and W&B have a program's metrics, each step once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from jobs.training.records import loggers
from orchestrator.config.grid import parse_grid
from orchestrator.config.grid.other_sections import LOGGERS
from orchestrator.config.sweep import runs_of
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Run
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.sync.wandb import plan_uploads, send
from tests import offline_wandb
from tests.helpers import make_sweep, unpack, work
from tests.protocol_program import BEGINNING
from tests.wandb_server import signed_in

# Killed after three lines and one checkpoint, then stopped after four lines, then done after five.
PROGRAM = f"""{BEGINNING}
def train(until):
    global frames
    while frames < until:
        frames += 100
        write({{"frames": frames, "metrics": {{"return": frames / 1000, "loss/actor": -1.5}}}})

if frames == 0:
    train(200); save(); train(300); os.kill(os.getpid(), signal.SIGKILL)
elif frames == 200:
    train(400); save(); sys.exit(75)
train(500)
"""
GRID = """name: mine
trainer: command
loggers: [tensorboard, wandb]
base: {command: [%s, -c, %s], lr: 0.5, env: hopper}
"""
STEPS = [100, 200, 300, 400, 500]


def run_of(program: str = "", section: str = "loggers: [tensorboard, wandb]") -> Run:
    text = GRID % (sys.executable, json.dumps(program))
    text = text.replace("loggers: [tensorboard, wandb]", section)
    (run,) = runs_of(parse_grid(text, "grid.yaml")).runs
    return run


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepDir, RunDir]:
    run = run_of(PROGRAM)
    sweep = make_sweep(tmp_path_factory.mktemp("logged") / "results", [run], name="mine")
    for _ in range(2):  # it leaves once with 75
        assert work(sweep) == 0
    return sweep, sweep.run(run.run_id)


def test_tensorboard_has_each_step_once_under_the_programs_names(logged: tuple[SweepDir, RunDir]) -> None:
    run = logged[1]
    assert len(run.attempts()) == 3
    [events] = run.attempts()[-1].event_files()
    seen: dict[str, list[tuple[int, float]]] = {}
    for event in EventFileLoader(str(events)).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars":
                seen.setdefault(value.tag, []).append((event.step, value.tensor.float_val[0]))
    assert seen == {
        "return": [(step, pytest.approx(step / 1000)) for step in STEPS],
        "loss/actor": [(step, -1.5) for step in STEPS],
    }


def test_wandb_has_each_step_once_with_the_runs_point(
    logged: tuple[SweepDir, RunDir], tmp_path: Path
) -> None:
    run_dir = logged[1]
    unpack(run_dir.attempts()[-1].wandb_packed, tmp_path)
    records = list(offline_wandb.records(tmp_path / "wandb"))
    [run] = [record.run for record in records if record.HasField("run")]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    steps = [offline_wandb.values(record.history.item) for record in records if record.HasField("history")]
    assert [(step["_step"], step["return"]) for step in steps] == [(step, step / 1000) for step in STEPS]
    assert (run.run_group, run.project, run.run_id) == ("mine", "mine", f"mine-{run_dir.run_id}")
    assert run.display_name == "hopper seed=0 lr=0.5"
    assert (config["lr"], config["env"], config["seed"]) == (0.5, "hopper", 0)
    assert config["orchestrate"]["attempt"] == 3


def test_it_goes_up_from_where_there_is_a_key(
    logged: tuple[SweepDir, RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with signed_in(tmp_path, monkeypatch) as server:
        [sent] = send(plan_uploads([logged[0]]).todo)
        assert sent.error == ""
    [up] = server.runs.values()
    assert (up.project, [step["_step"] for step in up.history]) == ("mine", STEPS)


@pytest.mark.nightly
def test_an_interrupted_run_goes_up_as_far_as_its_checkpoint_and_later_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make_sweep(tmp_path / "results", [run_of(PROGRAM)], name="mine")
    assert work(sweep) == 0  # it leaves with 75 after the checkpoint of 400 frames
    with signed_in(tmp_path, monkeypatch) as server:
        [sent] = send(plan_uploads([sweep]).todo)
        [up] = server.runs.values()
        assert (sent.error, [step["_step"] for step in up.history]) == ("", STEPS[:4])
        with monkeypatch.context() as elsewhere:
            for name in ("TMPDIR", "HOME"):  # only what uploads leave there counts
                elsewhere.delenv(name)
            assert work(sweep) == 0
        [sent] = send(plan_uploads([sweep]).todo)
        assert (sent.error, [step["_step"] for step in up.history]) == ("", STEPS)


def test_loggers_decide_nothing_and_take_no_key_away() -> None:
    without = run_of(section="")
    assert run_of().run_id == without.run_id
    assert run_of().point == without.point
    assert parse(Run, json.loads(json.dumps(plain(run_of())))) == run_of()
    assert set(LOGGERS) == {loggers.CSV, loggers.TENSORBOARD, loggers.WANDB}


def test_event_files_are_written_without_pytorch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import jobs.trainers.command.training\n"
        "from types import SimpleNamespace\n"
        "from jobs.training.records.loggers import Logging, TensorboardSink\n"
        "from orchestrator.rundir import AttemptDir\n"
        "run = SimpleNamespace(trainer='command')\n"
        "context = SimpleNamespace(run=run, attempt=AttemptDir(Path(sys.argv[1])))\n"
        "TensorboardSink(context, {}, Logging()).close(finished=True)\n"
        "sys.exit(bool({'torch', 'tensorflow'} & set(sys.modules)))"
    )
    (tmp_path / "1").mkdir()
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "1")], check=True)
    assert list(tmp_path.glob("1/events.out.tfevents.*"))

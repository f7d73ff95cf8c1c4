"""Programs of the trainer `command` with `minutes`: stopped when the time is up, and done."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.trainers.command.checking import check
from orchestrator.config.trainers import get_trainer
from orchestrator.config.trainers.command import COMMAND
from orchestrator.planning.throughput.model import kind_of, length_of
from orchestrator.rundir import RunDir
from tests.helpers import command_run, end_record, finish, make_sweep, published, start_worker, submit, work
from tests.protocol_program import BEGINNING

# A line reports a second of training whenever it is written; without a stop the program waits for ever.
PROGRAM = f"""{BEGINNING}
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))

def train(until):
    global frames
    while frames < until:
        frames += 1
        timers = {{"timers/collection_time": 0.75, "timers/training_time": 0.25}}
        write({{"frames": frames, "metrics": {{"return": frames, **timers}}}})

def wait():
    while not stopped:
        time.sleep(0.005)

print("started at", frames, flush=True)
write({{"program": {{"exactness": "exact"}}}})
"""
THREE_SECONDS = 3 / 60


def trained(
    results: Path, code: str, minutes: float = THREE_SECONDS, grace: float = 30.0, exit_code: int = 0
) -> RunDir:
    sweep = make_sweep(results, [command_run(["-c", PROGRAM + code], minutes=minutes)])
    worker = start_worker(sweep, submit(sweep), env={"ORCHESTRATE_GRACE": str(grace)})
    assert finish(worker) == exit_code
    (run_id,) = sweep.run_ids()
    return sweep.run(run_id)


@pytest.mark.parametrize(
    "leave",
    [
        "wait(); save()",
        "wait(); save(); sys.exit(75)",
        "signal.signal(signal.SIGTERM, signal.SIG_DFL); signal.pause()",
        "wait(); sys.exit(128 + signal.SIGTERM)  # as a shell says it",
    ],
)
def test_a_program_is_stopped_when_its_time_is_up_and_done(results: Path, leave: str) -> None:
    run = trained(results, f"train(3); {leave}")
    result = run.result()
    assert result is not None
    assert (result.frames, result.attempts, result.fields["exactness"]) == (3, 1, "exact")
    assert [file.frames for file in run.checkpoints()] == ([3] if "save" in leave else [])


def test_behind_a_wrapper_any_exit_code_is_done(results: Path) -> None:
    argv = ["sh", "-c", '"$@"; exit 3', "sh", sys.executable, "-c", f"{PROGRAM}train(3); wait(); save()"]
    run = get_trainer("command").identify({"command": argv, "minutes": THREE_SECONDS}, 0, threads=1)
    sweep = make_sweep(results, [run])
    assert work(sweep) == 0
    assert [file.frames for file in sweep.run(run.run_id).checkpoints()] == [3]


def test_one_that_ignores_the_signal_is_killed_after_its_grace_and_done(results: Path) -> None:
    run = trained(results, "train(3); wait(); signal.pause()", grace=0.5)
    assert published(run).frames == 3


def test_before_its_time_is_up_it_ends_by_itself(results: Path) -> None:
    run = trained(results, "train(2)")
    assert published(run).frames == 2


def test_one_that_fails_as_it_is_stopped_has_failed(results: Path) -> None:
    run = trained(results, "train(3); wait(); sys.exit(1)", exit_code=1)
    assert run.result() is None
    assert end_record(run.attempts()[-1])["reason"] == "code error"


def test_what_a_kill_undid_is_no_training(results: Path) -> None:
    """It had written three lines of a second each, and saved after two."""
    first = "train(2); save(); train(3); os.kill(os.getpid(), signal.SIGKILL)"
    run = trained(results, f"if frames == 0:\n  {first}\ntrain(4); wait(); save()", minutes=4 / 60)
    assert [row.frames for row in run.history()] == [1, 2, 3, 4]
    assert len(run.attempts()) == 2


def test_killed_between_its_end_and_its_result_it_is_not_started_again(results: Path) -> None:
    run = trained(results, "train(3); wait(); save(); os.kill(os.getppid(), signal.SIGKILL); signal.pause()")
    first, second = run.attempts()
    assert "started at 0" in first.log.read_text()
    assert second.log.read_text() == "the time was up before: the program is not started again\n"
    result = run.result()
    assert result is not None
    assert (result.frames, result.fields["exactness"], result.attempt) == (3, "exact", 2)
    assert [file.frames for file in run.checkpoints()] == [3]


def test_without_timers_the_time_between_lines_counts(results: Path) -> None:
    run = trained(
        results,
        "while not stopped:\n  frames += 1; write({'frames': frames}); time.sleep(0.05)\nsave()",
        minutes=0.3 / 60,
    )
    rows = run.history()
    over = next(row for row in rows if row.wall_time >= 0.3)
    assert rows[-1].wall_time - over.wall_time < 30.0
    assert run.result() is not None


def test_a_programs_own_minutes_stop_nothing(results: Path) -> None:
    argv = ["-c", PROGRAM + "train(int(sys.argv[1]))", "{minutes}"]
    own, timed = command_run(argv, minutes=5), command_run(argv[:-1], minutes=5)
    assert [COMMAND.minutes_of(run) for run in (own, timed)] == [None, 5.0]
    assert ["minutes" in kind_of(run).settings for run in (own, timed)] == [True, False]
    assert [json.loads(length_of(run)) for run in (own, timed)] == [{}, {"minutes": 5}]
    assert check([command_run(argv, minutes="few")]) == []
    sweep = make_sweep(results, [own])
    assert finish(start_worker(sweep, submit(sweep))) == 0
    assert published(sweep.run(own.run_id)).frames == 5


@pytest.mark.parametrize("found", [0, -1, "ten", True, [1]])
def test_minutes_that_no_run_can_have_are_refused(found: Any) -> None:
    (problem,) = check([command_run(["-c", ""], minutes=found)])
    assert problem.key == "minutes"
    assert problem.message.startswith(f"minutes: found {found!r}, expected minutes of training above 0")
    assert "{minutes}" in (problem.hint or "")

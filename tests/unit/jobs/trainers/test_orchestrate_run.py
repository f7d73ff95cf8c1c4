"""The module with which programs log, save and resume, started alone."""

from __future__ import annotations

import ast
import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from jobs.trainers.command.program_hook import orchestrate_run
from jobs.trainers.command.program_hook.orchestrate_run import Run


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start in an empty folder; put the signals' handlers back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCHESTRATE_RESUME", "checkpoints")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def lines(path: str = "metrics.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_the_module_suits_python_3_8_and_needs_no_package() -> None:
    tree = ast.parse(Path(orchestrate_run.__file__).read_text(), feature_version=(3, 8))
    names = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_objects_of_every_kind_are_restored_in_place() -> None:
    def made() -> tuple[object, ...]:
        rng = random.Random(1)
        return np.zeros(3), np.random.default_rng(1), np.random.RandomState(1), rng, {"a": 1}, [1], Plain(rng)

    first = made()
    array, generator, old, own, mapping, items, plain = first
    run = Run()
    assert run.resume(*first) == 0
    array += 1
    mapping["a"], plain.count = 2, 5
    items.append(2)
    run.save(7, now=True, carried=(np.ones(2), "text"))
    expected = drawn(generator, old, own)

    second = made()
    again = Run()
    assert again.resume(*second) == 7
    array, generator, old, own, mapping, items, plain = second
    assert (list(array), mapping, items) == ([1, 1, 1], {"a": 2}, [1, 2])
    assert (plain.count, plain.double(2), plain.rng is own) == (5, 4, True)
    assert drawn(generator, old, own) == expected
    assert again.value("carried")[1] == "text"
    assert again.value("other", 3) == 3


class Plain:
    output: Any
    lock: Any
    file: Any

    def __init__(self, rng: random.Random) -> None:
        self.count, self.rng = 0, rng
        self.double: Callable[[int], int] = lambda number: 2 * number  # no pickle holds it


def drawn(*generators: object) -> list[float]:
    """Return a number of each generator, and of the global ones."""
    return [*(one.random() for one in generators if not isinstance(one, np.random.RandomState)),
            *(one.random_sample() for one in generators if isinstance(one, np.random.RandomState)),
            random.random(), float(np.random.random())]  # fmt: skip


def test_an_environment_that_cannot_be_saved_is_named_and_declared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    envs = gymnasium.vector.AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    try:
        Run().resume(envs, exactness="exact")
    finally:
        envs.close()
    assert "run.resume: 0 AsyncVectorEnv cannot be saved" in capsys.readouterr().err
    assert lines() == [{"program": {"exactness": "no progress lost"}}]


def test_metrics_after_the_checkpoint_are_cut_and_a_new_start_keeps_the_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run()
    run.resume([], total=9)
    for step in range(1, 6):
        run.log(step, loss=np.float32(step))
        run.save(step, now=step < 4)
    assert sorted(os.listdir("checkpoints")) == ["2.pickle", "3.pickle"]
    with open("metrics.jsonl", "a") as file:
        file.write('5\n{"frames": ')
    again = Run()
    assert again.resume([], total=9) == 3
    again.log(4, loss=4)
    assert [line["frames"] for line in lines()] == [1, 2, 3, 4]
    monkeypatch.delenv("ORCHESTRATE_RESUME")
    assert Run().resume([]) == 0
    assert (lines(), len(lines(next(iter(glob("metrics.jsonl.*.old")))))) == ([], 4)


def test_a_signal_saves_and_leaves_with_75_but_not_in_the_last_step() -> None:
    run = Run()
    run.resume([], total=3)
    run.save(1)
    assert not os.path.exists("checkpoints")
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit) as left:
        run.save(2)
    assert left.value.code == 75
    assert os.listdir("checkpoints") == ["2.pickle"]
    run.save(3)


def live(alive: Any, over: Any) -> None:
    alive.set()
    over.wait(300)


def test_a_forked_worker_still_dies_of_sigterm() -> None:
    Run().resume([])
    context = multiprocessing.get_context("fork")
    alive, over = context.Event(), context.Event()
    worker = context.Process(target=live, args=(alive, over), daemon=True)
    worker.start()
    assert alive.wait(60)  # Python drops a signal that comes within the fork
    worker.terminate()
    worker.join(300)
    assert worker.exitcode == -signal.SIGTERM


def test_errors_name_what_was_found_and_expected() -> None:
    run = Run()
    with pytest.raises(RuntimeError, match="found no run"):
        run.log(1, loss=1)
    with pytest.raises(ValueError, match="expected one of: exact"):
        run.resume(exactness="exactly")
    run.resume([])
    with pytest.raises(TypeError, match=r"run.log: loss is .*, expected one number"):
        run.log(1, loss=np.zeros(2))
    run.save(1, now=True)
    with pytest.raises(ValueError, match=r"give run.resume the same objects"):
        Run().resume({})


def test_init_restores_the_first_objects_and_no_random_state(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, generator = np.arange(3.0), np.random.default_rng(1)
    run = Run()
    run.resume(weights, {"own": 1}, generator)
    run.save(1, now=True, obs=3)
    monkeypatch.setenv("ORCHESTRATE_INIT", "checkpoints/1.pickle")
    monkeypatch.delenv("ORCHESTRATE_RESUME")
    with pytest.raises(
        ValueError, match=r"found \['0 ndarray', '1 dict', .*: give run.init the first objects"
    ):
        Run().init(generator)
    random.seed(5)
    mine, other, own = np.zeros(3), {"own": 2}, np.random.default_rng(2)
    again = Run()
    again.init(mine)
    assert again.resume(mine, other, own) == 0
    assert (list(mine), other, again.value("obs")) == ([0, 1, 2], {"own": 2}, None)
    assert drawn(own, random)[:2] == drawn(np.random.default_rng(2), random.Random(5))[:2]
    monkeypatch.setenv("ORCHESTRATE_RESUME", glob("checkpoints/1.pickle.*")[0])
    mine[:] = 7
    Run().init(mine)  # a restart: what is to be resumed is newer
    assert list(mine) == [7, 7, 7]


def test_what_opens_after_the_start_is_restored_or_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard streams and locks are there again; a file that only the first start opened is not."""
    first = Plain(random.Random(1))
    run = Run()
    run.resume(first)
    first.output, first.lock = sys.stderr, threading.Condition()
    with first.lock, Path("notes").open("w") as first.file:
        run.save(1, now=True)
    second = Plain(random.Random(1))
    assert Run().resume(second) == 1
    assert second.output is sys.stderr
    assert second.file is None
    with second.lock:
        assert second.double(2) == 4
    said = capsys.readouterr().err
    assert said.count("run:") == 1
    assert "run: 0 Plain: TextIOWrapper is not restored: it is None until the program sets it" in said


def test_a_new_start_never_goes_on_from_the_checkpoints_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Run()
    first.resume([1])
    first.save(5, now=True)
    Path("checkpoints", "pretrained.pickle").touch()
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "2"])
    assert Run().resume([]) == 5
    said = capsys.readouterr().err
    assert "checkpoints/5.pickle was written with the arguments " in said
    assert "goes on with ['--lr', '2']: to start anew, leave ORCHESTRATE_RESUME out" in said
    monkeypatch.delenv("ORCHESTRATE_RESUME")
    assert Run().resume([]) == 0
    [kept] = glob("checkpoints/5.pickle.*.old")
    assert f"as no checkpoint is given: checkpoints/5.pickle is now {kept}\n" in capsys.readouterr().err
    Path("metrics.jsonl").write_text("{}\n")
    monkeypatch.setenv("ORCHESTRATE_RESUME", "mistyped")
    assert Run().resume([]) == 0
    assert "as mistyped holds no checkpoint: metrics.jsonl is now" in capsys.readouterr().err
    monkeypatch.setenv("ORCHESTRATE_RESUME", kept)
    assert Run().resume([]) == 5
    assert os.path.exists("checkpoints/pretrained.pickle")


def test_metrics_of_a_program_at_work_are_left_to_it() -> None:
    Run().resume([])
    start = "from orchestrate_run import run\nrun.resume()\n"
    path = {"PYTHONPATH": str(Path(orchestrate_run.__file__).parent)}
    second = subprocess.run([sys.executable, "-c", start], env=path, capture_output=True, text=True)
    assert second.stderr.endswith(
        f"{Path.cwd()}/metrics.jsonl: another program writes it: start this one in a folder of its own\n"
    )
    rank = subprocess.run([sys.executable, "-c", start], env={**path, "RANK": "1"})
    assert rank.returncode == 0
    assert os.listdir() == ["metrics.jsonl"]


def test_a_disk_that_is_full_costs_a_checkpoint_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = Run()
    run.resume([])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        run.save(1, now=True)
    assert "run.save: no checkpoint of step 1 ([Errno 28] No space left" in capsys.readouterr().err
    assert os.listdir("checkpoints") == []
    run.save(2, now=True)
    assert os.listdir("checkpoints") == ["2.pickle"]


def test_what_cannot_be_saved_or_does_not_fit_is_named() -> None:
    run = Run()
    with pytest.raises(RuntimeError, match=r"run.save: found no run, expected start = run.resume"):
        run.save(1)
    run.resume(np.zeros(1))
    with pytest.raises(TypeError, match=r"run.save: obs, rule cannot be saved .*: make it anew"):
        run.save(1, now=True, obs=1, rule=lambda: 1)
    assert os.listdir("checkpoints") == []
    run.save(1, now=True)
    with pytest.raises(ValueError, match=r"checkpoints/1.pickle: it does not fit .* of the same sizes"):
        Run().resume(np.zeros(3))
    Path("checkpoints/1.pickle").write_bytes(b"\x80")
    with pytest.raises(ValueError, match="or start anew without ORCHESTRATE_RESUME"):
        Run().resume(np.zeros(2))

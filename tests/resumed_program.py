"""Run programs that use ``orchestrate_run`` whole, then with signals: ``resumed_program.py STEPS SCRIPT…``.

Each start is a fork of this process, so that libraries are imported once. Writes ``metrics.jsonl``
into ``SCRIPT/whole`` and ``SCRIPT/stopped``, and ``exits.json``, the exit codes of all starts.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# Of each start of the stopped run: the signal, and at which call of run.save it comes. SIGTERM comes after
# the call, within a step.
STOPS = ((signal.SIGKILL, 2), (signal.SIGTERM, 1), (signal.SIGUSR1, 1), (None, 0))


# What the programs import, each once for all that do.
LIBRARIES = ("gymnasium", "torchrl.envs", "torchrl.modules", "jax", "stable_baselines3", "lightning")


def load_libraries(scripts: list[Path]) -> None:
    """Import the libraries that one of the programs names."""
    operators = torch.library.Library("torchvision", "FRAGMENT")
    text = "".join(script.read_text() for script in scripts)
    for name in LIBRARIES:
        if name.partition(".")[0] not in text:
            continue
        if name == "lightning":
            define_operators(operators)
        importlib.import_module(name)


def define_operators(operators: torch.library.Library) -> None:
    """Define the operators that torchvision lacks in a build for CUDA, beside PyTorch for the CPU."""
    try:
        import torchvision  # noqa: F401 (by Lightning)
    except RuntimeError:
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def started(script: Path, steps: str, stop: signal.Signals | None = None, at: int = 0) -> int:
    """Return the exit code of one start in this folder; a checkpoint is written in every step."""
    child = os.fork()
    if child == 0:
        from orchestrate_run import run

        run.save = stopping(run.save, stop, at)
        sys.argv = [str(script), steps]
        code: Any = 1
        try:
            runpy.run_path(str(script), run_name="__main__")
            code = 0
        except SystemExit as left:
            code = left.code
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stopping(save: Callable[..., None], stop: signal.Signals | None, at: int) -> Callable[..., None]:
    calls = 0

    def stop_and_save(step: int, **values: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == at and stop not in (None, signal.SIGTERM):
            os.kill(os.getpid(), stop)
        save(step, now=True, **values)
        if calls == at and stop == signal.SIGTERM:
            os.kill(os.getpid(), stop)

    return stop_and_save


def main() -> None:
    steps, scripts = sys.argv[1], [Path(name) for name in sys.argv[2:]]
    load_libraries(scripts)
    torch.set_num_threads(1)
    top, exits = Path.cwd(), {}
    for script in scripts:
        for name, stops in (("whole", STOPS[-1:]), ("stopped", STOPS)):
            folder = top / script.stem / name
            folder.mkdir(parents=True)
            os.chdir(folder)
            exits[f"{script.stem}/{name}"] = [started(script, steps, *stop) for stop in stops]
    (top / "exits.json").write_text(json.dumps(exits))


if __name__ == "__main__":
    main()

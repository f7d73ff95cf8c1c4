"""Programs behind wrappers: whatever starts the training, a stop request lets it save."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from orchestrator.config.trainers import get_trainer
from orchestrator.rundir import RunDir, SweepDir
from tests.helpers import end_record, finish, make_sweep, start_worker, submit, wait_for
from tests.protocol_program import BEGINNING

PYTHON = os.path.realpath(f"{sys.prefix}/bin/python")
# Saves when it is stopped, with what its helpers give it; `at its end` also trains the rest.
_TRAINING = f"""{BEGINNING}
from subprocess import DEVNULL, Popen
how = sys.argv[1] if len(sys.argv) > 1 else ""
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
if how == "with workers":
    rows, rest = os.pipe(), os.pipe()
    if os.fork() == 0:
        while os.read(rows[0], 1):
            os.write(rest[1], b"state")
        os._exit(0)
frames += 1
if how != "beside":
    write({{"frames": frames, "total": 100}})
Path(os.environ["READY"] + "-2" * (how == "beside")).touch()
while not asked:
    time.sleep(0.01)
if how == "with workers":
    time.sleep(0.5)
    os.write(rows[1], b"?")
    assert os.read(rest[0], 5) == b"state"
if how == "slowly":
    time.sleep(1.5)
    server = os.environ.get("SERVER")
    assert server is None or ") Z" not in Path(f"/proc/{{server}}/stat").read_text()
if how == "beside":
    time.sleep(1.5)
    Path("saved").touch()
    sys.exit(75)
if how == "at its end":
    frames = 100
    write({{"frames": frames, "total": 100}})
save()
sys.exit(0 if how == "at its end" else 75)
"""
# A program of another's: it handles the signal, and what draws on it needs it to the end.
_SERVER = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
# As `conda run`: pass the signal on to a shell, and leave.
_CONDA = """
import signal, subprocess, sys
child = subprocess.Popen(["bash", "-c", "$PYTHON train.py slowly; exit $?"])
def leave(number, frame):
    child.send_signal(number)
    sys.exit(1)
signal.signal(signal.SIGTERM, leave)
child.wait()
"""
_LAUNCHER = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, 'train.py']).returncode)"
_TRAPPED = 'p=$!; trap "kill -TERM $p" TERM; wait $p; wait $p'

WRAPPERS = {
    "no wrapper": ["$PYTHON", "train.py"],
    "a pipe": ["bash", "-c", "$PYTHON train.py | tee out.txt"],
    "a command after it": ["bash", "-c", "$PYTHON train.py; echo done"],
    "its last command": ["bash", "-c", "cd . && $PYTHON train.py"],
    "its code passed on": ["sh", "-c", "$PYTHON train.py; exit $?"],
    "time": ["bash", "-c", "time $PYTHON train.py"],
    "a launcher": ["$PYTHON", "-c", _LAUNCHER],
    "a launcher that checks": ["$PYTHON", "-c", _LAUNCHER.replace("sys.exit", "assert not ")],
    "make": ["make", "-s", "train"],
    "timeout": ["timeout", "900", "$PYTHON", "train.py"],
    "a trap that passes on": ["bash", "-c", f"$PYTHON train.py & {_TRAPPED}"],
    "a trap that waits": ["bash", "-c", "trap 'echo asked' TERM; $PYTHON train.py; exit 1"],
    "a trap at the exit": ["bash", "-c", "trap 'echo left' EXIT; $PYTHON train.py slowly; exit 1"],
    "a deaf shell": ["sh", "-c", "trap '' TERM; $PYTHON train.py; true"],
    "stdbuf": ["stdbuf", "-oL", "$PYTHON", "train.py"],
    "a script": ["./run.sh"],
    "nohup, env and nice": ["bash", "-c", "nohup env A=b nice $PYTHON train.py; true"],
    "a session of its own": ["bash", "-c", "setsid --wait $PYTHON train.py; true"],
    "conda run": ["$PYTHON", "-c", _CONDA],
    "several programs": ["bash", "-c", "$PYTHON train.py & $PYTHON train.py beside & wait"],
    "a server beside it": ["bash", "-c", f"$PYTHON -c '{_SERVER}' & SERVER=$! $PYTHON train.py slowly; true"],
    "workers of its own": ["sh", "-c", "$PYTHON train.py 'with workers'; true"],
}
if uv := shutil.which("uv", path=f"{os.environ['PATH']}:{sys.prefix}/bin"):
    WRAPPERS["uv run"] = [uv, "run", "--no-project", "--offline", "--python", "$PYTHON", "train.py"]


def stopped(results: Path, folder: Path, commands: dict[str, list[str]]) -> SweepDir:
    """Runs of these commands, all of them stopped when their training is ready for it."""
    (folder / "train.py").write_text(_TRAINING)
    (folder / "Makefile").write_text("train:\n\t$(PYTHON) train.py\n")
    (folder / "run.sh").write_text('#!/bin/bash\n$PYTHON train.py\necho "finished with $?"\n')
    (folder / "run.sh").chmod(0o755)
    runs = []
    for number, (name, argv) in enumerate(commands.items()):
        variables = f"PYTHON={PYTHON} READY={folder}/ready{number}".split()
        command = ["env", *variables, *(word.replace("$PYTHON", PYTHON) for word in argv)]
        runs.append(get_trainer("command").identify({"command": command, "name": name}, 0, threads=1))
    sweep = make_sweep(results, runs)
    worker = start_worker(sweep, submit(sweep, slots=len(runs)))
    ready = {folder / f"ready{number}" for number in range(len(runs))}
    wait_for(lambda: ready <= set(folder.glob("ready*")), what="trainings that are ready")
    worker.send_signal(signal.SIGTERM)
    assert finish(worker) == 130
    return sweep


def ends(sweep: SweepDir) -> dict[str, dict[str, Any]]:
    runs: list[RunDir] = [sweep.run(run_id) for run_id in sweep.run_ids()]
    return {str(run.description().overrides["name"]): end_record(run.attempt(1)) for run in runs}


def test_a_stopped_training_saves_behind_any_wrapper(results: Path, tmp_path: Path) -> None:
    sweep = stopped(results, tmp_path, WRAPPERS)
    found = ends(sweep)
    outcome = {name: end.get("outcome") for name, end in found.items()}
    assert outcome == dict.fromkeys(WRAPPERS, "interrupted")
    assert {name for name, end in found.items() if end.get("checkpointed") != 1} == set()
    assert list(sweep.path.glob("runs/*/work/saved")), "of several programs each saves"


def test_one_asked_at_its_end_is_done_if_it_reaches_its_total(results: Path, tmp_path: Path) -> None:
    commands = {"at its end": ["bash", "-c", "$PYTHON train.py 'at its end' | tee out.txt"]}
    sweep = stopped(results, tmp_path, commands)
    assert [sweep.run(run_id).result() is None for run_id in sweep.run_ids()] == [False]

"""Why a program failed, by the end of its log: as libraries, launchers and languages write it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.training.processes.log_reason import reason_in, reason_of
from jobs.training.records.error_chain import first_line

TRACEBACK = """Traceback (most recent call last):
  File "/home/u/train.py", line 5, in main
    step(x)
    ^^^^^^^
{error}
"""
KEY_ERROR = TRACEBACK.format(error="KeyError: 'lr'")
OOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"

# What is written after the exception, or around it, and hides it as the last line.
HIDDEN = {
    "nothing": KEY_ERROR,
    "hydra": f"Error executing job with overrides: ['lr=1']\n{KEY_ERROR}\n"
    "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
    "wandb": f"{KEY_ERROR}wandb: \nwandb: Run summary:\nwandb: return ▁▂▃\nwandb: Find logs at: ./wandb/x\n",
    "colours": f"{KEY_ERROR}\x1b[1;34mwandb\x1b[0m: Synced 5 file(s)\n",
    "semaphores": f"{KEY_ERROR}/lib/resource_tracker.py:254: UserWarning: resource_tracker: 6 leaked\n"
    "  warnings.warn('resource_tracker: There appear to be %d '\n",
    "jax": TRACEBACK.format(
        error="KeyError: 'lr'\n--------------------\nFor simplicity, JAX has removed its internal frames"
    ),
    "a destructor": f"{KEY_ERROR}Exception ignored in: <function Viewer.__del__ at 0x7f>\n"
    + TRACEBACK.format(error="AttributeError: 'NoneType' object has no attribute 'close'"),
    "exit handlers": f"{KEY_ERROR}Error in atexit._run_exitfuncs:\n"
    + TRACEBACK.format(error="OSError: closed"),
    "a bar": f"\r 10%|█   | 1/10 [00:01<00:09, 1.0it/s]\r 20%|██  | 2/10 [00:02<00:08, 1.0it/s]{KEY_ERROR}"
    "\r 20%|██  | 2/10 [00:02<00:08, 1.0it/s]\n",
    "conda": f"{KEY_ERROR}\nERROR conda.cli.main_run:execute(49): `conda run python train.py` failed.\n",
    "make": f"{KEY_ERROR}make: *** [Makefile:2: train] Error 1\n",
    "srun": f"{KEY_ERROR}srun: error: node1: task 0: Exited with exit code 1\n",
    "time": f"{KEY_ERROR}\nreal\t0m1.2s\nuser\t0m1.0s\nsys\t0m0.1s\n",
    "ray": "".join(f"(Worker pid=12) {line}\n" for line in KEY_ERROR.splitlines()),
    "a data loader": TRACEBACK.format(
        error="KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal " + KEY_ERROR
    ),
    "a launcher in Python": KEY_ERROR
    + TRACEBACK.format(
        error="subprocess.CalledProcessError: Command '['python', 'x']' returned non-zero exit status 1."
    ),
    "a child process": "Process SpawnProcess-1:\n" + KEY_ERROR,
    "an environment's process": f"Process ForkServerProcess-1:\n{KEY_ERROR}"
    + TRACEBACK.format(error="EOFError"),
    "an environment's process, later": TRACEBACK.format(error="BrokenPipeError: [Errno 32] Broken pipe")
    + f"Process ForkServerProcess-1:\n{KEY_ERROR}",
    "the tracker of shared memory": KEY_ERROR
    + TRACEBACK.format(error="KeyError: '/psm_1'").replace("train.py", "resource_tracker.py"),
    "windows": KEY_ERROR.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("log", HIDDEN.values(), ids=HIDDEN)
def test_an_exception_is_found_whatever_follows_it(log: str) -> None:
    assert reason_of(f"step 1\nstep 2\n{log}".split("\n")).text.startswith(
        "KeyError: 'lr' (train.py:5 in main)"
    )


TOLD = {
    "a long message": (
        TRACEBACK.format(error="ValueError: found invalid values:\ntensor([[nan, nan],\n        [nan, 1]])"),
        "ValueError: found invalid values: tensor([[nan, nan], (",
    ),
    "chained": (
        KEY_ERROR
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + TRACEBACK.format(error="RuntimeError: cannot log"),
        "RuntimeError: cannot log (train.py:5 in main), after KeyError: 'lr'",
    ),
    "a key of a configuration": (
        TRACEBACK.format(
            error="omegaconf.errors.ConfigAttributeError: Key 'x' is not in struct\n    full_key: model.x\n"
        ),
        "omegaconf.errors.ConfigAttributeError: Key 'x' is not in struct (full_key: model.x)",
    ),
    "syntax": (
        '  File "/home/u/train.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n',
        "SyntaxError: invalid syntax (train.py:3)",
    ),
    "no traceback": ("loading\nno such map: desert\n", "no such map: desert"),
    "words and an error": ("\x1b[31mValueError\x1b[0m: größe\nwandb: Synced\n", "ValueError: größe"),
    "a bar alone": ("".join(f"\r{n}%|####| {n}/100 [00:01<00:00, 9it/s]" for n in range(100)), ""),
    "arguments": (
        "usage: train.py [--lr LR]\ntrain.py: error: unrecognized arguments: --rl\n",
        "train.py: error: unrecognized arguments: --rl",
    ),
    "bash": ("run.sh: line 3: pyhton: command not found\n", "run.sh: line 3: pyhton: command not found"),
    "rust": (
        "thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds: the len is 3\n"
        "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
        "thread 'main' panicked at src/main.rs:2:5: index out of bounds: the len is 3",
    ),
    "c++": (
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  boom\n",
        "std::runtime_error: boom",
    ),
    "java": (
        'Exception in thread "main" java.lang.RuntimeException: run failed\n\tat Main.main(Main.java:3)\n'
        "Caused by: java.io.IOException: boom\n\tat Main.read(Main.java:9)\n\t... 1 more\n",
        "Caused by: java.io.IOException: boom",
    ),
    "julia": (
        "ERROR: LoadError: boom\nStacktrace:\n [1] error(s::String)\n   @ Base ./error.jl:35\n"
        "in expression starting at /home/u/x.jl:1\n",
        "ERROR: LoadError: boom",
    ),
    "go": (
        "panic: runtime error: index out of range [5]\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:5\n"
        "exit status 2\n",
        "panic: runtime error: index out of range [5]",
    ),
    "node": (
        "/x.js:1\nthrow new Error('boom')\n^\n\nError: boom\n    at Object.<anonymous> (/x.js:1:7)\n\n"
        "Node.js v18.1\n",
        "Error: boom",
    ),
    "faulthandler": (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
        '  File "x.py", line 3 in f\n',
        "Fatal Python error: Segmentation fault",
    ),
    "faulthandler and more": (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
        '  File "x.py", line 3 in f\nwandb: Find logs at: ./wandb/x\n',
        "Fatal Python error: Segmentation fault",
    ),
    "a stack on its own": (
        '  File "/home/u/train.py", line 3, in f\n    print_stack()\nepoch: 3\nfatal: reward is nan\n',
        "fatal: reward is nan",
    ),
    "a message of many lines": (
        TRACEBACK.format(error="ValueError: found:\n" + "".join(f"key{n}: value\n" for n in range(46))),
        "ValueError: found: key0: value (train.py:5 in main)",
    ),
    "settings printed at exit": (
        KEY_ERROR + "".join(f"param_{n}={n}\n" for n in range(40)),
        "KeyError: 'lr' (train.py:5 in main)",
    ),
    "memory of a job": (
        "step 1\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\nsrun: error: task 0: failed\n",
        "slurmstepd: error: Detected 1 oom_kill event",
    ),
    "caught long before": (
        KEY_ERROR + "".join(f"step {n} loss 0.1\n" for n in range(300)) + "the budget file is gone\n",
        "the budget file is gone",
    ),
    "metrics beside": ("error: no display\nstep 1 error: 0.5\n", "error: no display"),
    "nothing": ("\n\n", ""),
}


@pytest.mark.parametrize(("log", "text"), TOLD.values(), ids=TOLD)
def test_a_reason_is_the_first_line_of_a_message_and_what_matters(log: str, text: str) -> None:
    found = reason_of(log.split("\n")).text
    assert found.startswith(text)
    assert text or not found


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ("", "KeyError: 'lr' (train.py"),
        ("no reward\nwandb: Find logs at: x\n", "no reward, after KeyError: 'lr' (train.py"),
        ("usage: a\na: error: no --rl\n", "a: error: no --rl, after KeyError: 'lr' (train.py"),
        ("step 1\n" * 40 + "reward is nan\n", "reward is nan"),
        ("closing\nSet the environment variable HYDRA_FULL_ERROR=1 for more\n", "KeyError: 'lr' (train.py"),
    ],
)
def test_of_a_program_that_no_exception_ended_the_last_words_are_told(later: str, text: str) -> None:
    assert reason_of((KEY_ERROR + later).split("\n"), raised=False).text.startswith(text)
    assert reason_of((KEY_ERROR + later).split("\n"), raised=True).text.startswith("KeyError: 'lr'")


def test_of_a_group_all_exceptions_are_told(tmp_path: Path) -> None:
    program = "errors = [ValueError('b')]\ntry: {}['a']\nexcept KeyError as e: errors.append(e)\n"
    done = subprocess.run(
        [sys.executable, "-c", program + "raise ExceptionGroup('both', errors)"],
        capture_output=True,
        text=True,
        check=False,
    )
    log = tmp_path / "log.txt"
    log.write_text(done.stderr)
    assert reason_in(log).text.startswith(
        "ExceptionGroup: both (2 sub-exceptions): ValueError: b; KeyError: 'a'"
    )


def test_errors_behind_the_one_are_kept_for_its_class() -> None:
    direct = "\nThe above exception was the direct cause of the following exception:\n\n"
    log = TRACEBACK.format(error=OOM) + direct + TRACEBACK.format(error="RuntimeError: a worker failed")
    assert reason_of(log.split("\n")).behind == (OOM,)


SUMMARY = """Traceback (most recent call last):
  File "/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:{space}
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-25_13:39:59
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : {other} (pid: 30888)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 30888
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-25_13:39:59
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {root} (pid: 30889)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
PEER = TRACEBACK.format(error="RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:26542.")


def labelled(text: str, label: str) -> str:
    return "".join(f"{label} {line}\n" for line in text.splitlines())


def summary(root: int, other: int = -15) -> str:
    return SUMMARY.format(space=" ", root=root, other=other)


@pytest.mark.parametrize("labels", [("[rank0]:", "[rank1]:"), ("[default0]:", "[default1]:"), ("", "")])
def test_under_torchrun_the_rank_that_failed_first_is_told(labels: tuple[str, str]) -> None:
    zero, one = labels
    log = labelled(KEY_ERROR, one) if one else KEY_ERROR
    log += labelled(PEER, zero) if zero else PEER
    reason = reason_of((log + summary(root=1)).split("\n"))
    assert reason.text == "rank 1: KeyError: 'lr' (train.py:5 in main)"
    assert (reason.code, reason.rank, reason.killed) == (1, 1, "")


def test_lines_of_two_ranks_that_mix_are_told_apart() -> None:
    pairs = zip(
        labelled(KEY_ERROR, "[rank1]:").splitlines(), labelled(PEER, "[rank0]:").splitlines(), strict=True
    )
    log = "\n".join(line for pair in pairs for line in pair) + "\n" + summary(root=1)
    assert reason_of(log.split("\n")).text == "rank 1: KeyError: 'lr' (train.py:5 in main)"


@pytest.mark.parametrize(("root", "other", "rank"), [(-9, -15, 1), (1, -9, 0)])
def test_a_killed_rank_is_the_cause_of_errors_in_the_others(root: int, other: int, rank: int) -> None:
    log = labelled(PEER, f"[rank{1 - rank}]:") + summary(root, other)
    for one in (log, labelled(log, "[rank 1]")):  # of another node
        assert reason_of(one.split("\n")).killed == f"rank {rank} was killed by SIGKILL"


@pytest.mark.parametrize(
    "error",
    [
        "subprocess.CalledProcessError: Command '['python', 'x']' died with <Signals.SIGKILL: 9>.",
        "RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed. ",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
    ],
)
def test_a_process_killed_below_a_launcher_is_told(error: str) -> None:
    assert "was killed by SIGKILL" in reason_of(TRACEBACK.format(error=error).split("\n")).killed


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: DataLoader worker (pid 123) is killed by signal: Bus error. ",
        "ValueError: config key SIGKILL_GRACE must be an int",
        "ValueError: signal: 9 is not in range",
        "subprocess.CalledProcessError: Command '['./SIGKILL.sh']' returned non-zero exit status 1.",
    ],
)
def test_a_process_that_crashed_or_names_a_signal_was_not_killed(error: str) -> None:
    assert reason_of(TRACEBACK.format(error=error).split("\n")).killed == ""


def test_an_error_that_is_its_own_cause_has_a_first_line() -> None:
    error = ValueError("no\nnumber")
    error.__cause__ = error
    assert first_line(error) == "no"

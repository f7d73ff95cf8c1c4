"""``python -m jobs.train TRAINER key=value …``: train runs here and now, without a grid.

One run, or one for each combination of several values (``seed=0,1``). The results are the same files in the
same places as a sweep's, under the same run ids. The same call again continues the runs that are left, each
from its newest checkpoint. SIGTERM, SIGINT and SIGUSR1 make it save and leave.

Started once on each of several nodes, by `srun --ntasks-per-node=1` or `torchrun --nproc-per-node 1`, it
trains one run at a time on all of them.

Exit codes: 0 all runs are done, 1 some run failed, 2 bad input, 3 the results folder takes no files, 75 saved
and left before the end: the same call goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.hydra.overrides import runs_of
from jobs.worker.leaving.exit import AGAIN, DONE, NO_STORAGE, SOME_FAILED
from jobs.worker.manual_submission import record_submission
from jobs.worker.nodes.launcher import Launcher
from jobs.worker.worker import run_command, say, work
from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Run, RunState
from orchestrator.rundir import SweepDir
from orchestrator.rundir.copies.synced import require_own


def train(asked: argparse.Namespace) -> int:
    """Record the runs in the ledger, work through them here and print their states; return the exit code.

    On all nodes but the first of several, start the ranks of runs instead.
    """
    spec, launcher = get_trainer(asked.trainer), Launcher.current()
    if launcher is None:
        return _train(asked, spec, nodes=1)
    runs_of(spec, asked.overrides)  # refuses on all nodes what it refuses on one
    folder = asked.results.absolute()
    if launcher.node:
        return launcher.attend(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with launcher.as_first_node(folder):
        return _train(asked, spec, launcher.nodes)


def _train(asked: argparse.Namespace, spec: TrainerSpec, nodes: int) -> int:
    named = runs_of(spec, asked.overrides)
    runs = named if asked.only is None else [_only(named, asked.only)]
    sweep = SweepDir(asked.results.absolute(), asked.sweep)
    require_own(sweep)
    job = record_submission(sweep, spec, named, runs, asked.slots, nodes)
    code = work(sweep.results, sweep.name, job.token)
    if code == NO_STORAGE:
        return code
    code = _summarize(sweep, runs)
    return DONE if asked.chained and code == AGAIN else code


def _only(runs: Sequence[Run], number: int) -> Run:
    if not 0 <= number < len(runs):
        raise OrchestrateError(f"--only: found {number}, expected a number from 0 to {len(runs) - 1}")
    return runs[number]


def _summarize(sweep: SweepDir, runs: Sequence[Run]) -> int:
    """Print a line for every run; return the exit code that sums them up."""
    states = set()
    varying = [key for key in runs[0].point if len({repr(run.point[key]) for run in runs}) > 1]
    for run in runs:
        state, message = _state(sweep, run)
        states.add(state)
        point = "".join(f" {key}={run.point[key]}" for key in varying)
        say(f"{state.value}: {run.run_id}{point}{message and ': '}{message}")
    if RunState.FAILED in states:
        say(f"next: orchestrate logs {sweep.name} RUN, and orchestrate retry {sweep.name} to try again")
        return SOME_FAILED
    if states == {RunState.DONE}:
        return DONE
    say("saved, and more is left to do: the same call goes on")
    return AGAIN


def _state(sweep: SweepDir, run: Run) -> tuple[RunState, str]:
    run_dir = sweep.run(run.run_id)
    if run_dir.result() is not None:
        return RunState.DONE, ""
    attempts = run_dir.attempts()
    end = attempts[-1].end() if attempts else None
    if end is None:
        return (RunState.RUNNING, "held by another job") if attempts else (RunState.PENDING, "")
    return end.outcome, end.message


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.train",
        description="Trains the runs that Hydra overrides stand for, here and now.",
        epilog="python -m jobs.train benchmarl algorithm=ippo task=vmas/navigation seed=0,1",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="default: results"
    )
    parser.add_argument("--sweep", default="by-hand", metavar="NAME", help="folder in it; default: by-hand")
    parser.add_argument("--slots", type=int, metavar="N", help="runs at once; default: as many as fit")
    parser.add_argument("--only", type=int, metavar="I", help="train just the I-th of the runs, from 0")
    parser.add_argument(
        "--chained", action="store_true", help="exit with 0 where work is left: another job goes on with it"
    )
    parser.add_argument("trainer", help="benchmarl, or another trainer")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as on Hydra's command line")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Train the runs named by the arguments; return the exit code."""
    asked = _parser().parse_args(arguments)
    return run_command(lambda: train(asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

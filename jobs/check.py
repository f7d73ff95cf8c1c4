"""`python -m jobs.check`: check the runs of a sweep with their trainer before anything is submitted.

Reads ``{"trainer": name, "plugins": [...], "runs": [...], "elsewhere": bool, "memory": MB of a run or null}``
as JSON on stdin, with one run of each configuration (``"seeds": true``: there are several seeds), and writes
``{"problems": [...], "structures": n}`` to stdout, with ``"progress": true`` after a line ``[done, total]``
whenever a configuration is checked. With ``"early": true`` only the trainer's first look is taken. Output of
libraries goes to stderr.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from jobs.training.context import BadConfigError
from jobs.training.plugins import load_plugins
from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.core.records import parse
from orchestrator.core.types import PluginSource, Run

# Set if the runs start on another machine, which may have what is missing here.
ELSEWHERE = "ORCHESTRATE_CHECK_ELSEWHERE"
# The file descriptor that takes the progress of a check.
PROGRESS = "ORCHESTRATE_CHECK_PROGRESS"
# The MB of memory that a run has, if they are known.
MEMORY = "ORCHESTRATE_CHECK_MEMORY"
# Set if the runs have several seeds.
SEEDS = "ORCHESTRATE_CHECK_SEEDS"


@dataclass(frozen=True)
class Problem:
    """A reason why a run would fail.

    ``run_id`` names one run that has the problem, ``key`` the override at fault (``None`` if no single one
    is). ``whole``: it is a problem only if these are all runs of a grid. ``early``: found by the first look,
    which ended the check. ``blocks``: nothing may be submitted; otherwise it is a warning.
    """

    run_id: str
    key: str | None
    message: str
    hint: str | None = None
    whole: bool = False
    early: bool = False
    blocks: bool = True


Structure = tuple[tuple[str, str | None], ...]


def structure(run: Run) -> Structure:
    """Return the shape of a run's configuration: its keys, and the options of ``algorithm`` and the like.

    Runs of one structure differ only in plain values, those of dotted keys such as ``experiment.lr``.
    """
    return tuple(
        (key, value if isinstance(value, str) and "." not in key.split("@")[0] else None)
        for key, value in run.overrides.items()
    )


def report_checked(done: int, total: int) -> None:
    """Report that so many of the configurations are checked."""
    if number := os.environ.get(PROGRESS):
        os.write(int(number), f"[{done}, {total}]\n".encode())


def available_mb() -> int | None:
    """Return the memory of a run, if it is known."""
    return int(os.environ[MEMORY]) if MEMORY in os.environ else None


def main() -> None:
    """Check the runs on stdin and write the problems to stdout."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    runs = parse(list[Run], request["runs"])
    plugins = [PluginSource(**plugin) for plugin in request["plugins"]]
    if request.get("elsewhere"):
        os.environ[ELSEWHERE] = "1"
    if request.get("seeds"):
        os.environ[SEEDS] = "1"
    if request.get("progress"):
        os.environ[PROGRESS] = str(answer.fileno())
    if request.get("memory"):
        os.environ[MEMORY] = str(request["memory"])
    trainer = get_trainer(request["trainer"]).with_plugins(plugins)
    problems = _first_look(trainer, runs) if request.get("early") else _check(trainer, runs)
    report = {"problems": [asdict(p) for p in problems], "structures": len({structure(run) for run in runs})}
    json.dump(report, answer)
    answer.close()


def _first_look(trainer: TrainerSpec, runs: Sequence[Run]) -> list[Problem]:
    problems: list[Problem] = pkgutil.resolve_name(trainer.first_look)(runs)
    return problems


def _check(trainer: TrainerSpec, runs: Sequence[Run]) -> list[Problem]:
    """Return the problems of the trainer's first look, else those of its ``check``, which loads what trains.

    With plug-ins there is no first look: it does not know their names.
    """
    try:
        load_plugins(trainer)
    except BadConfigError as error:
        return [Problem(runs[0].run_id, "plugins", str(error), error.hint)]
    if trainer.first_look and not trainer.plugins and (problems := _first_look(trainer, runs)):
        return problems
    found: list[Problem] = pkgutil.resolve_name(trainer.check)(runs)
    return found


if __name__ == "__main__":
    main()

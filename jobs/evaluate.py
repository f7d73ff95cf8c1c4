"""`python -P -m jobs.evaluate`: evaluate trained policies one after another, for `orchestrate evaluate`.

Reads a request per line from stdin and answers each with a line of JSON: an :class:`EvaluationAnswer`, or
``error`` and ``hint``, and ``gone`` if training removed the checkpoint meanwhile. One with ``tasks_of`` is
answered with the names of that trainer's tasks. Output of libraries goes to stderr.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jobs.training.plugins import load_plugins
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.records import parse
from orchestrator.core.types import PluginSource, Run, Value
from orchestrator.rundir import CheckpointFile


@dataclass(frozen=True)
class EvaluationRequest:
    """A policy to evaluate, and how.

    The policy of ``run`` in ``checkpoint``: the newest one, or the ``best`` that training found. ``episodes``
    and ``deterministic`` default to those of the run's own evaluations, ``episodes`` times ``times``.
    ``task`` is another task, with ``changes`` to its keys; the default is the run's own. ``film``: where to
    write a film of the first episode.
    """

    run: Run
    checkpoint: CheckpointFile
    best: bool = False
    episodes: int | None = None
    times: int = 1
    deterministic: bool | None = None
    seed: int = 0
    task: str | None = None
    changes: Mapping[str, Value] = field(default_factory=dict)
    film: Path | None = None


@dataclass(frozen=True)
class EvaluationAnswer:
    """The result of an evaluation. ``frames``: the policy's training so far. ``task``: its name in a grid.

    ``returns`` and ``lengths`` (steps) hold one value per episode. ``seconds``: time spent playing.
    ``figures``: further results by name, finite; ``baselines``: the same figures of scripted players in the
    places of the learners, in as many episodes of the task, by player.
    """

    frames: int
    task: str
    deterministic: bool
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    seconds: float
    figures: Mapping[str, float] = field(default_factory=dict)
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def main() -> None:
    """Answer the requests on stdin until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["SDL_VIDEODRIVER"] = "dummy"  # PettingZoo's pictures are drawn without a screen
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
        answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        plugins = [PluginSource(**plugin) for plugin in request.pop("plugins")]
        asked = request["tasks_of"] if "tasks_of" in request else request["run"]["trainer"]
        trainer = get_trainer(asked).with_plugins(plugins)
        load_plugins(trainer)
        if "tasks_of" in request:
            return {"tasks": list(pkgutil.resolve_name(trainer.tasks)())}
        question = parse(EvaluationRequest, request)
        answer: EvaluationAnswer = pkgutil.resolve_name(trainer.evaluate)(question)
    except FileNotFoundError as error:
        return {
            "error": str(error),
            "hint": None,
            "gone": error.filename == request.get("checkpoint", {}).get("path"),
        }
    except OrchestrateError as error:
        return {"error": str(error), "hint": error.hint, "gone": False}
    except Exception as error:  # of a library: other policies may still work
        return {"error": f"{type(error).__name__}: {error}"[:500], "hint": None, "gone": False}
    return asdict(answer)


if __name__ == "__main__":
    main()

"""`python -P -m jobs.evaluate`: evaluates trained policies one after another, for `orchestrate evaluate`.

Reads an :class:`EvaluationRequest` per line of its input and writes a line of JSON for each: the
:class:`EvaluationAnswer`, or ``error`` and ``hint``, or ``gone`` if training removed the checkpoint.
Libraries print to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from jobs.training.plugins import load_plugins
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import PluginSource, Run, Value
from orchestrator.rundir import CheckpointFile


@dataclass(frozen=True)
class EvaluationRequest:
    """Which policy is to be evaluated, and how.

    The policy of ``run`` in ``checkpoint``: the newest there or the ``best`` that its training had found.
    ``episodes`` and ``deterministic`` are as in the run's own evaluations where they are ``None``, episodes
    ``times`` as many. ``task`` is another task, with ``changes`` of its keys; else the run's own is meant.
    ``film``: where the first episode is to be drawn.
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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        checkpoint = {**data["checkpoint"], "path": Path(data["checkpoint"]["path"])}
        return cls(
            **{
                **data,
                "run": Run.from_json(data["run"]),
                "checkpoint": CheckpointFile(**checkpoint),
                "film": Path(data["film"]) if data["film"] else None,
            }
        )


@dataclass(frozen=True)
class EvaluationAnswer:
    """What came out. ``frames``: how many the policy was trained for. ``task``: as a grid names it.

    ``returns`` and ``lengths`` (steps): one an episode. ``seconds``: what playing them took.
    """

    frames: int
    task: str
    deterministic: bool
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    seconds: float


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["SDL_VIDEODRIVER"] = "dummy"  # PettingZoo's pictures are drawn without a screen
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
        answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        plugins = [PluginSource(**plugin) for plugin in request.pop("plugins")]
        trainer = get_trainer(request["run"]["trainer"]).with_plugins(plugins)
        load_plugins(trainer)
        module, _, function = trainer.evaluate.partition(":")
        question = EvaluationRequest.from_json(request)
        answer: EvaluationAnswer = getattr(importlib.import_module(module), function)(question)
    except FileNotFoundError as error:
        return {"error": str(error), "hint": None, "gone": error.filename == request["checkpoint"]["path"]}
    except OrchestrateError as error:
        return {"error": str(error), "hint": error.hint, "gone": False}
    except Exception as error:  # of a library: other policies may be none the worse
        return {"error": f"{type(error).__name__}: {error}"[:500], "hint": None, "gone": False}
    return asdict(answer)


if __name__ == "__main__":
    main()

"""The first look beside the thorough check: it knows the same names and keys, and refuses nothing more."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from jobs.hydra.spelling import keys_of
from jobs.trainers.benchmarl.configuration import first_look
from jobs.trainers.benchmarl.configuration.spelling import options
from orchestrator.core.types import Run

with warnings.catch_warnings():  # what these say of each other at import is theirs to say
    warnings.simplefilter("ignore")
    from jobs.trainers.benchmarl.configuration.checking import check
    from jobs.trainers.benchmarl.configuration.config import compose_config

SHOULD_AGREE: list[dict[str, Any]] = [
    {"experiment.train_device": "gpu"},
    {"experiment.learning_rate": 0.1},
    {"experiment": {"lr": 0.1}},
    {"algorithm.mixing_embed_dim": 8},
    {"experiment.loggers": "wandb"},
    {"experiment.lr": -0.1},
    {"experiment.lr": [1, 2]},
    {"experiment.evaluation": "maybe"},
    {"task.n_agents": 0},
    {"task": "VmasTask"},
]


def run_of(overrides: dict[str, Any]) -> Run:
    return Run(
        "0" * 16, "benchmarl", {"task": "vmas/navigation", "algorithm": "mappo", **overrides}, 0, 1, None
    )


def choices() -> list[dict[str, str]]:
    """Every name that a grid may choose, once."""
    algorithms = [{"algorithm": name} for name in options("algorithm")]
    tasks = [{"task": name} for name in options("task")]
    models = [{"model": name} for name in options("model") if name != "sequence"]
    return [*algorithms, *tasks, *models, *({"experiment": name} for name in options("experiment"))]


@pytest.mark.nightly
def test_the_files_have_every_key_that_benchmarl_composes() -> None:
    chosen = choices()
    assert len(chosen) > 120
    differing = {}
    for one in chosen:
        run = run_of(one)
        known = first_look._config(json.dumps(run.overrides))
        composed = set(keys_of(compose_config(run)))
        if known is None or (lacking := composed - set(keys_of(known))):
            differing[str(one)] = None if known is None else sorted(lacking)
    assert differing == {}


@pytest.mark.parametrize("overrides", SHOULD_AGREE)
def test_what_the_first_look_refuses_the_thorough_check_refuses_too(overrides: dict[str, Any]) -> None:
    (early,) = first_look.first_look([run_of(overrides)])
    (thorough,) = check([run_of(overrides)])
    assert (early.key, early.message, early.hint) == (thorough.key, thorough.message, thorough.hint)

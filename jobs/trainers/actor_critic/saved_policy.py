"""Load the policy of a finished run."""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from pathlib import Path

import torch

from jobs.trainers.actor_critic.environments.families import build
from jobs.trainers.actor_critic.learner import build_network
from jobs.trainers.actor_critic.networks import ActorCritic
from orchestrator.core.errors import NotFoundError
from orchestrator.rundir import RunDir


def load_policy(run_folder: str | Path) -> ActorCritic:
    """Return the final policy of the run in this folder, on the CPU.

    Raises :class:`NotFoundError` if the run is not finished, ``FileNotFoundError`` if its files are not here.
    """
    run_dir = RunDir(Path(run_folder))
    result = run_dir.result()
    if result is None:
        raise NotFoundError(
            f"{run_folder}: no finished run", hint="name a folder such as results/SWEEP/runs/RUN"
        )
    run = run_dir.description()
    config = import_module(f"jobs.trainers.{run.trainer}.training").TRAINER.config.compose(run.overrides)
    config.device = "cpu"
    with closing(build(config.task, 1, 0, "cpu")) as environments:
        network = build_network(config, environments)
    path = run_dir.attempt(result.attempt).policy
    network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    return network

"""Load the policy of a finished run."""

from __future__ import annotations

from pathlib import Path

import torch

from jobs.trainers.ppo.config import CONFIG
from jobs.trainers.ppo.environments import build
from jobs.trainers.ppo.networks import ActorCritic
from jobs.trainers.ppo.training import build_network
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
    config = CONFIG.compose(run_dir.description().overrides)
    config.device = "cpu"
    network = build_network(config, build(config.task, 1, 0, "cpu"))
    path = run_dir.attempt(result["attempt"]).policy
    network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    return network

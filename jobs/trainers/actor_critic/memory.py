"""About how much memory a run on Procgen takes, by measurement, and the amounts of any run: for advice."""

from __future__ import annotations

import math

from jobs.check import Problem
from jobs.trainers.actor_critic.config import CNN, RESNET, ActorCriticConfig
from jobs.trainers.amounts import Amounts
from orchestrator.core.types import Run

# MB of a process, of a further one, which shares libraries and assets with it, of a game, and of a picture.
_PROCESS, _FURTHER, _GAME, _PICTURE = 680, 130, 1.5, 64 * 64 * 3 / 2**20
# MB of a network's products for each picture that a process learns from at a time.
_PRODUCTS = {CNN: 0.08, RESNET: 1.35}
_GB = 1024


def memory_warning(run: Run, config: ActorCriticConfig, available: int) -> Problem | None:
    """Return a warning if a run on Procgen takes more than so many MB, by its number of environments."""
    if not _is_measured(config) or config.device != "cpu":
        return None
    episodes = config.evaluation_episodes if config.evaluation_interval else 0
    products = config.learning * config.pictures_at_once * _PRODUCTS.get(config.network, 0.0)
    fixed = _PROCESS + (config.processes - 1) * _FURTHER + episodes * _GAME + products
    # Actors that only play have a slot for each step of lag and one more; what is learned from is a copy.
    copies = config.players.max_lag + 2 if config.players else 1
    each = _GAME + config.rollout_steps * _PICTURE * copies
    needed = fixed + config.envs * each
    if needed <= available:
        return None
    fitting = int((available - fixed) / each)
    fewer = f"set envs: {2 ** int(math.log2(fitting))}, or " if fitting >= 1 else ""
    return Problem(
        run.run_id,
        "envs",
        f"{config.envs:_} envs of {config.task.name} with {config.rollout_steps} rollout_steps take about "
        f"{needed / _GB:.1f} GB of memory, and a run has {available / _GB:.1f} GB",
        hint=f"{fewer}ask for more: resources: {{mem: {math.ceil(needed / _GB)}G}}",
        blocks=False,
    )


def amounts_of(config: ActorCriticConfig) -> Amounts:
    """Return the amounts of a configuration; without what a GPU holds, and without what is measured."""
    batch = config.envs * config.rollout_steps
    return Amounts(
        frames=config.steps,
        batch=batch,
        held=batch if config.device == "cpu" and not _is_measured(config) else 0,
        held_by=("envs", "rollout_steps"),
        evaluation_interval=config.evaluation_interval,
        evaluation_episodes=config.evaluation_episodes,
        checkpoint_interval=config.checkpoint_interval,
    )


def _is_measured(config: ActorCriticConfig) -> bool:
    return bool(config.task.name.startswith("procgen/"))

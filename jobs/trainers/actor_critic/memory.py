"""About how much memory a run on Procgen takes, by measurement: for advice before it starts."""

from __future__ import annotations

import math

from jobs.check import Problem
from jobs.trainers.actor_critic.config import ActorCriticConfig
from orchestrator.core.types import Run

# MB of a process that learns by the network `cnn`, of a further one, which shares libraries and assets with
# it, of a game, and of a picture.
_PROCESS, _FURTHER, _GAME, _PICTURE = 700, 150, 1.5, 64 * 64 * 3 / 2**20
_GB = 1024


def memory_warning(run: Run, config: ActorCriticConfig, available: int) -> Problem | None:
    """Return a warning if a run on Procgen takes more than so many MB, by its number of environments."""
    if not config.task.name.startswith("procgen/") or config.device != "cpu":
        return None
    episodes = config.evaluation_episodes if config.evaluation_interval else 0
    fixed = _PROCESS + (config.processes - 1) * _FURTHER + episodes * _GAME
    each = _GAME + config.rollout_steps * _PICTURE
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

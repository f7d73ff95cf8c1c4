"""The trainer `command`: any program that follows the run protocol."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.config.trainers.spec import TrainerSpec

_KEYS = {
    "command": (
        "the program and its arguments, a list; `{key}` in an item becomes the run's value. `estimate` "
        "reads keys named `task`, `algorithm` and `frames`, `steps` or `total_timesteps`, if there are any"
    ),
    "code": (
        "files, folders and patterns (`*` within a name, `**` across folders) that count as the program, "
        "relative to the folder in which it starts, in place of the default; `+` adds one to the default, "
        "`-` takes one away. A run trained by other content of these files is stale"
    ),
    "minutes": (
        "the training time after which the program is stopped and the run is done; with `{minutes}` in "
        "`command` the key is the program's own, and nothing is stopped"
    ),
}


class CommandSpec(TrainerSpec):
    """A trainer that starts a user's program, on any number of nodes."""

    runs_program = several_nodes = True

    @property
    def keys(self) -> Mapping[str, str]:
        return _KEYS


COMMAND = CommandSpec(
    name="command",
    train="jobs.trainers.command.training:train",
    check="jobs.trainers.command.checking:check",
    preload=("jobs.trainers.command.training",),
    inert=("code",),
    frames=("frames", "steps", "total_frames", "total_steps", "total_timesteps"),
    minutes="minutes",
)

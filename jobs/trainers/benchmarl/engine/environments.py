"""The environments of an experiment, and how each continues after a resume.

VMAS environments are saved as they stand, and so are those that save themselves; PettingZoo's replay their
current episode. All others, and those in another process, restart at declared boundaries instead: see
docs/resume.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchrl.envs import EnvBase, PettingZooWrapper, SerialEnv, TransformedEnv
from torchrl.envs.libs.vmas import VmasEnv

from jobs.trainers.benchmarl.engine.replay import EpisodeLog
from jobs.trainers.benchmarl.engine.snapshot import ObjectGraph, vmas_graph
from jobs.trainers.benchmarl.engine.tensors import Plain

_LOG = "_episode_log"


def logged(build: Callable[[], EnvBase]) -> Callable[[], EnvBase]:
    """Return a builder that also attaches an :class:`EpisodeLog` to environments that are replayed."""

    def build_logged() -> EnvBase:
        env = build()
        if isinstance(env, PettingZooWrapper):
            vars(env)[_LOG] = EpisodeLog(env)
        return env

    return build_logged


class Environments:
    """The innermost environments below ``env``, just built; ``repeat``: their episodes will be stepped on."""

    def __init__(self, env: EnvBase, *, repeat: bool) -> None:
        self._repeat = repeat
        found = [_part(item) for item in _innermost(env)]
        parts = [part for part in found if part is not None]
        self.exact = len(parts) == len(found)
        self._parts = parts if self.exact else []

    def save(self) -> Plain:
        """Return the states of all environments."""
        return [part.save() for part in self._parts]

    def load(self, saved: Plain) -> None:
        """Restore the states of all environments."""
        for part, state in zip(self._parts, saved, strict=True):
            if isinstance(part, EpisodeLog):
                part.load(state, repeat=self._repeat)
            else:
                part.load(state)


class _OwnState:
    """The state of an environment with the methods ``save_state`` and ``load_state``."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def save(self) -> Plain:
        return self._env.save_state()

    def load(self, saved: Plain) -> None:
        self._env.load_state(saved)


def _part(env: Any) -> ObjectGraph | EpisodeLog | _OwnState | None:
    if isinstance(env, VmasEnv):
        return vmas_graph(env._env)
    # By vars() and type(): environments pass on what they lack, some to another process.
    if hasattr(type(env), "save_state"):
        return _OwnState(env)
    return vars(env).get(_LOG)


def _innermost(env: EnvBase) -> list[EnvBase]:
    if isinstance(env, TransformedEnv):
        return _innermost(env.base_env)
    if isinstance(env, SerialEnv):
        return [inner for part in env._envs for inner in _innermost(part)]
    return [env]

"""The environments of an experiment, and how each continues after a resume.

VMAS environments are saved as they stand; PettingZoo's replay their current episode. All others, and those in
another process, restart at declared boundaries instead: see docs/resume.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchrl.envs import EnvBase, PettingZooWrapper, SerialEnv, TransformedEnv
from torchrl.envs.libs.vmas import VmasEnv

from jobs.trainers.benchmarl.replay import EpisodeLog
from jobs.trainers.benchmarl.snapshot import ObjectGraph, vmas_graph
from jobs.trainers.benchmarl.tensors import Plain

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
        inner = _innermost(env)
        self.exact = all(isinstance(item, VmasEnv) or _LOG in vars(item) for item in inner)
        self._parts: list[ObjectGraph | EpisodeLog] = []
        if self.exact:
            self._parts = [_part(item) for item in inner]

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


def _part(env: Any) -> ObjectGraph | EpisodeLog:
    # By vars(): environments pass on what they lack, some to another process.
    return vmas_graph(env._env) if isinstance(env, VmasEnv) else vars(env)[_LOG]


def _innermost(env: EnvBase) -> list[EnvBase]:
    if isinstance(env, TransformedEnv):
        return _innermost(env.base_env)
    if isinstance(env, SerialEnv):
        return [inner for part in env._envs for inner in _innermost(part)]
    return [env]

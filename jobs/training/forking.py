"""Go on from the state of another run with other keys: what of that state counts."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.training.context import BadConfigError, RunContext
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.rundir import CheckpointFile

_GROUPS = "param_groups"


@dataclass(frozen=True)
class Fork:
    """The keys with other values than in the run that this one forks from."""

    changed: frozenset[str]

    @classmethod
    def at(cls, context: RunContext, checkpoint: CheckpointFile) -> Fork | None:
        """Return the fork that lies at this checkpoint, ``None`` if the run goes on as it was."""
        before = context.forked_from
        if before is None or checkpoint.attempt:
            return None
        was = {key.lstrip("+~"): value for key, value in before.items()}
        now = {key.lstrip("+~"): value for key, value in context.run.point.items()}
        keys = was.keys() | now.keys()
        return cls(frozenset(key for key in keys if was.get(key) != now.get(key)))

    def changes(self, *patterns: str) -> bool:
        """Return whether a key fits one of these shell-style patterns."""
        return any(fnmatch.fnmatchcase(key, pattern) for key in self.changed for pattern in patterns)


def misfit(context: RunContext, path: Path, attempt: int, error: Exception) -> OrchestrateError:
    """Return the error for a checkpoint of this attempt that another run's networks or memories are for."""
    why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if context.run.origin and not attempt:
        what = f"the run cannot start from {path}: it has networks or memories of other sizes ({why})"
        return BadConfigError(what, hint="the keys of networks, observations and actions have to stay")
    return DamagedFileError(
        path,
        f"does not fit the run as it is configured and coded now ({why})",
        hint=f"train the run anew: orchestrate retry {context.sweep} {context.run.run_id}",
    )


def with_own_options(saved: Any, own: Any) -> Any:
    """Return a saved state in which optimizers have the options of their ``own`` state, such as ``lr``."""
    if not isinstance(saved, Mapping):
        return saved
    if _GROUPS in saved:
        pairs = zip(saved[_GROUPS], own[_GROUPS], strict=True)
        return {**saved, _GROUPS: [{**mine, "params": theirs["params"]} for theirs, mine in pairs]}
    return {name: with_own_options(one, own[name]) if name in own else one for name, one in saved.items()}

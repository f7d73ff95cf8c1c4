"""Runs of ppo, impala and a2c in several processes: what they occupy, where they can be, presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Resources, Run, Value

# Machines by their physical cores.
MACHINES = {"laptop": 4, "16-core": 16, "28-core": 28, "64-core": 64}

# What other programs call sizes for a machine: the nearest preset, or keys in its place.
OTHER_PRESETS = {
    "highend": "28-core has its 112 envs and 28 threads",
    "parallel": "write mode: parallel, actors: 7, envs: 112, and for ppo batch_size: 896",
    "ryzen7": "write mode: parallel, actors: 8, envs: 32, or take laptop, for 4 cores",
}
# The default of the key `actor_timeout`, and the seconds beyond it in which a lost process is named.
_ACTOR_TIMEOUT_S, _LEAST_SLACK_S = 300.0, 15.0


def resources_of(run: Run) -> Resources:
    """Return the resources of a run in several processes, each with the run's threads."""
    actors = max(1, _count(run, "actors"))
    learners = (_count(run, "learners", 0) or actors) if _learns_elsewhere(run) else 0
    return Resources(cpus_per_task=run.threads * (actors + max(0, learners)))


def _learns_elsewhere(run: Run) -> bool:
    """Whether the run has processes that learn beside those that play."""
    return run.trainer == "impala" and run.overrides.get("mode") == "parallel"


def _count(run: Run, key: str, otherwise: int = 1) -> int:
    """Return the run's value of a key for a number of processes. Raises :class:`OrchestrateError`."""
    found = run.value_of(key)
    try:
        return otherwise if found is None else int(str(found))
    except ValueError:
        raise OrchestrateError(f"{key}: found {found!r}, expected a whole number") from None


@dataclass(frozen=True)
class SilenceLimit:
    """The most ``seconds`` without a sign of life; ``who``: the run's own process, in messages."""

    who: str
    seconds: float


def silence_of(run: Run) -> SilenceLimit | None:
    """Return for how long the first process of a run may be silent: longer than it waits for the others."""
    found = run.value_of("actor_timeout")
    timeout = float(found) if isinstance(found, int | float) else _ACTOR_TIMEOUT_S
    who = "its process"
    if run.overrides.get("mode") == "parallel":
        who = "learner 0" if _learns_elsewhere(run) else "actor 0"
    return SilenceLimit(who, timeout + max(timeout, _LEAST_SLACK_S))


def refuses_nodes(run: Run, nodes: int) -> str:
    """Return why a run cannot be trained on so many nodes; empty if it can."""
    mode = run.overrides.get("mode", "sequential")
    if mode != "parallel":  # one process, or processes that share memory
        return f"mode {mode} of the trainer {run.trainer} trains on one node"
    for name in ("actors", "learners"):
        if (found := _count(run, name, 0 if name == "learners" else 1)) % nodes:
            return f"{name}: {found} is no multiple of it: write {name}: {max(1, found // nodes) * nodes}"
    return ""


def presets(trainer: str, batch: Mapping[str, int]) -> dict[str, dict[str, Value]]:
    """Return the keys of each preset; ``batch``: keys for sizes of batches, with their rows for each core."""
    return {name: _machine(trainer, cores, batch) for name, cores in MACHINES.items()}


def _machine(trainer: str, cores: int, batch: Mapping[str, int]) -> dict[str, Value]:
    """Return the keys of a preset: a process on each core."""
    sizes: dict[str, Value] = {key: cores * rows for key, rows in batch.items()}
    actors = {"actors": cores // 2, "learners": cores // 2} if trainer == "impala" else {"actors": cores}
    return {"mode": "parallel", **actors, "envs": max(32, 4 * cores), **sizes}

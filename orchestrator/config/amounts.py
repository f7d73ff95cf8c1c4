"""Warn of amounts in a configuration that need more memory or time than a run has, by arithmetic.

All figures are lower bounds that need no library of a trainer: a frame takes some numbers, an episode a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.core.types import Run, Sweep, Value

# Bytes that a frame takes at least: its observation, action, reward and end, and what is computed of it.
_FRAME_BYTES = 32
# More checkpoints than this take longer to write than the training between them.
_MOST_CHECKPOINTS = 10_000


@dataclass(frozen=True)
class _Keys:
    """Keys of a trainer, each with its default.

    ``held``: factors of the frames in memory at once; ``batch``: factors of the frames of an iteration.
    """

    frames: tuple[str, int]
    interval: tuple[str, int]
    episodes: tuple[str, int]
    checkpoints: tuple[str, int]
    held: Mapping[str, int]
    batch: Mapping[str, int]
    on_policy: tuple[str, ...] = ()


_ROLLOUT = {"envs": 1024, "rollout_steps": 16}
_ACTOR_CRITIC = _Keys(
    ("steps", 10_000_000),
    ("evaluation_interval", 100_000),
    ("evaluation_episodes", 100),
    ("checkpoint_interval", 100_000),
    _ROLLOUT,
    _ROLLOUT,
)
_TRAINERS: Mapping[str, _Keys] = {
    **dict.fromkeys(("ppo", "impala", "a2c"), _ACTOR_CRITIC),
    "benchmarl": _Keys(
        ("experiment.max_n_frames", 3_000_000),
        ("experiment.evaluation_interval", 120_000),
        ("experiment.evaluation_episodes", 10),
        ("experiment.checkpoint_interval", 0),
        {"experiment.off_policy_memory_size": 1_000_000},
        {"experiment.on_policy_collected_frames_per_batch": 6_000},
        on_policy=("mappo", "ippo"),
    ),
}


def excessive_amounts(sweep: Sweep, available_mb: int | None) -> list[dict[str, Value]]:
    """Return warnings of amounts that the grid sets, one for each key; ``available_mb``: memory of a run."""
    keys = _TRAINERS.get(sweep.trainer)
    found: dict[str, dict[str, Value]] = {}
    if keys is not None:
        for run in sweep.runs:
            for key, message, hint in _of_run(run, keys, available_mb):
                warning = {
                    "run_id": run.run_id,
                    "key": key,
                    "message": message,
                    "hint": hint,
                    "blocks": False,
                }
                found.setdefault(key, warning)
    return list(found.values())


def _of_run(run: Run, keys: _Keys, available_mb: int | None) -> Iterator[tuple[str, str, str]]:
    """Yield key, message and hint."""

    def set_by_grid(*names: str) -> str:
        return next((name for name in names if run.value_of(name) is not None), "")

    frames, interval, episodes, checkpoints = (
        _amount(run, *key) for key in (keys.frames, keys.interval, keys.episodes, keys.checkpoints)
    )
    held, batch = (_product(run, factors) for factors in (keys.held, keys.batch))
    if run.overrides.get("algorithm") in keys.on_policy:
        held = 0
    needed_mb = held * _FRAME_BYTES / 2**20
    if (key := set_by_grid(*keys.held)) and available_mb is not None and needed_mb > available_mb:
        yield (
            key,
            f"{' × '.join(keys.held)}: {held:,.0f} frames in memory take at least "
            f"{needed_mb / 1024:,.0f} GB, and a run has {available_mb / 1024:,.1f} GB",
            "set a lower number, or a larger mem in resources",
        )
    evaluations = frames // max(interval, batch, 1) if interval > 0 else 0
    if (key := set_by_grid(keys.episodes[0], keys.interval[0])) and evaluations * episodes > frames:
        yield (
            key,
            f"{evaluations:,.0f} evaluations of {episodes:,.0f} episodes are more steps than the "
            f"{frames:,.0f} frames of the training",
            f"set a larger {keys.interval[0]} or fewer {keys.episodes[0]}",
        )
    written = frames // max(checkpoints, batch, 1) if checkpoints > 0 else 0
    if (key := set_by_grid(keys.checkpoints[0])) and written > _MOST_CHECKPOINTS:
        yield key, f"a run writes {written:,.0f} checkpoints", f"set a larger {keys.checkpoints[0]}"


def _amount(run: Run, key: str, default: int) -> float:
    """Return a number of the configuration, its default unless the run sets one."""
    value = run.value_of(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def _product(run: Run, factors: Mapping[str, int]) -> float:
    product = 1.0
    for key, default in factors.items():
        product *= max(1.0, _amount(run, key, default))
    return product

"""Warn of amounts in a configuration that need more memory or time than a run has, by arithmetic.

All figures are lower bounds: a frame takes some numbers, an episode a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jobs.check import Problem
from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Run

# Bytes that a frame takes at least: its observation, action, reward and end, and what is computed of it.
_FRAME_BYTES = 32
# More checkpoints than this take longer to write than the training between them.
_MOST_CHECKPOINTS = 10_000


@dataclass(frozen=True)
class Amounts:
    """Amounts of a run's configuration, in frames unless they are episodes.

    ``frames``: of the training, unless time ends it; ``batch``: of an iteration; ``held``: in the memory of
    the run at once, the product of the keys ``held_by``. Intervals of 0 are none. ``prefix``: that of the
    keys.
    """

    frames: int
    batch: int
    held: int
    held_by: tuple[str, ...]
    evaluation_interval: int
    evaluation_episodes: int
    checkpoint_interval: int
    prefix: str = ""


def excessive_amounts(found: Iterable[tuple[Run, Amounts]], available_mb: int | None) -> list[Problem]:
    """Return a warning for each key that a run sets too high or too low, with the first such run.

    ``available_mb``: the memory of a run, if it is known.
    """
    warnings: dict[str, Problem] = {}
    for run, amounts in found:
        for keys, message, hint in _excesses(run, amounts, available_mb):
            key = next((key for key in keys if run.value_of(amounts.prefix + key) is not None), None)
            if key is not None:  # the grid sets it
                problem = Problem(run.run_id, amounts.prefix + key, message, hint, blocks=False)
                warnings.setdefault(key, problem)
    return list(warnings.values())


def misplaced_forks(runs: Iterable[Run], found: Iterable[tuple[Run, Amounts]]) -> Iterator[Problem]:
    """Yield a problem for the first of ``runs`` that others fork from within an iteration."""
    trunks = {run.origin: run for run in runs if run.fork}
    for run, amounts in found:
        place, batch = amounts.frames, amounts.batch
        if run.run_id in trunks and place % batch:
            below = place // batch * batch
            hint = f"write at: {' or '.join(f'{one:_}' for one in (below, below + batch) if one)}"
            wanted = f"expected a multiple of the {batch:_} frames of an iteration"
            yield Problem(run.run_id, "fork", f"fork: found at: {place:_}, {wanted}", hint)
            return


def _excesses(
    run: Run, amounts: Amounts, available_mb: int | None
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the keys that can be at fault, a message and a hint."""
    needed_mb = amounts.held * _FRAME_BYTES / 2**20
    if available_mb is not None and needed_mb > available_mb:
        yield (
            amounts.held_by,
            f"{' × '.join(amounts.held_by)}: {amounts.held:,} frames in memory take at least "
            f"{needed_mb / 1024:,.0f} GB, and a run has {available_mb / 1024:,.1f} GB",
            "set a lower number, or a larger mem in resources",
        )
    frames = amounts.frames if get_trainer(run.trainer).minutes_of(run) is None else None
    between, episodes = max(amounts.evaluation_interval, amounts.batch), amounts.evaluation_episodes
    is_evaluated = amounts.evaluation_interval > 0 and (frames is None or frames >= between)
    if is_evaluated and episodes > between:
        yield (
            ("evaluation_episodes", "evaluation_interval"),
            f"an evaluation of {episodes:,} episodes has more steps than the {between:,} frames of training "
            "between two of them",
            f"set a larger {amounts.prefix}evaluation_interval or fewer {amounts.prefix}evaluation_episodes",
        )
    if frames is None or amounts.checkpoint_interval == 0:
        return
    written = frames // max(amounts.checkpoint_interval, amounts.batch)
    if written > _MOST_CHECKPOINTS:
        hint = f"set a larger {amounts.prefix}checkpoint_interval"
        yield ("checkpoint_interval",), f"a run writes {written:,} checkpoints", hint

"""Answer a grid that varies only how fast runs train: the fastest setting in each task and algorithm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.groups.variants import names
from orchestrator.analysis.run_table import RunRow
from orchestrator.analysis.statistics.bootstrap import finite, middle
from orchestrator.analysis.statistics.ratios import Ratio, ratio
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.core.formatting import count, listed
from orchestrator.core.labels import varying_keys
from orchestrator.planning.throughput.measure import NAMES, comparable

# Keys that choose where and how wide a run trains; ``n_envs``, ``on_policy_n_envs_per_worker``.
_HOW_FAST = re.compile(
    r"(^|[._])(device|target|threads|actors|workers|processes|environments|n?_?envs(_per_worker)?)$"
)
# Each of their values is asked by itself.
_APART = ("task", "algorithm", "model", "trainer")
_MOST_NAMED = 3


def is_of_speed(key: str) -> bool:
    """Return whether a key of a grid chooses how fast a run trains: device, threads, environments."""
    return _HOW_FAST.search(key) is not None


@dataclass(frozen=True)
class Setting:
    """A group with its runs' frames/s by seed. ``behind``: significantly slower than the fastest."""

    label: str
    group: SeedGroup
    fps: dict[str, float]
    to_fastest: Ratio | None = None

    @property
    def middle(self) -> float:
        """The median frames/s."""
        return middle(list(self.fps.values())) or 0.0

    @property
    def behind(self) -> bool:
        """Whether it is slower than the fastest setting by more than noise."""
        return self.to_fastest is not None and bool(self.to_fastest.beyond_noise)


@dataclass(frozen=True)
class FastestAnswer:
    """The settings of a task and algorithm, the fastest first. ``figure``: the throughput compared."""

    title: str
    task: str
    figure: str
    settings: tuple[Setting, ...]

    @cached_property
    def leaders(self) -> list[Setting]:
        """The settings that cannot be told apart from the fastest."""
        return [one for one in self.settings if not one.behind]

    @property
    def seeds(self) -> int:
        """The number of seeds of the setting that has the fewest."""
        return min(len(one.fps) for one in self.settings)

    @property
    def missing(self) -> int:
        """The number of seeds that each setting lacks for a verdict."""
        return max(0, FEW_SEEDS - self.seeds) if len(self.settings) > 1 else 0

    @property
    def verdict(self) -> str:
        """The fastest setting, and by how much, in one sentence."""
        first, *others = self.settings
        fps = f"{first.middle:,.0f} frames/s"
        if not others:
            return f"only {first.label} has a speed: {fps}"
        second = others[0].to_fastest
        by = f", {second.value:.2f} times as fast as {others[0].label} ({second})" if second else ""
        if len(self.leaders) == 1:
            return f"{first.label} is fastest: {fps}{by}"
        if self.missing:
            return f"{first.label} is fastest so far: {fps}{by}"
        labels = listed([one.label for one in self.leaders], _MOST_NAMED)
        return f"cannot tell which is fastest of {labels}; the highest median is {fps}, of {first.label}"

    @property
    def remedy(self) -> str:
        """The number of seeds that a verdict lacks; empty if there are enough."""
        return f"{count(self.missing, 'more seed')} of each would be needed" if self.missing else ""

    def as_dict(self) -> dict[str, object]:
        """Return it in JSON types."""
        return {
            "tasks": [self.task],
            "leaders": [one.label for one in self.leaders],
            "behind": [one.label for one in self.settings if one.behind],
            "more_seeds": self.missing or None,
            "verdict": str(self),
        }

    def __str__(self) -> str:
        return f"{self.title}, {NAMES[self.figure]}: {'; '.join(filter(None, (self.verdict, self.remedy)))}"


def fastest(groups: Sequence[SeedGroup]) -> list[FastestAnswer]:
    """Return the answers of a grid that asks for speed; none of a grid that asks for returns.

    It asks for speed where nothing varies but tasks, algorithms, and keys of :func:`is_of_speed`.
    """
    panels = gathered((tuple(group.point.get(key) for key in _APART), group) for group in groups)
    without = (*_APART, "seed")
    keys = {key for own in panels.values() for key in varying_keys([one.point for one in own], without)}
    if not keys or not all(map(is_of_speed, keys)) or max(map(len, panels.values())) < 2:
        return []
    points = [{key: own[0].point[key] for key in _APART if key in own[0].point} for own in panels.values()]
    titles = names(points, ()) if len(panels) > 1 else [own[0].task for own in panels.values()]
    answers = (_answer(title, own) for title, own in zip(titles, panels.values(), strict=True))
    return [answer for answer in answers if answer is not None]


def _answer(title: str, groups: Sequence[SeedGroup]) -> FastestAnswer | None:
    counted = [group.counted()[0] for group in groups]
    figure = comparable([row for rows in counted for row in rows])
    labels = names([group.point for group in groups], _APART)
    found = [
        Setting(label, group, fps)
        for label, group, rows in zip(labels, groups, counted, strict=True)
        if (fps := _speeds(rows, figure))
    ]
    if not found:
        return None
    first, *others = sorted(found, key=lambda one: -one.middle)
    rated = (replace(one, to_fastest=_ratio(first, one, len(others))) for one in others)
    return FastestAnswer(title or "All runs", groups[0].task, figure, (first, *rated))


def _ratio(first: Setting, other: Setting, among: int) -> Ratio | None:
    return ratio(first.label, other.label, {(): first.fps}, {(): other.fps}, among=among)


def _speeds(rows: Sequence[RunRow], figure: str) -> dict[str, float]:
    """Return the finite frames/s of runs by their seed."""
    known = [row for row in rows if finite(row[figure]) and row[figure] > 0]
    return {str(row.get("seed", row["run_id"])): row[figure] for row in known}

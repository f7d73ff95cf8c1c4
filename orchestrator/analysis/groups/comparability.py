"""Decide which final returns can be ranked against each other. Pure.

Such returns are of one metric, after about as many frames, over as many evaluation episodes, trained by
today's code or all by older code, and by the same code where a sweep has several versions. A group with runs
of several metrics, lengths or numbers of episodes is not ranked against any other, nor is a group in which
all seeds gave identical metrics; groups with runs of several versions of the code are, where each version has
about the same share of their runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any, TypeVar

import numpy as np

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.run_table import LOWER_IS_BETTER, METRICS_HASH, RunRow, distinct
from orchestrator.analysis.statistics.bootstrap import finite
from orchestrator.analysis.statistics.pairs import Luck
from orchestrator.analysis.statistics.significance import Floats
from orchestrator.config.returns import kind_of_return
from orchestrator.core.formatting import listed
from orchestrator.core.types import RunState

_T = TypeVar("_T")

# Lengths up to this ratio count as equal: the last batch may overshoot the end.
_EQUAL_LENGTH = 1.1
# Shares of a group's runs that differ by more than this may explain a difference between groups.
MOST_APART = Fraction(1, 3)
_MOST_NAMED = 4
UNRANKED = "not ranked against each other"
# Between the values of runs of one group, where they differ.
_AND = " and "
MIXED = IDENTICAL, MIXED_METRICS, MIXED_LENGTHS, MIXED_EPISODES = (
    "the seed has no effect; hand it to the program, as with {seed} in `command`",
    "returns of different metrics are averaged together",
    "returns after different lengths are averaged together",
    "returns over different numbers of episodes are averaged together",
)
# Columns of what is to change the speed alone: variants that differ in them may have identical metrics.
_OF_SPEED = ("threads", "device", "target")
# Of programs that fork.
_LOADED = " (a program that loads its optimizer has the old learning rate)"
ALIKE = "identical metrics, seed by seed, so the keys in which they differ have no effect"


@dataclass(frozen=True)
class ReturnTerms:
    """Conditions under which a group's final returns came about; ``None`` where unknown.

    ``metric``: the metric of the returns. ``frames``: median of frames trained, ``None`` for runs that train
    for so many ``minutes``. ``episodes``: per evaluation, if the metric is of one. ``stale``: trained by
    other code than today's. ``codes``: ids of the code, sorted; ``code_runs``: runs of each. ``sweep``: name
    of the sweep. ``mixed``: what differs between the runs of the group, one of the ``MIXED`` sentences, and
    how many runs have which. ``metrics``: each run's seed with the hash of its metrics; empty unless all are
    known. ``lower``: whether lower values are better. ``luck``: the prefix and the seed of each final return;
    empty unless all have a prefix.
    """

    metric: str | None
    frames: float | None
    episodes: str | None
    minutes: str | None = None
    stale: bool = False
    codes: tuple[str, ...] = ()
    code_runs: tuple[int, ...] = ()
    sweep: str | None = None
    mixed: tuple[tuple[str, str], ...] = ()
    metrics: frozenset[tuple[Any, ...]] = frozenset()
    lower: bool = False
    luck: tuple[Luck, ...] = ()

    def merits(self, values: Sequence[float]) -> Floats:
        """Return numbers that are higher for better values: these, or their negatives."""
        return np.array(values, dtype=float) * (-1 if self.lower else 1)

    @property
    def kind(self) -> str:
        """Short name of the metric."""
        return kind_of(self.metric)

    @property
    def code_counts(self) -> str:
        """The ids of the code, with the number of runs of each."""
        return _AND.join(
            f"{number} × {code}" for code, number in zip(self.codes, self.code_runs, strict=True)
        )


def kind_of(metric: str | None) -> str:
    """Return a short name of a group's metric, or of its metrics."""
    parts = metric.split(_AND) if metric is not None else ["unknown"]
    return _AND.join(dict.fromkeys(map(kind_of_return, parts)))


def terms_of(rows: Sequence[RunRow]) -> ReturnTerms:
    """Return the conditions of the final returns of runs that differ only in their seed."""
    with_return = [row for row in rows if row["final_return"] is not None]
    minutes = _joined(row.get("minutes") for row in with_return)
    frames = [row["frames"] for row in with_return if row["frames"] is not None and minutes is None]
    metric = _joined(row["return_metric"] for row in with_return)
    evaluated = kind_of(metric) == "evaluation"
    episodes = _joined(row["evaluation_episodes"] for row in with_return) if evaluated else None
    stale = any(row.get("state") == RunState.STALE.value for row in with_return)
    ids = [row.get("accepted_as") or row.get("code_id") for row in with_return]
    codes = Counter(str(code) for code in ids if code is not None)
    luck = tuple(
        (row.get("prefix"), row.get("seed")) for row in distinct(rows) if finite(row["final_return"])
    )
    return ReturnTerms(
        metric,
        float(median(frames)) if frames else None,
        episodes,
        minutes,
        stale,
        tuple(sorted(codes)),
        tuple(codes[code] for code in sorted(codes)),
        _joined(row.get("sweep") for row in with_return),
        tuple(_mixed([row for row in with_return if math.isfinite(row["final_return"])])),
        frozenset((row.get("seed"), *map(row.get, _OF_SPEED), row[METRICS_HASH]) for row in rows)
        if all(row.get(METRICS_HASH) for row in rows)
        else frozenset(),
        any(row.get(LOWER_IS_BETTER) for row in rows),
        luck if all(prefix is not None for prefix, _ in luck) else (),
    )


def _mixed(rows: Sequence[RunRow]) -> Iterator[tuple[str, str]]:
    """Yield what differs between runs of one group, and the number of runs with each value.

    Or that nothing differs, as all have identical metrics.
    """
    if len(rows) > 1 and len(distinct(rows)) == 1:
        yield IDENTICAL, f"{len(rows)} seeds gave identical metrics"
    spans = similar_lengths(row["frames"] for row in rows if row.get("minutes") is None)
    length_of = {frames: span(own) for own in spans for frames in own}
    values: dict[str, list[str]] = {
        MIXED_METRICS: _kinds([row["return_metric"] for row in rows if row["return_metric"] is not None]),
        MIXED_LENGTHS: [
            length_of[row["frames"]] if row.get("minutes") is None else f"{row['minutes']} minutes"
            for row in rows
        ],
        MIXED_EPISODES: [
            f"{row['evaluation_episodes'] or 'unknown'} episodes"
            for row in rows
            if kind_of(row["return_metric"]) == "evaluation"
        ],
    }
    for what, several in values.items():
        counts = Counter(several)
        if len(counts) > 1:
            yield what, _AND.join(f"{number} × {value}" for value, number in sorted(counts.items()))


def _kinds(metrics: Sequence[str]) -> list[str]:
    """Return short names of metrics, or the metrics where two of them have the same."""
    kinds = {metric: kind_of(metric) for metric in metrics}
    return [kinds[metric] if len({*kinds.values()}) == len(kinds) else metric for metric in metrics]


def _joined(values: Iterable[Any]) -> str | None:
    texts = sorted({str(value) for value in values if value is not None})
    return _AND.join(texts) or None


def classes(items: Iterable[tuple[_T, ReturnTerms]]) -> list[list[_T]]:
    """Split items into classes that can be ranked against each other, each in the given order.

    A group with runs that differ in more than their seed is a class of its own.
    """
    known = list(items)
    code_of = _codes([terms for _, terms in known])

    def kind(number: int, terms: ReturnTerms) -> Hashable:
        return number if terms.mixed else (terms.metric, terms.episodes, terms.minutes, code_of(terms))

    by_kind = gathered((kind(number, own[1]), own) for number, own in enumerate(known))
    return [
        [item for item, terms in alike if terms.frames in lengths]
        for alike in by_kind.values()
        for lengths in similar_lengths(terms.frames for _, terms in alike)
    ]


def _codes(every: Sequence[ReturnTerms]) -> Callable[[ReturnTerms], str]:
    """Return a function that names the code of some terms, with its id if one sweep has several.

    Sweeps of different programs can be ranked, as their ids differ only between sweeps. Mixtures of the same
    ids are named with the numbers of runs if their shares differ.
    """
    known = [terms for terms in every if terms.codes]
    mixtures = gathered((terms.codes, terms.code_runs) for terms in known)
    uneven = {codes for codes, counts in mixtures.items() if _apart(counts)}
    of_sweep = gathered((terms.sweep, terms.codes) for terms in known)
    several = any(len(set(codes)) > 1 for codes in of_sweep.values())
    is_known = any(terms.stale for terms in every)

    def code_of(terms: ReturnTerms) -> str:
        age = "older code" if terms.stale else "today's code" if is_known else "code"
        if terms.codes in uneven:
            return f"{age} {terms.code_counts}"
        return f"{age} {_AND.join(terms.codes) or 'without an id'}" if several else age

    return code_of


def _apart(counts: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a part has shares of several totals that are too far apart."""
    shares = [[Fraction(number, sum(own)) for number in own] for own in counts]
    return any(max(part) - min(part) > MOST_APART for part in zip(*shares, strict=True))


def similar_lengths(frames: Iterable[float | None]) -> list[set[float | None]]:
    """Split numbers of frames into sets of about equal ones; unknown ones form a set."""
    sets: list[set[float | None]] = []
    known = set(frames)
    start = 0.0
    for value in sorted(value for value in known if value is not None):
        if not sets or value > _EQUAL_LENGTH * start:
            sets.append(set())
            start = value
        sets[-1].add(value)
    return [*sets, {None}] if None in known else sets


def differences(named: Sequence[tuple[str, ReturnTerms]]) -> list[str]:
    """Return one sentence per difference that prevents ranking, with the names on each side.

    First come the groups with runs that differ among themselves, then those with identical metrics.
    """
    lengths = similar_lengths(terms.frames for _, terms in named)
    length_of = {frames: span(own) for own in lengths for frames in own}
    code_of = _codes([terms for _, terms in named])
    evaluated = [(name, terms) for name, terms in named if terms.kind == "evaluation"]
    kinds = {terms.metric: terms.kind for _, terms in named}
    if len(set(kinds.values())) < len(kinds):
        kinds = {metric: metric or "unknown" for metric in kinds}
    conditions = [
        ("final returns are of different metrics", [(name, kinds[terms.metric]) for name, terms in named]),
        (
            "trained for different lengths",
            [
                (name, length_of[terms.frames] if terms.minutes is None else f"{terms.minutes} minutes")
                for name, terms in named
            ],
        ),
        (
            "evaluated in different numbers of episodes",
            [(name, f"{terms.episodes or 'unknown'} episodes") for name, terms in evaluated],
        ),
        (
            "trained by different code",
            [(name, code_of(terms)) for name, terms in named],
        ),
    ]
    loaded = _LOADED if all(terms.luck for _, terms in named) else ""
    alike = gathered((terms.metrics, name) for name, terms in named if terms.metrics)
    inside = [(what, [(name, dict(terms.mixed).get(what)) for name, terms in named]) for what in MIXED]
    return [
        *(f"{what}: {_listed(own)}" for what, several in inside if (own := _known(several))),
        *(f"{ALIKE}{loaded}: {listed(names, _MOST_NAMED)}" for names in alike.values() if len(names) > 1),
        *(
            f"{what}: {_listed(values)}"
            for what, values in conditions
            if len({value for _, value in values}) > 1
        ),
    ]


def _known(values: Iterable[tuple[str, str | None]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in values if value is not None]


def mixed_code(named: Sequence[tuple[str, ReturnTerms]]) -> list[str]:
    """Return a sentence naming the items that average results of different code, if there are any."""
    mixed = [(name, terms.code_counts) for name, terms in named if len(terms.codes) > 1]
    return [f"results of different code are averaged together: {_listed(mixed)}"] if mixed else []


def span(frames: Iterable[float | None]) -> str:
    """Format the lowest and the highest number of frames."""
    known = sorted(value for value in frames if value is not None)
    if not known:
        return "an unknown number of frames"
    return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in (known[0], known[-1]))) + " frames"


def _listed(values: Sequence[tuple[str, str]]) -> str:
    members = gathered((value, name) for name, value in values)
    return "; ".join(f"{value} ({listed(names, _MOST_NAMED)})" for value, names in members.items())

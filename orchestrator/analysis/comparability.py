"""Which final returns can be ranked: of one metric, after about as many frames, in as many episodes, trained
by today's code or all by older code, and by the same code where a sweep has several. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from orchestrator.core.types import RunState

_T = TypeVar("_T")

# A batch that reaches over the end makes runs a little longer than others.
_AS_LONG = 1.1
_MOST_NAMED = 4
UNRANKED = "not ranked against each other"


@dataclass(frozen=True)
class ReturnTerms:
    """How a group's final returns came about; ``None`` where that is not known.

    ``metric``: what they are values of. ``frames``: how many its runs trained (median), unless they were to
    train for so many ``minutes``. ``episodes``: how many an evaluation had, where it is one. ``stale``: other
    code than today's trained the runs. ``codes``: the ids of their code, sorted; ``sweep``: theirs.
    """

    metric: str | None
    frames: float | None
    episodes: str | None
    minutes: str | None = None
    stale: bool = False
    codes: tuple[str, ...] = ()
    sweep: str | None = None

    @property
    def kind(self) -> str:
        return kind_of(self.metric)


def kind_of(metric: str | None) -> str:
    """A metric in a word, if it is one of an evaluation or of the collection."""
    if metric is None:
        return "unknown"
    first = metric.partition("/")[0]
    return {"eval": "evaluation", "collection": "collection"}.get(first, metric)


def terms_of(rows: Sequence[Mapping[str, Any]]) -> ReturnTerms:
    """Of runs that differ only in their seed."""
    with_return = [row for row in rows if row["final_return"] is not None]
    minutes = _each(row.get("minutes") for row in with_return)
    frames = [row["frames"] for row in with_return if row["frames"] is not None and minutes is None]
    metric = _each(row["return_metric"] for row in with_return)
    evaluated = kind_of(metric) == "evaluation"
    episodes = _each(row["evaluation_episodes"] for row in with_return) if evaluated else None
    stale = any(row.get("state") == RunState.STALE.value for row in with_return)
    codes = {str(row["code_id"]) for row in with_return if row.get("code_id") is not None}
    return ReturnTerms(
        metric,
        float(median(frames)) if frames else None,
        episodes,
        minutes,
        stale,
        tuple(sorted(codes)),
        _each(row.get("sweep") for row in with_return),
    )


def _each(values: Iterable[Any]) -> str | None:
    found = sorted({str(value) for value in values if value is not None})
    return " and ".join(found) or None


def classes(items: Iterable[tuple[_T, ReturnTerms]]) -> list[list[_T]]:
    """These by what can be ranked against each other, each class in the given order."""
    listed = list(items)
    code_of = _codes([terms for _, terms in listed])
    by_kind: dict[tuple[Any, ...], list[tuple[_T, ReturnTerms]]] = {}
    for item, terms in listed:
        kind = (terms.metric, terms.episodes, terms.minutes, code_of(terms))
        by_kind.setdefault(kind, []).append((item, terms))
    return [
        [item for item, terms in alike if terms.frames in lengths]
        for alike in by_kind.values()
        for lengths in _lengths(terms.frames for _, terms in alike)
    ]


def _codes(every: Sequence[ReturnTerms]) -> Callable[[ReturnTerms], str]:
    """What trained each of these, in words; with its id where a sweep among them has several codes.

    Sweeps of different programs can be ranked: each of them is known by its code.
    """
    of_sweep: dict[str | None, set[tuple[str, ...]]] = {}
    for terms in every:
        if terms.codes:
            of_sweep.setdefault(terms.sweep, set()).add(terms.codes)
    several = any(len(codes) > 1 for codes in of_sweep.values())
    is_known = any(terms.stale for terms in every)

    def code_of(terms: ReturnTerms) -> str:
        age = "older code" if terms.stale else "today's code" if is_known else "code"
        return f"{age} {' and '.join(terms.codes) or 'without an id'}" if several else age

    return code_of


def _lengths(frames: Iterable[float | None]) -> list[set[float | None]]:
    """Numbers of frames that are about the same, in sets; the unknown ones in one of their own."""
    found: list[set[float | None]] = []
    known = set(frames)
    start = 0.0
    for value in sorted(value for value in known if value is not None):
        if not found or value > _AS_LONG * start:
            found.append(set())
            start = value
        found[-1].add(value)
    return [*found, {None}] if None in known else found


def differences(named: Sequence[tuple[str, ReturnTerms]]) -> list[str]:
    """In what these differ so that they cannot be ranked, a sentence each with who is what."""
    lengths = _lengths(terms.frames for _, terms in named)
    length_of = {frames: _span(own) for own in lengths for frames in own}
    code_of = _codes([terms for _, terms in named])
    evaluated = [(name, terms) for name, terms in named if terms.kind == "evaluation"]
    told = [
        ("final returns are of different metrics", [(name, terms.kind) for name, terms in named]),
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
    return [f"{what}: {_listed(values)}" for what, values in told if len({value for _, value in values}) > 1]


def mixed_code(named: Sequence[tuple[str, ReturnTerms]]) -> list[str]:
    """Which of these put results of different code together, in a sentence; none if no one does."""
    mixed = [(name, " and ".join(terms.codes)) for name, terms in named if len(terms.codes) > 1]
    return [f"results of different code are averaged together: {_listed(mixed)}"] if mixed else []


def _span(frames: Iterable[float | None]) -> str:
    known = sorted(value for value in frames if value is not None)
    if not known:
        return "an unknown number of frames"
    return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in (known[0], known[-1]))) + " frames"


def _listed(values: Sequence[tuple[str, str]]) -> str:
    members: dict[str, list[str]] = {}
    for name, value in values:
        members.setdefault(value, []).append(name)
    return "; ".join(f"{value} ({_some(names)})" for value, names in members.items())


def _some(names: Sequence[str]) -> str:
    left = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {left} more" if left > 0 else "")

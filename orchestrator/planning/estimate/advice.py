"""Recommend one of several targets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.core.formatting import dollars, duration
from orchestrator.planning.estimate.forecast import Forecast
from orchestrator.planning.estimate.ranges import Range


@dataclass(frozen=True)
class Advice:
    """The target to take (``None`` for no recommendation), and the reasons in lines of text.

    ``fastest`` and ``cheapest`` of the targets that can train all runs in a known time; ``left_out``: the
    others; ``unpriced``: those without a price.
    """

    target: str | None
    lines: tuple[str, ...]
    fastest: str | None = None
    cheapest: str | None = None
    left_out: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data; the figures are those of the targets."""
        return {
            "target": self.target,
            "fastest": self.fastest,
            "cheapest": self.cheapest,
            "left_out": list(self.left_out),
            "unpriced": list(self.unpriced),
        }


def recommend(
    forecasts: Sequence[Forecast], deadline: float | None = None, budget: float | None = None
) -> Advice:
    """Recommend the cheapest target that meets the deadline (seconds) and the budget (US dollars).

    Without a deadline: the fastest within the budget. With neither: name both the cheapest and the fastest.
    Targets must be able to train all runs in a known time; a budget excludes targets without a price.
    """
    if not any(one.runs or one.skipped for one in forecasts):
        return Advice(None, ("none: nothing is left to do",))
    able = [one for one in forecasts if not one.skipped and one.runs and one.wall is not None]
    priced = [one for one in able if one.dollars is not None]
    return replace(
        _advice(forecasts, able, deadline, budget),
        fastest=min(able, key=_time).where.name if able else None,
        cheapest=min(priced, key=_cost).where.name if priced else None,
        left_out=tuple(one.where.name for one in forecasts if one not in able),
        unpriced=tuple(one.where.name for one in able if one not in priced),
    )


def _advice(
    forecasts: Sequence[Forecast], able: Sequence[Forecast], deadline: float | None, budget: float | None
) -> Advice:
    left = [one.where.name for one in forecasts if one not in able]
    lines = [f"left out: {', '.join(left)}"] if left and able else []
    if not able:
        return Advice(None, ("none: no target can train all runs in a known time",))
    if deadline is None and budget is None:
        return _extremes(able, lines)
    fitting = [one for one in able if _meets(one, deadline, budget)]
    unpriced = [one.where.name for one in able if one.dollars is None]
    if unpriced and budget is not None:
        lines.append(f"cost unknown, as the profile sets no price_per_hour: {', '.join(unpriced)}")
    if not fitting:
        return Advice(None, (*_none_fits(able, deadline, budget), *lines))
    best = min(fitting, key=_cost if deadline is not None else _time)
    return Advice(best.where.name, (_reason_for(best, deadline, budget), *lines))


def _extremes(able: Sequence[Forecast], lines: list[str]) -> Advice:
    fastest, priced = min(able, key=_time), [one for one in able if one.dollars is not None]
    said = [f"fastest: {fastest.where.name} ({duration(_time(fastest))})"]
    cheapest = min(priced, key=_cost, default=None)
    if cheapest is not None:
        said.insert(0, f"cheapest: {cheapest.where.name} ({dollars(_cost(cheapest))})")
    if len(priced) < len(able):
        names = ", ".join(one.where.name for one in able if one.dollars is None)
        said.append(f"cost unknown, as the profile sets no price_per_hour: {names}")
    return Advice((cheapest or fastest).where.name, (*said, *lines))


def _meets(one: Forecast, deadline: float | None, budget: float | None) -> bool:
    assert one.wall is not None
    if deadline is not None and one.wall.mid > deadline:
        return False
    return budget is None or (one.dollars is not None and one.dollars.mid <= budget)


def _reason_for(best: Forecast, deadline: float | None, budget: float | None) -> str:
    assert best.wall is not None
    words = []
    if deadline is not None:
        words.append(
            f"done in {duration(best.wall.mid)} of {duration(deadline)}{_overrun_note(best.wall, deadline)}"
        )
    if budget is not None and best.dollars is not None:
        words.append(f"{dollars(best.dollars.mid)} of {dollars(budget)}{_overrun_note(best.dollars, budget)}")
    elif best.dollars is not None:
        words.append(f"{dollars(best.dollars.mid)}, the cheapest")
    return f"{best.where.name}: {'; '.join(words)}"


def _overrun_note(found: Range, limit: float) -> str:
    return "" if found.high <= limit else ", but may take more"


def _none_fits(able: Sequence[Forecast], deadline: float | None, budget: float | None) -> list[str]:
    lines = ["none meets " + " and ".join(_limits_text(deadline, budget))]
    fastest = min(able, key=_time)
    lines.append(f"fastest: {fastest.where.name} ({duration(_time(fastest))})")
    if priced := [one for one in able if one.dollars is not None]:
        cheapest = min(priced, key=_cost)
        lines.append(f"cheapest: {cheapest.where.name} ({dollars(_cost(cheapest))})")
    return lines


def _limits_text(deadline: float | None, budget: float | None) -> list[str]:
    asked = [f"a deadline of {duration(deadline)}"] if deadline is not None else []
    return [*asked, f"a budget of {dollars(budget)}"] if budget is not None else asked


def _time(one: Forecast) -> float:
    return one.wall.mid if one.wall is not None else float("inf")


def _cost(one: Forecast) -> float:
    """Return the expected dollars; infinite for a target without a price."""
    return one.dollars.mid if one.dollars is not None else float("inf")

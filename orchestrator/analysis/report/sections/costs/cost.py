"""Return against cost: a picture and a table per class of comparable variants."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.groups.variants import names
from orchestrator.analysis.report.blocks import Block, Gallery, Section, Text
from orchestrator.analysis.report.data import MOST_DRAWN, ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.verdict.cost_front import CostClass, Costed, cost_classes, threshold_classes
from orchestrator.core.formatting import dollars, duration

# Most of them that its legend names: marks can be told apart where lines cannot.
_MOST_NAMED = 16

_NOTE = (
    "A variant is on the front if all that return more also cost more; costs within 5 % count as equal. "
    "Returns are interquartile means over seeds, costs medians over runs: dollars where all variants of a "
    "task have a price, else wall time. "
    "Neither says what is significant, and wall times depend on machines: see the fairness audit."
)

_UNTIL = (
    "Costs until a return are the wall times and dollars of the table of times to a threshold. A hollow mark "
    "is a variant of which too few seeds reached it: its cost is more (>) than where the mark stands, so it "
    "is not on the front."
)


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` where no task has two variants with comparable returns and a cost."""
    classes = cost_classes(data.returning, data.prices)
    reached = threshold_classes(data.returning, data.times)
    if not classes and not reached:
        return None
    small = len(classes) + len(reached) > 1
    several = (("cost", classes), ("threshold", reached))
    drawn = [
        _picture(cost_class, f"{name}-{at}", small=small)
        for name, classes in several
        for at, cost_class in enumerate(classes[: plotting.MOST_PICTURES], 1)
    ]
    tasks = list(dict.fromkeys(figure.task for figure in (*classes, *reached)))
    drawn.sort(key=lambda picture: tasks.index(picture.title))
    note = f"{_NOTE} {_UNTIL}" if reached else _NOTE
    costs = (_table(classes),) if classes else ()
    blocks: tuple[Block, ...] = (Gallery(tuple(drawn)), *costs, Text(note, note=True))
    return Section("cost", "Return against cost", blocks)


def _labels(costs: CostClass) -> list[str]:
    return names([member.final.group.point for member in costs.members])


def _table(classes: Sequence[CostClass]) -> Table:
    rows = (
        {
            "task": Cell(costs.task or cells.MISSING),
            "group": Cell(label),
            "#final return, IQM [95 %]": cells.estimated(member.final.estimate),
            "~wall time of a run": cells.number(member.seconds, duration),
            "#dollars of a run": cells.number(member.dollars, dollars),
            "on the front": Cell("yes" if member.on_front else "no"),
        }
        for costs in classes
        for member, label in zip(costs.members, _labels(costs), strict=True)
    )
    return cells.table("costs", rows, if_any=("#dollars of a run",))


def _picture(costs: CostClass, name: str, *, small: bool) -> Picture:
    labels = _labels(costs)
    texts = [
        (member, f"{label}: {member.value:.4g} for {_spent(costs, member)}")
        for member, label in zip(costs.members, labels, strict=True)
    ]
    front = [text for member, text in texts if member.on_front]
    bounds = [text for member, text in texts if member.censored]
    what = "cost" if costs.threshold is None else f"the cost of reaching {costs.threshold:.4g}"
    return plotting.picture(
        name,
        costs.task,
        _draw(costs, labels, small=small),
        caption=(
            f"{_shown_of(costs)}, with 95 % intervals; the line joins the front: the best return for what it "
            "costs."
        ),
        alt=(
            f"Final return against {what}{plotting.about(costs.task)}. "
            f"On the front: {plotting.listed(front)}."
            + (f" Not reached: {plotting.listed(bounds)}." if bounds else "")
        ),
        small=small,
    )


def _shown_of(costs: CostClass) -> str:
    every = len(costs.members)
    return "Variants" if every <= MOST_DRAWN else f"The front and others, {MOST_DRAWN} of {every:,} variants"


def _spent(costs: CostClass, variant: Costed) -> str:
    spent = dollars(costs.cost(variant)) if costs.priced else duration(variant.seconds)
    return f"> {spent}" if variant.censored else spent


def _in_order(costs: CostClass, labels: Sequence[str]) -> list[tuple[Costed, str]]:
    """Return the variants and their labels, the front first, from the cheapest."""
    return sorted(zip(costs.members, labels, strict=True), key=lambda pair: not pair[0].on_front)


def _draw(costs: CostClass, labels: Sequence[str], *, small: bool) -> Draw:
    drawn = _in_order(costs, labels)[:MOST_DRAWN]
    named = drawn[:_MOST_NAMED]
    told = [
        plotting.short(label) + (f" ({_spent(costs, member)})" if member.censored else "")
        for member, label in named
    ]
    scale, unit = (1.0, "US dollars") if costs.priced else _unit([member.seconds for member in costs.members])

    def draw(theme: Theme) -> Figure:
        figure, on = plotting.axes(
            (3.4 if small else 4.0) + plotting.legend_height(told, small=small), small=small
        )
        front = [member for member in costs.members if member.on_front]
        ends = [costs.cost(member) / scale for member in front]
        on.plot(ends, [one.value for one in front], color=theme.ink, linewidth=1, drawstyle="steps-post")
        handles = {}
        for member, _ in drawn:
            group, estimate = member.final.group, member.final.estimate
            x, colour = costs.cost(member) / scale, theme.line(group.number)
            if estimate is not None and estimate.low is not None and estimate.high is not None:
                on.vlines(x, estimate.low, estimate.high, color=colour, linewidth=3, alpha=0.3)
            (handles[id(member)],) = on.plot(
                [x],
                [member.value],
                color=colour,
                linestyle="",
                marker=plotting.marker(group.number, group.side),
                markersize=8 if member.on_front else 5,
                markerfacecolor=theme.paper if member.censored else colour,
            )
        plotting.heading(on, costs.task, small=small)
        what = "cost" if costs.priced else "wall time"
        until = "of a run" if costs.threshold is None else f"until a return of {costs.threshold:.4g}"
        on.set_xlabel(f"{what} {until} ({unit})")
        on.set_ylabel("final return")
        plotting.from_zero_or_log(on, [costs.cost(member) / scale for member in costs.members])
        plotting.legend(figure, [handles[id(member)] for member, _ in named], told, small=small)
        return figure

    return draw


def _unit(seconds: Sequence[float]) -> tuple[float, str]:
    """Return the seconds of a unit that suits these times, and its name."""
    longest = max(seconds)
    return (3600.0, "hours") if longest > 7200 else (60.0, "minutes") if longest > 300 else (1.0, "seconds")

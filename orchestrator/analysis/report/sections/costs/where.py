"""Where to run: sentences, and throughput against the number of environments, on CPUs and on GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis.groups.crossover import CPU, HardwareComparison, SpeedLine, contests
from orchestrator.analysis.report.blocks import Gallery, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.core.formatting import number
from orchestrator.planning.throughput.measure import NAMES

_PANELS = 2

_CROSSED = "dotted: where CPU and GPU cross; grey: the range of that by the spread"

_NOT_CROSSED = "nothing is drawn beyond what was measured"

# Most sentences in the section.
_MOST_SAID = 12

_MOST_PICTURES = 6

_NOTE = (
    "Frames/s of training are those of collecting and learning, by which devices are compared; end-to-end "
    "they are those of wall time, with evaluations and checkpoints. A crossing is read off straight lines "
    "between measured points, both axes logarithmic; its range, off the slowest and the fastest "
    "runs. More environments are faster but learn differently: with the same frames an iteration each plays "
    "shorter. orchestrate compare sets returns against time."
)


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` where the measurements leave no choice."""
    comparisons = [contest for contest in contests(data.collected) if contest.measured > 1]
    if not comparisons:
        return None
    said = [Text(contest.advice) for contest in comparisons[:_MOST_SAID]]
    if len(comparisons) > _MOST_SAID:
        said.append(Text(f"And {len(comparisons) - _MOST_SAID} more settings.", note=True))
    drawn = tuple(islice(crossover_pictures(comparisons), _MOST_PICTURES))
    return Section("where", "Where to run", (*said, Gallery(drawn), Text(_NOTE, note=True)))


def crossover_pictures(comparisons: Sequence[HardwareComparison]) -> Iterator[Picture]:
    """Draw two algorithms side by side, of those with a choice."""
    several = [contest for contest in comparisons if contest.measured > 1]
    numbers = count(1)
    for part, title in plotting.parts(several, _PANELS, ""):
        crossings = any(contest.crossings for contest in part)
        yield plotting.picture(
            f"crossover-{next(numbers)}",
            title or "Where to run",
            _panels(part),
            caption=(
                f"{_figures(part)} against the number of environments, both logarithmic: median of the "
                f"runs, bars from the slowest to the fastest; {_CROSSED if crossings else _NOT_CROSSED}."
            ),
            alt=f"{_figures(part)} against environments. {plotting.listed(list(map(_alt_text, part)))}.",
        )


def _figures(part: Sequence[HardwareComparison]) -> str:
    return " or ".join(dict.fromkeys(NAMES[contest.figure] for contest in part)).capitalize()


def _alt_text(contest: HardwareComparison) -> str:
    lines = [
        f"{line.label}: " + ", ".join(f"{spot.environments:,}: {number(spot.middle)}" for spot in line.spots)
        for line in contest.lines
    ]
    return f"{contest.label}: {'; '.join(lines)}"


def _panels(part: Sequence[HardwareComparison]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, _ = plotting.axes(4.2, columns=len(part))
        styles = _styles(part, theme)
        for on, contest in zip(figure.axes, part, strict=True):
            _panel(on, contest, styles, theme)
        figure.axes[0].set_ylabel(f"{_figures(part)} (frames/s)")
        plotting.style_legend(figure, list(styles.items()), width=40)
        return figure

    return draw


_Style = dict[str, Any]


def _styles(part: Sequence[HardwareComparison], theme: Theme) -> dict[str, _Style]:
    """Style each label alike in all panels: colour by device, dash and marker by the rest."""
    kinds: dict[str, list[str]] = {}
    for contest in part:
        for line in contest.lines:
            own = kinds.setdefault(line.kind, [])
            if line.label not in own:
                own.append(line.label)
    return {
        label: {
            "color": theme.line((0 if kind == CPU else 1) + 2 * (number_ // 3)),
            "linestyle": plotting.dash(0, number_),
            "marker": plotting.marker(number_, 0),
        }
        for kind, labels in kinds.items()
        for number_, label in enumerate(labels)
    }


def _panel(on: Axes, contest: HardwareComparison, styles: dict[str, _Style], theme: Theme) -> None:
    for line in contest.lines:
        _line(on, line, styles[line.label])
    for crossing in contest.crossings:
        on.axvline(crossing.at, color=theme.ink, linewidth=0.9, linestyle=":")
        if crossing.low is not None and crossing.high is not None:
            on.axvspan(crossing.low, crossing.high, color=theme.ink, alpha=0.07, linewidth=0)
    plotting.heading(on, contest.label, small=True)
    on.set_xscale("log")
    counts = sorted({spot.environments for line in contest.lines for spot in line.spots})
    if len(counts) <= 8:
        on.set_xticks(counts, [plotting.compact(value) for value in counts])
    on.minorticks_off()
    on.set_xlabel("environments")
    plotting.logarithmic(on, [value for line in contest.lines for spot in line.spots for value in spot.fps])


def _line(on: Axes, line: SpeedLine, style: _Style) -> None:
    x = [spot.environments for spot in line.spots]
    on.plot(x, [spot.middle for spot in line.spots], **style)
    several = [spot for spot in line.spots if len(spot.fps) > 1]
    on.vlines(
        [spot.environments for spot in several],
        [spot.low for spot in several],
        [spot.high for spot in several],
        color=style["color"],
        linewidth=4,
        alpha=0.35,
    )
